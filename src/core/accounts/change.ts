import type { Transaction } from '#base/db.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { AccessEnd } from './access-end.ts';

/** What a change needs: the transaction, the audit, and one time for all its rows. */
export interface ChangeContext {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}

/** What changes of users need beside that. */
export interface UserChangeContext extends ChangeContext {
  /** Ends, in the transaction, what was opened by a way in that is no longer there. */
  readonly endAccess: (end: AccessEnd) => Promise<void>;
}
