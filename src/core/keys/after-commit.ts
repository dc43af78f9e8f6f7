import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { KeyRow } from './api-key.ts';
import type { KeyEvents } from './key-events.ts';
import type { ChangeContext } from './key-rows.ts';
import type { Revocation } from './revoke.ts';
import type { Verifier } from './verify.ts';

export interface KeyChangesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'isMember' | 'serviceAccounts'>;
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
  readonly verifier: Verifier;
  readonly keyEvents: KeyEvents;
}

export interface HoldingOptions extends KeyChangesOptions {
  readonly inside: (tx: Transaction) => ChangeContext;
}

export interface AfterCommit {
  /** Applies the row here and notifies all gateways. */
  readonly notify: (row: KeyRow) => Promise<void>;
  /** Like `notify`, and also ends running requests of a key that was revoked. */
  readonly finish: (revocation: Revocation) => Promise<KeyRow>;
}

export function afterCommit({ verifier, keyEvents }: Pick<KeyChangesOptions, 'verifier' | 'keyEvents'>): AfterCommit {
  const broadcast = (row: KeyRow): Promise<void> =>
    keyEvents.broadcast({ organizationId: row.organizationId, keyId: row.id, revoked: row.revokedAt !== null });
  return {
    async notify(row) {
      verifier.learn(row);
      await broadcast(row);
    },
    async finish({ row, changed }) {
      verifier.learn(row);
      if (changed) keyEvents.notify(row.id);
      // Also when the key was revoked before: a gateway may have missed the first message.
      await broadcast(row);
      return row;
    },
  };
}
