import { and, desc, eq, gt, isNull, lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { createThrottle, type ThrottleOptions } from '#base/redis/redis.ts';
import { hashGiven, hashToken, makeToken } from '#base/token.ts';
import { type AuditView, type Author, userIdOf } from '#core/audit/audit.ts';
import type { UserChangeContext } from './change.ts';
import { emailKeyOf } from './email.ts';
import { lockOrganization } from './organization.ts';
import { rolesGivenNow } from './maker.ts';
import { hashPassword } from './password.ts';
import type { OrganizationRole } from './principal.ts';
import { invitations, memberships, organizations, users } from './schema.ts';
import { insertMembership, insertUser, refusingTakenEmails } from './user-changes.ts';

/** An invitation to become a member of an organization. Ids are UUIDs. */
export interface Invitation {
  readonly id: string;
  readonly organizationId: string;
  /** Address as entered; whoever accepts has an account with it. */
  readonly email: string;
  readonly role: OrganizationRole;
  /** User who invited; null if no person did. */
  readonly invitedBy: string | null;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

export interface MadeInvitation {
  readonly invitation: Invitation;
  readonly organizationName: string;
  /** Shown once; only its hash is stored. */
  readonly token: string;
}

export interface InvitationPage {
  readonly invitations: readonly Invitation[];
  readonly more: boolean;
}

/** Open invitations: neither accepted nor revoked, and at most a week old. */
export interface Invitations {
  /** Lists open invitations, newest first. */
  list(organizationId: string, limit: number, before: string | null): Promise<InvitationPage>;
  /**
   * Creates an invitation and revokes an open one for the same address. Succeeds whether or not the address has an
   * account.
   * @throws AppError conflict if the address belongs to a member, and for an organization that is not active,
   *   rate_limit_exceeded
   */
  make(
    input: { readonly organizationId: string; readonly email: string; readonly role: OrganizationRole },
    author: Author,
  ): Promise<MadeInvitation>;
  /** Deletes an invitation whose link could not be delivered. */
  drop(id: string): Promise<void>;
  /** Returns null if there is no such open invitation. @throws AppError insufficient_scope for a role not in `gives` */
  revoke(
    ref: { readonly id: string; readonly organizationId: string; readonly gives: readonly OrganizationRole[] },
    author: Author,
  ): Promise<Invitation | null>;
  /** Returns the invitation for a link's token without accepting it. */
  find(token: string): Promise<Omit<MadeInvitation, 'token'> | null>;
  /**
   * Creates an account with the invitation's address. Null for a link that is not open.
   * @returns the UUID of the user
   * @throws AppError conflict if the address has an account, overloaded
   */
  acceptAsNew(
    token: string,
    person: { readonly name: string; readonly password: string },
    author: Author,
  ): Promise<string | null>;
  /**
   * Makes the user of an existing account a member. Null for a link that is not open.
   * @throws AppError insufficient_scope if the account has another address
   */
  acceptAs(token: string, userId: string, author: Author): Promise<Invitation | null>;
}

const lifeMs = 7 * 24 * 3_600_000;

const isOpen = (now: Date) =>
  and(isNull(invitations.acceptedAt), isNull(invitations.revokedAt), gt(invitations.expiresAt, now));

function toInvitation(row: typeof invitations.$inferSelect): Invitation {
  const { id, organizationId, email, role, invitedBy, createdAt, expiresAt } = row;
  return {
    id,
    organizationId,
    email,
    role,
    invitedBy,
    createdAtMs: createdAt.getTime(),
    expiresAtMs: expiresAt.getTime(),
  };
}

async function note(
  { tx, audit }: UserChangeContext,
  { id, organizationId, email, role }: Invitation,
  { verb, author, more = {} }: { readonly verb: string; readonly author: Author; readonly more?: AuditView },
): Promise<void> {
  const view = { email, role, ...more };
  await audit.record(tx, {
    organizationId,
    author,
    action: `invitation.${verb}`,
    targetType: 'invitation',
    targetId: formatId('inv', id),
    before: verb === 'created' ? null : { email, role },
    after: verb === 'revoked' ? null : view,
  });
}

async function lockActive(tx: Transaction, organizationId: string) {
  const organization = await lockOrganization(tx, organizationId);
  if (organization?.status === 'active') return organization;
  throw new AppError('conflict', { message: 'This organization is not active and cannot get new members.' });
}

async function insertInvitation(
  context: UserChangeContext,
  { organizationId, email, role }: Pick<Invitation, 'organizationId' | 'email' | 'role'>,
  author: Author,
): Promise<MadeInvitation> {
  const { tx, now } = context;
  const { name: organizationName } = await lockActive(tx, organizationId);
  const emailKey = emailKeyOf(email);
  const [member] = await tx
    .select({ id: users.id })
    .from(users)
    .innerJoin(memberships, eq(memberships.userId, users.id))
    .where(and(eq(users.emailKey, emailKey), eq(memberships.organizationId, organizationId)));
  if (member !== undefined) {
    throw new AppError('conflict', { message: 'A member already has this address.', param: 'email' });
  }
  await tx
    .update(invitations)
    .set({ revokedAt: now })
    .where(and(eq(invitations.organizationId, organizationId), eq(invitations.emailKey, emailKey), isOpen(now)));
  const token = makeToken();
  const row: typeof invitations.$inferSelect = {
    id: uuidv7(now.getTime()),
    organizationId,
    email,
    emailKey,
    role,
    tokenHash: hashToken(token),
    invitedBy: userIdOf(author.actor),
    byKey: author.actor.kind === 'key',
    createdAt: now,
    expiresAt: new Date(now.getTime() + lifeMs),
    acceptedAt: null,
    revokedAt: null,
  };
  await tx.insert(invitations).values(row);
  const invitation = toInvitation(row);
  await note(context, invitation, { verb: 'created', author });
  return { invitation, organizationName, token };
}

/**
 * Accepts an invitation. Of several simultaneous attempts one succeeds: the others wait for the organization's row and
 * find the invitation used. Also null if the inviter may no longer give the role.
 */
async function take(context: UserChangeContext, token: string): Promise<Invitation | null> {
  const { tx, now } = context;
  const tokenHash = hashGiven(token);
  if (tokenHash === null) return null;
  const mine = and(eq(invitations.tokenHash, tokenHash), isOpen(now));
  const [asked] = await tx.select().from(invitations).where(mine);
  if (asked === undefined) return null;
  const { invitedBy: userId, organizationId, byKey, role } = asked;
  await lockActive(tx, organizationId);
  // No role changes while the organization's row is locked.
  if (userId !== null && !(await rolesGivenNow(tx, { userId, organizationId, byKey })).includes(role)) return null;
  const [taken] = await tx.update(invitations).set({ acceptedAt: now }).where(mine).returning();
  return taken === undefined ? null : toInvitation(taken);
}

async function acceptAs(
  context: UserChangeContext,
  { token, userId, author }: { readonly token: string; readonly userId: string; readonly author: Author },
): Promise<Invitation | null> {
  const { tx } = context;
  const invitation = await take(context, token);
  if (invitation === null) return null;
  const [user] = await tx.select().from(users).where(eq(users.id, userId)).for('update');
  if (user === undefined || user.emailKey !== emailKeyOf(invitation.email)) {
    throw new AppError('insufficient_scope', {
      message: `This invitation is for ${invitation.email}. Sign in with that address to accept it.`,
    });
  }
  await insertMembership(context, { ...invitation, user }, author);
  await note(context, invitation, { verb: 'accepted', author, more: { user_id: formatId('user', userId) } });
  return invitation;
}

async function findOpen(db: Db, token: string, now: Date): Promise<Omit<MadeInvitation, 'token'> | null> {
  const tokenHash = hashGiven(token);
  if (tokenHash === null) return null;
  const [row] = await db.orm
    .select({ invitation: invitations, organizationName: organizations.name })
    .from(invitations)
    .innerJoin(organizations, eq(organizations.id, invitations.organizationId))
    .where(and(eq(invitations.tokenHash, tokenHash), isOpen(now), eq(organizations.status, 'active')));
  return row === undefined ? null : { ...row, invitation: toInvitation(row.invitation) };
}

export interface InvitationsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly inside: (tx: Transaction) => UserChangeContext;
  /** Store that counts created invitations. */
  readonly counted: Pick<ThrottleOptions, 'store' | 'prefix'>;
}

/** Most invitations of one organization per hour: each may be an email to a stranger. */
const madePerHour = 100;

export function createInvitations({ db, clock, inside, counted }: InvitationsOptions): Invitations {
  const now = (): Date => new Date(clock.now());
  const counts = createThrottle({ kind: 'invitations', limit: madePerHour, windowSeconds: 3600, ...counted });
  const find: Invitations['find'] = (token) => findOpen(db, token, now());
  return {
    async list(organizationId, limit, before) {
      const rows = await db.orm
        .select()
        .from(invitations)
        .where(
          and(
            eq(invitations.organizationId, organizationId),
            isOpen(now()),
            before === null ? undefined : lt(invitations.id, before),
          ),
        )
        .orderBy(desc(invitations.id))
        .limit(limit + 1);
      return { invitations: rows.slice(0, limit).map(toInvitation), more: rows.length > limit };
    },
    async make(input, author) {
      const { allowed, resetMs } = await counts.hit(input.organizationId);
      if (allowed) return db.orm.transaction((tx) => insertInvitation(inside(tx), input, author));
      throw new AppError('rate_limit_exceeded', {
        message: `An organization can invite at most ${madePerHour} people per hour. Try again later.`,
        headers: { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) },
        reason: 'invitations',
      });
    },
    async drop(id) {
      await db.orm.delete(invitations).where(eq(invitations.id, id));
    },
    revoke: ({ id, organizationId, gives }, author) =>
      db.orm.transaction(async (tx) => {
        const [row] = await tx
          .update(invitations)
          .set({ revokedAt: now() })
          .where(and(eq(invitations.id, id), eq(invitations.organizationId, organizationId), isOpen(now())))
          .returning();
        if (row === undefined) return null;
        if (!gives.includes(row.role)) {
          const message = `Only an owner of the organization can revoke an invitation with the role "${row.role}".`;
          throw new AppError('insufficient_scope', { message });
        }
        const invitation = toInvitation(row);
        await note(inside(tx), invitation, { verb: 'revoked', author });
        return invitation;
      }),
    find,
    async acceptAsNew(token, { name, password }, author) {
      const found = await find(token);
      if (found === null) return null;
      // Hashing takes tens of milliseconds, so it runs before rows are locked.
      const passwordHash = await hashPassword(password, found.invitation.id);
      return refusingTakenEmails(() =>
        db.orm.transaction(async (tx) => {
          const context = inside(tx);
          const invitation = await take(context, token);
          if (invitation === null) return null;
          const user = await insertUser(context, { ...invitation, name, passwordHash }, author);
          await note(context, invitation, { verb: 'accepted', author, more: { user_id: formatId('user', user.id) } });
          return user.id;
        }),
      );
    },
    acceptAs: (token, userId, author) => db.orm.transaction((tx) => acceptAs(inside(tx), { token, userId, author })),
  };
}
