import { and, asc, count, desc, eq, inArray, type SQL } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import type { OrganizationRole, PlatformRole } from './principal.ts';
import type { Paging } from './paging.ts';
import { memberships, users } from './schema.ts';

/** A person with an account. Ids are UUIDs. */
export interface User {
  readonly id: string;
  readonly name: string;
  /** Address as entered. */
  readonly email: string;
  readonly platformRole: PlatformRole;
  /** Memberships that the reader may see. */
  readonly memberships: readonly Membership[];
  readonly createdAtMs: number;
}

export interface Membership {
  readonly organizationId: string;
  readonly role: OrganizationRole;
}

/** Users that somebody sees: those of an organization, or all if it is null; if `userId` is given, only that user. */
export interface UserView {
  readonly organizationId: string | null;
  readonly userId: string | null;
}

export const userSorts = ['created_at', 'name', 'email', 'id'] as const;
export type UserSort = (typeof userSorts)[number];

export interface UserPage {
  readonly users: readonly User[];
  readonly total: number;
}

export type UserRow = typeof users.$inferSelect;

/** A user as stored, with all memberships, oldest first. */
export interface UserRecord {
  readonly row: UserRow;
  readonly memberships: readonly Membership[];
}

type Reader = Pick<Transaction, 'select'>;

/** Returns the platform role of a user; null if there is no such user. */
export async function readPlatformRole(db: Db, userId: string): Promise<PlatformRole | null> {
  const [row] = await db.orm.select({ role: users.platformRole }).from(users).where(eq(users.id, userId));
  return row?.role ?? null;
}

export interface UserRoles {
  readonly isPlatformAdmin: boolean;
  /** Null if the user is not in the organization. */
  readonly organizationRole: OrganizationRole | null;
}

/** Reads the roles of a user; a user who does not exist has none. */
export async function readUserRoles(
  orm: Db['orm'] | Transaction,
  organizationId: string,
  userId: string,
): Promise<UserRoles> {
  const [row] = await orm
    .select({ platformRole: users.platformRole, role: memberships.role })
    .from(users)
    .leftJoin(memberships, and(eq(memberships.userId, users.id), eq(memberships.organizationId, organizationId)))
    .where(eq(users.id, userId));
  return { isPlatformAdmin: row?.platformRole === 'admin', organizationRole: row?.role ?? null };
}

/** True if a user is in an organization, whose row the transaction has locked. */
export async function isMember(tx: Transaction, organizationId: string, userId: string): Promise<boolean> {
  const [row] = await tx
    .select({ userId: memberships.userId })
    .from(memberships)
    .where(and(eq(memberships.organizationId, organizationId), eq(memberships.userId, userId)));
  return row !== undefined;
}

/** Reads the memberships of users, or only those in one organization if given. */
async function readMemberships(
  reader: Reader,
  userIds: readonly string[],
  organizationId: string | null,
): Promise<ReadonlyMap<string, readonly Membership[]>> {
  if (userIds.length === 0) return new Map();
  const rows = await reader
    .select({ userId: memberships.userId, organizationId: memberships.organizationId, role: memberships.role })
    .from(memberships)
    .where(
      and(
        inArray(memberships.userId, [...userIds]),
        organizationId === null ? undefined : eq(memberships.organizationId, organizationId),
      ),
    )
    .orderBy(asc(memberships.createdAt), asc(memberships.organizationId));
  const byUser = Map.groupBy(rows, ({ userId }) => userId);
  return new Map(
    [...byUser].map(([userId, own]) => [
      userId,
      own.map(({ organizationId: id, role }) => ({ organizationId: id, role })),
    ]),
  );
}

/** Returns a user as a reader sees them: without memberships of other organizations. */
export function toUser({ row, memberships: all }: UserRecord, { organizationId }: UserView): User {
  return {
    id: row.id,
    name: row.name,
    email: row.email,
    platformRole: row.platformRole,
    memberships: all.filter((one) => organizationId === null || one.organizationId === organizationId),
    createdAtMs: row.createdAt.getTime(),
  };
}

function seenBy(reader: Reader, { organizationId, userId }: UserView): SQL | undefined {
  const members = (id: string) =>
    reader.select({ id: memberships.userId }).from(memberships).where(eq(memberships.organizationId, id));
  return and(
    userId === null ? undefined : eq(users.id, userId),
    organizationId === null ? undefined : inArray(users.id, members(organizationId)),
  );
}

/**
 * Returns null if there is no such user, or the view does not include them. @param lock locks the row until the
 * transaction ends
 */
export async function readUser(
  reader: Reader,
  view: UserView,
  userId: string,
  { lock = false }: { readonly lock?: boolean } = {},
): Promise<UserRecord | null> {
  const asked = reader
    .select()
    .from(users)
    .where(and(eq(users.id, userId), seenBy(reader, view)));
  const [row] = await (lock ? asked.for('update') : asked);
  if (row === undefined) return null;
  return { row, memberships: (await readMemberships(reader, [userId], null)).get(userId) ?? [] };
}

const sortColumns = { created_at: users.createdAt, name: users.name, email: users.emailKey, id: users.id } as const;

export async function listUsers(db: Db, view: UserView, { page, limit, sort }: Paging<UserSort>): Promise<UserPage> {
  const direction = sort.descending ? desc : asc;
  return db.orm.transaction(
    async (tx) => {
      const seen = seenBy(tx, view);
      const [counted] = await tx.select({ total: count() }).from(users).where(seen);
      const rows = await tx
        .select()
        .from(users)
        .where(seen)
        .orderBy(direction(sortColumns[sort.by]), direction(users.id))
        .limit(limit)
        .offset((page - 1) * limit);
      const ids = rows.map(({ id }) => id);
      const found = await readMemberships(tx, ids, view.organizationId);
      const shown = rows.map((row) => toUser({ row, memberships: found.get(row.id) ?? [] }, view));
      return { users: shown, total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
