import type { Transaction } from '#base/db.ts';
import type { Audit } from '#core/audit/audit.ts';

/** What a change needs: the transaction, the audit, and one time for all its rows. */
export interface ChangeContext {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}
