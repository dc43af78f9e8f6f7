import type { Transaction } from '#base/database/database.ts';
import type { Author } from '#core/audit/audit.ts';

/** A former way to sign in: the password was changed, or a membership ended. Ids are UUIDs. */
export interface AccessEnd {
  readonly userId: string;
  /** Organization that the user has left; null: all of them. */
  readonly organizationId: string | null;
  /** Session that stays open, because its user changed their own password. Null for none. */
  readonly keptSessionId: string | null;
  readonly author: Author;
}

/** Ends what was opened with the former access, in the same transaction; an error undoes the change. */
export type JoinAccessEnd = (tx: Transaction, end: AccessEnd) => Promise<void>;
