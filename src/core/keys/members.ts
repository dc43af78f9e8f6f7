import type { Db } from '#base/database/database.ts';
import type { Accounts, UserEditor } from '#core/accounts/accounts.ts';
import type { KeyChanges } from './changes.ts';

/** Removes users together with the keys that act for them, in one transaction. */
export interface Members {
  /**
   * Removes a user from the editor's organization, and deletes the account if that was the user's only organization. If
   * the editor sees all organizations, removes the user from all of them. All gateways reject the user's keys there
   * before this returns; the user's usage and changes are kept. Returns false if there is no such user.
   * @throws AppError insufficient_scope, conflict for the last administrator of an organization or the platform
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
      const notify = await db.orm.transaction(async (tx) => {
        const removal = await accounts.users.removeIn(tx, userId, editor);
        return removal === null ? null : keys.revokeAllIn(tx, removal, editor.author);
      });
      await notify?.();
      return notify !== null;
    },
  };
}
