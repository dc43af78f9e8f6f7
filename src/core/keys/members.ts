import type { Db } from '#base/db.ts';
import type { Accounts, UserEditor } from '#core/accounts/accounts.ts';
import type { KeyChanges } from './changes.ts';

/** Users leave whole: with the keys that act for them, in one transaction. */
export interface Members {
  /**
   * Takes a user out of the organization of the editor's view, and his account away where that was his only one; where
   * the editor sees all, out of every one. His keys there are refused on every gateway before this answers; what they
   * have used and changed stays. False when there is no such user.
   * @throws AppError insufficient_scope, conflict for the last who administers an organization or the platform
   */
  remove(userId: string, editor: UserEditor): Promise<boolean>;
}

export interface MembersOptions {
  readonly db: Db;
  readonly accounts: { readonly users: Pick<Accounts['users'], 'removeIn'> };
  readonly keys: Pick<KeyChanges, 'revokeAllIn'>;
}

export function createMembers({ db, accounts, keys }: MembersOptions): Members {
  return {
    async remove(userId, editor) {
      const tell = await db.orm.transaction(async (tx) => {
        const removal = await accounts.users.removeIn(tx, userId, editor);
        return removal === null ? null : keys.revokeAllIn(tx, removal, editor.author);
      });
      await tell?.();
      return tell !== null;
    },
  };
}
