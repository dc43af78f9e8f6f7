import { and, eq } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Author } from '#core/audit/audit.ts';
import type { UserChangeContext } from './change.ts';
import { emailKeyOf, emailProblem } from './email.ts';
import type { OrganizationRole } from './principal.ts';
import { dropIdentities, homeOf, type LinkedIdentity, listIdentities } from './linked-identities.ts';
import { closeResetLinks } from './reset-link.ts';
import { userIdentities, users } from './schema.ts';
import { readUser } from './user.ts';
import { insertUser, refusingTakenEmails } from './user-changes.ts';
import { requireMayChange, type UserEditor } from './user-editor.ts';

/**
 * A person as an OpenID provider knows them: issuer and subject identify the person permanently; the address may
 * change.
 */
export interface Identity {
  readonly issuer: string;
  readonly subject: string;
  readonly email: string | null;
  readonly isEmailVerified: boolean;
  readonly name: string | null;
}

/** Membership that people without an account get at their first sign-in. The id is a UUID. */
export interface NewPeople {
  readonly organizationId: string;
  readonly role: OrganizationRole;
}

export interface Identities {
  /**
   * Returns the account of a person who signed in through a provider: the account linked to issuer and subject; else
   * the account with the address, which is linked from then on, if the provider has verified the address; else, if new
   * people may sign in, a new account. Null if there is none.
   * Nobody proved the address of an existing account before, and a stranger may have created the account: the link
   * therefore ends its password, earlier links, sessions and open reset links.
   * @returns the UUID of the user
   * @throws AppError conflict if the organization for new people is closed, not_found if it does not exist
   */
  findOrLink(identity: Identity, newPeople: NewPeople | null, author: Author): Promise<string | null>;
  /** Lists the identities that a user signs in with, oldest first. */
  list(userId: string): Promise<readonly LinkedIdentity[]>;
  /**
   * Removes a link, so that the provider's person no longer signs in as the user. False if there is no such link, or
   * the editor does not see the user.
   * @throws AppError insufficient_scope
   */
  remove(userId: string, identity: Pick<LinkedIdentity, 'issuer' | 'subject'>, editor: UserEditor): Promise<boolean>;
}

export interface IdentitiesOptions {
  readonly db: Db;
  readonly inside: (tx: Transaction) => UserChangeContext;
}

const nameMax = 100;

/** Returns a display name: the provider's name, or the address if there is none. */
function nameOf(name: string | null, email: string): string {
  const plain = (name ?? '')
    .toWellFormed()
    .replaceAll(/\p{Cc}/gu, ' ')
    .trim()
    .slice(0, nameMax)
    .trim();
  return plain === '' ? email.slice(0, nameMax) : plain.toWellFormed();
}

async function link(
  { tx, audit, now }: UserChangeContext,
  userId: string,
  { issuer, subject }: Identity,
  author: Author,
): Promise<void> {
  const added = await tx
    .insert(userIdentities)
    .values({ issuer, subject, userId, createdAt: now })
    .onConflictDoNothing()
    .returning();
  const organizationId = await homeOf(tx, userId);
  if (added.length === 0 || organizationId === null) return;
  await audit.record(tx, {
    organizationId,
    author,
    action: 'user.identity_linked',
    targetType: 'user',
    targetId: formatId('user', userId),
    before: null,
    after: { issuer, subject },
  });
}

/**
 * Hands an existing account to the person who has proved its address: everything that others know of the account stops
 * working.
 */
async function giveOver(context: UserChangeContext, userId: string, author: Author): Promise<void> {
  await context.tx.update(users).set({ passwordHash: null }).where(eq(users.id, userId));
  await dropIdentities(context, userId, author);
  await closeResetLinks(context, userId);
  await context.endAccess({ userId, organizationId: null, keptSessionId: null, author });
}

export function createIdentities({ db, inside }: IdentitiesOptions): Identities {
  return {
    findOrLink: (identity, newPeople, author) =>
      refusingTakenEmails(() =>
        db.orm.transaction(async (tx) => {
          const { issuer, subject, email, isEmailVerified } = identity;
          const [known] = await tx
            .select({ userId: userIdentities.userId })
            .from(userIdentities)
            .where(and(eq(userIdentities.issuer, issuer), eq(userIdentities.subject, subject)));
          if (known !== undefined) return known.userId;
          if (email === null || !isEmailVerified || emailProblem(email) !== null) return null;
          const context = inside(tx);
          const [owner] = await tx
            .select({ id: users.id })
            .from(users)
            .where(eq(users.emailKey, emailKeyOf(email)))
            .for('update');
          if (owner === undefined && newPeople === null) return null;
          const made = { ...newPeople, email, name: nameOf(identity.name, email), passwordHash: null };
          const userId = owner?.id ?? (await insertUser(context, made as typeof made & NewPeople, author)).id;
          if (owner !== undefined) await giveOver(context, userId, author);
          await link(context, userId, identity, author);
          return userId;
        }),
      ),
    list: (userId) => listIdentities(db, userId),
    remove: (userId, identity, editor) =>
      db.orm.transaction(async (tx) => {
        const record = await readUser(tx, editor, userId, { lock: true });
        if (record === null) return false;
        requireMayChange(record, { password: '' }, editor);
        if (editor.author.actor.kind === 'key' && editor.gives.length === 0) {
          const message = 'Only the signed-in person or an administrator can remove the link to a provider.';
          throw new AppError('insufficient_scope', { message });
        }
        return (await dropIdentities(inside(tx), userId, editor.author, identity)) > 0;
      }),
  };
}
