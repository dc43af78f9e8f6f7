import { and, eq, gt, isNull } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { createThrottle, type ThrottleOptions } from '#base/redis/redis.ts';
import { hashGiven, hashToken, makeToken } from '#base/token.ts';
import { type Author, userIdOf } from '#core/audit/audit.ts';
import type { UserChangeContext } from './change.ts';
import { emailKeyOf } from './email.ts';
import { dropIdentities, homeOf } from './linked-identities.ts';
import { type Maker, roleOfMaker } from './maker.ts';
import { hashPassword } from './password.ts';
import { rolesGivenAs } from './roles.ts';
import { resetLinks, users } from './schema.ts';
import { readUser, type UserRecord } from './user.ts';
import { mayReset, requireMayChange, type UserEditor } from './user-editor.ts';
import { lockUser } from './user-lock.ts';

/** A link with which a person sets a new password, once, within an hour. */
export interface ResetLink {
  /** UUID of the link. */
  readonly id: string;
  /** Shown once; only its hash is stored. */
  readonly token: string;
  /** Address of the account, as entered. */
  readonly email: string;
  readonly name: string;
  readonly expiresAtMs: number;
}

/**
 * Manages links for setting a new password. A change of password, address or role voids a user's links, and so does
 * joining another organization.
 */
export interface ResetLinks {
  /**
   * Creates a link for a user whom the editor may change; null if the editor does not see the user.
   * @throws AppError insufficient_scope
   */
  make(userId: string, editor: UserEditor): Promise<ResetLink | null>;
  /**
   * Counts a request for an email, by its network.
   * @param network the address; for IPv6 its /64
   * @throws AppError rate_limit_exceeded
   */
  countAsking(network: string): Promise<void>;
  /**
   * Creates a link for a person who forgot the password; null if no account has the address, or the account had three
   * links within an hour.
   */
  makeFor(email: string, author: Author): Promise<ResetLink | null>;
  /** Deletes a link that could not be delivered. */
  drop(id: string): Promise<void>;
  /** True if a link can be used; does not use it. */
  isOpen(token: string): Promise<boolean>;
  /**
   * Sets the password, and ends everything opened with the old one. Null for a used, void or expired link, and for one
   * whose maker may no longer change the user. A link made by somebody else also removes the user's linked identities.
   * @returns the UUID of the user
   * @throws AppError overloaded
   */
  use(token: string, password: string, author: Author): Promise<string | null>;
}

const lifeMs = 3_600_000;

const openWith = (tokenHash: Buffer, now: Date) =>
  and(eq(resetLinks.tokenHash, tokenHash), isNull(resetLinks.usedAt), gt(resetLinks.expiresAt, now));

/** Voids all links of a user. */
export async function closeResetLinks({ tx, now }: Pick<UserChangeContext, 'tx' | 'now'>, userId: string) {
  await tx
    .update(resetLinks)
    .set({ usedAt: now })
    .where(and(eq(resetLinks.userId, userId), isNull(resetLinks.usedAt)));
}

type Owner = Pick<typeof users.$inferSelect, 'id' | 'email' | 'name'>;

async function insertLink(
  { tx, audit, now }: UserChangeContext,
  owner: Owner,
  organizationId: string,
  { author, maker }: { readonly author: Author; readonly maker: Maker | null },
): Promise<ResetLink> {
  const [id, token, expiresAt] = [uuidv7(now.getTime()), makeToken(), new Date(now.getTime() + lifeMs)];
  const made = { madeBy: maker?.userId, madeIn: maker?.organizationId, byKey: maker?.byKey };
  const row = { id, tokenHash: hashToken(token), userId: owner.id, createdAt: now, expiresAt, ...made };
  await tx.insert(resetLinks).values(row);
  await audit.record(tx, {
    organizationId,
    author,
    action: 'reset_link.made',
    targetType: 'user',
    targetId: formatId('user', owner.id),
    before: null,
    after: { expires_at: expiresAt.toISOString() },
  });
  return { id, token, email: owner.email, name: owner.name, expiresAtMs: expiresAt.getTime() };
}

export interface ResetLinksOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly inside: (tx: Transaction) => UserChangeContext;
  /** Store that counts requests and links. */
  readonly counted: Pick<ThrottleOptions, 'store' | 'prefix'>;
}

const hourSeconds = 3600;
const askedPerAddress = 20;
const madePerAccount = 3;

export function createResetLinks({ db, clock, inside, counted }: ResetLinksOptions): ResetLinks {
  const now = (): Date => new Date(clock.now());
  const throttle = (kind: string, limit: number) =>
    createThrottle({ kind, limit, windowSeconds: hourSeconds, ...counted });
  const asked = throttle('reset-addresses', askedPerAddress);
  const made = throttle('reset-accounts', madePerAccount);
  return {
    make: (userId, editor) =>
      db.orm.transaction(async (tx) => {
        const record = await readUser(tx, editor, userId, { lock: true });
        if (record === null) return null;
        requireMayChange(record, { password: '' }, editor);
        const { author } = editor;
        const [madeBy, organizationId] = [userIdOf(author.actor), editor.organizationId ?? editor.ownOrganizationId];
        if (madeBy === null) throw new AppError('insufficient_scope');
        const maker = { userId: madeBy, organizationId, byKey: author.actor.kind === 'key' };
        // Recorded in the organization where the account's own people see it.
        const home = (await homeOf(tx, userId)) ?? organizationId;
        return insertLink(inside(tx), record.row, home, { author, maker });
      }),
    async countAsking(network) {
      const { allowed, resetMs } = await asked.hit(network);
      if (allowed) return;
      throw new AppError('rate_limit_exceeded', {
        message: `Too many password reset emails were requested from your network (${askedPerAddress} per hour). Wait up to an hour, then try again.`,
        headers: { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) },
        reason: 'reset_links',
      });
    },
    async makeFor(email, author) {
      const [owner] = await db.orm
        .select()
        .from(users)
        .where(eq(users.emailKey, emailKeyOf(email)));
      if (owner === undefined || !(await made.hit(owner.id)).allowed) return null;
      return db.orm.transaction(async (tx) => {
        const organizationId = await homeOf(tx, owner.id);
        return organizationId === null ? null : insertLink(inside(tx), owner, organizationId, { author, maker: null });
      });
    },
    async drop(id) {
      await db.orm.delete(resetLinks).where(eq(resetLinks.id, id));
    },
    async isOpen(token) {
      const tokenHash = hashGiven(token);
      if (tokenHash === null) return false;
      const found = await db.orm.select({ id: resetLinks.id }).from(resetLinks).where(openWith(tokenHash, now()));
      return found.length > 0;
    },
    async use(token, password, author) {
      const tokenHash = hashGiven(token);
      if (tokenHash === null) return null;
      const [link] = await db.orm.select().from(resetLinks).where(openWith(tokenHash, now()));
      if (link === undefined) return null;
      // Hashing takes tens of milliseconds, so it runs before rows are locked.
      const passwordHash = await hashPassword(password, link.userId);
      return db.orm.transaction((tx) => takeLink(inside(tx), tokenHash, { passwordHash, author }));
    },
  };
}

type LinkRow = typeof resetLinks.$inferSelect;

/** Returns null for a link requested on the sign-in page. */
const makerOf = ({ madeBy, madeIn, byKey }: LinkRow): Maker | null =>
  madeBy === null || madeIn === null ? null : { userId: madeBy, organizationId: madeIn, byKey };

/**
 * True if the maker of a link may still change the user; the transaction has locked the user and the maker's
 * organization.
 */
async function isStillGood(tx: Transaction, maker: Maker | null, record: UserRecord): Promise<boolean> {
  if (maker === null) return true;
  const role = await roleOfMaker(tx, maker);
  if (role === null) return false;
  const { userId: selfId, organizationId } = maker;
  return mayReset(record, { selfId, organizationId, gives: rolesGivenAs(role), isPlatform: role === 'platform_admin' });
}

/** Uses a link. Of several simultaneous attempts one succeeds: the others wait for the link's row and find it used. */
async function takeLink(
  context: UserChangeContext,
  tokenHash: Buffer,
  { passwordHash, author }: { readonly passwordHash: string; readonly author: Author },
): Promise<string | null> {
  const { tx, audit, now, endAccess } = context;
  const [asked] = await tx.select().from(resetLinks).where(openWith(tokenHash, now));
  if (asked === undefined) return null;
  const [{ userId }, maker] = [asked, makerOf(asked)];
  // The account is locked before its links, in the same order as by every change of a password.
  const beside = maker === null ? [] : [maker.organizationId];
  const record = await lockUser(tx, { organizationId: null, userId: null }, userId, { beside });
  if (record === null || !(await isStillGood(tx, maker, record))) return null;
  const taken = await tx.update(resetLinks).set({ usedAt: now }).where(openWith(tokenHash, now)).returning();
  if (taken.length === 0) return null;
  await tx.update(users).set({ passwordHash }).where(eq(users.id, userId));
  if (maker !== null && maker.userId !== userId) await dropIdentities(context, userId, author);
  await closeResetLinks(context, userId);
  await endAccess({ userId, organizationId: null, keptSessionId: null, author });
  const organizationId = await homeOf(tx, userId);
  if (organizationId === null) return null;
  await audit.record(tx, {
    organizationId,
    author,
    action: 'user.password_reset',
    targetType: 'user',
    targetId: formatId('user', userId),
    before: null,
    after: { password_changed: true },
  });
  return userId;
}
