import type { Transaction } from '#base/database/database.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { AccessEnd } from './access-end.ts';

/** Context of a change: the transaction, the audit log, and one time for all its rows. */
export interface ChangeContext {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}

/** Context of a change of users. */
export interface UserChangeContext extends ChangeContext {
  /** Ends, in the transaction, what was opened with a former way to sign in. */
  readonly endAccess: (end: AccessEnd) => Promise<void>;
}
