import type { Transaction } from '#base/db.ts';
import type { Author } from '#core/audit/audit.ts';

/** A way in that is no longer there: the password was changed, or a membership ended. Ids are UUIDs. */
export interface AccessEnd {
  readonly userId: string;
  /** The organization that the user has left; null: all of them. */
  readonly organizationId: string | null;
  /** A session that goes on: that of who changed the own password. Null for none. */
  readonly keptSessionId: string | null;
  readonly author: Author;
}

/** Ends what was opened that way, in the same transaction; what it throws undoes the change. */
export type JoinAccessEnd = (tx: Transaction, end: AccessEnd) => Promise<void>;
