import { and, count, desc, eq, lt, sql } from 'drizzle-orm';
import { type Db, isUniqueViolation, type Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { lockOrganization } from './organization.ts';
import { projects, serviceAccounts } from './schema.ts';

/**
 * Non-human account of a program, in one project: without address, password or membership. Its keys have a member's
 * rights, whoever created them, even if that user leaves.
 */
export interface ServiceAccount {
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  readonly name: string;
  readonly createdAtMs: number;
}

export interface NewServiceAccount {
  readonly organizationId: string;
  readonly projectId: string;
  readonly name: string;
}

/** A service account as a caller names it: one of another project or organization is not found. Ids are UUIDs. */
export interface ServiceAccountRef {
  readonly organizationId: string;
  /** Null: any project of the organization. */
  readonly projectId: string | null;
  readonly id: string;
}

export interface ServiceAccountListing {
  readonly organizationId: string;
  readonly projectId: string;
  readonly limit: number;
  /** UUID of the last account of the previous page; null starts at the first. */
  readonly before: string | null;
}

export interface ServiceAccountPage {
  readonly accounts: readonly ServiceAccount[];
  readonly more: boolean;
}

/** Service accounts that were deleted, on their own or by archiving their project. Ids are UUIDs. */
export interface ServiceAccountsEnd {
  readonly organizationId: string;
  readonly ids: readonly string[];
  readonly author: Author;
}

/**
 * Ends what acts for the service accounts, in the same transaction; an error undoes the change. The returned function
 * is called after the commit, before the request is answered.
 */
export type JoinServiceAccountsEnd = (tx: Transaction, end: ServiceAccountsEnd) => Promise<() => Promise<void>>;

/** Manages service accounts of unarchived projects. */
export interface ServiceAccounts {
  /** Lists service accounts, newest first. */
  list(listing: ServiceAccountListing): Promise<ServiceAccountPage>;
  find(ref: ServiceAccountRef): Promise<ServiceAccount | null>;
  /**
   * Like `find`, in a transaction that has locked the organization's row: the account exists until the transaction
   * ends.
   */
  findIn(tx: Transaction, ref: ServiceAccountRef): Promise<ServiceAccount | null>;
  /** Returns the service account of a project with this name, ignoring case. */
  findNamedIn(tx: Transaction, named: NewServiceAccount): Promise<ServiceAccount | null>;
  /**
   * Returns null if there is no such project.
   * @throws AppError conflict for a closed organization, an archived project, a project that has reached its limit of
   *   service accounts, and a name that another one of the project has, ignoring case
   */
  createIn(tx: Transaction, input: NewServiceAccount, author: Author): Promise<ServiceAccount | null>;
  /** Returns null if there is no such account. @throws AppError conflict for a name in use */
  rename(ref: ServiceAccountRef, name: string, author: Author): Promise<ServiceAccount | null>;
  /** Deletes a service account; all gateways reject its keys before this returns. False if there is none. */
  remove(ref: ServiceAccountRef, author: Author): Promise<boolean>;
}

export interface ServiceAccountsOptions {
  readonly db: Db;
  readonly inside: (tx: Transaction) => ChangeContext;
  /** Most service accounts of one project. */
  readonly maxOfProject: number;
  readonly end: JoinServiceAccountsEnd;
}

type ServiceAccountRow = typeof serviceAccounts.$inferSelect;

function toServiceAccount({ createdAt, ...fields }: ServiceAccountRow): ServiceAccount {
  return { ...fields, createdAtMs: createdAt.getTime() };
}

const auditView = ({ name, projectId }: ServiceAccountRow): AuditView => ({
  name,
  project_id: formatId('proj', projectId),
});

const conflict = (message: string, param?: string): AppError =>
  new AppError('conflict', { message, ...(param !== undefined && { param }) });

/** @throws AppError conflict if the project has a service account of that name, ignoring case */
async function refusingTakenNames<T>(name: string, change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'service_accounts_project_name_key')) throw error;
    const message = `The project already has a service account named "${name}".`;
    throw new AppError('conflict', { message, param: 'name', cause: error });
  }
}

const isOf = ({ organizationId, projectId, id }: ServiceAccountRef) =>
  and(
    eq(serviceAccounts.id, id),
    eq(serviceAccounts.organizationId, organizationId),
    projectId === null ? undefined : eq(serviceAccounts.projectId, projectId),
  );

async function record(
  { tx, audit }: ChangeContext,
  [action, { id, organizationId }]: readonly ['created' | 'changed' | 'deleted', ServiceAccountRow],
  { before, after }: { readonly before: ServiceAccountRow | null; readonly after: ServiceAccountRow | null },
  author: Author,
): Promise<void> {
  await audit.record(tx, {
    organizationId,
    author,
    action: `service_account.${action}`,
    targetType: 'service_account',
    targetId: formatId('svc_acct', id),
    before: before === null ? null : auditView(before),
    after: after === null ? null : auditView(after),
  });
}

/** @throws AppError conflict */
function requireRoom(total: number, most: number): void {
  if (total < most) return;
  const message =
    most === 0
      ? 'Service accounts are disabled on this gateway.'
      : `The project has ${total} service accounts, and the limit is ${most}. Delete one first.`;
  throw new AppError('conflict', { message, reason: 'HEADGATE_MAX_SERVICE_ACCOUNTS' });
}

/**
 * Inserts a service account with the organization's row locked, as archiving a project does: of two simultaneous
 * changes, one sees the result of the other.
 */
async function insert(
  context: ChangeContext,
  input: NewServiceAccount,
  maxOfProject: number,
  author: Author,
): Promise<ServiceAccount | null> {
  const { tx, now } = context;
  const organization = await lockOrganization(tx, input.organizationId);
  if (organization?.status === 'closed') {
    throw conflict('This organization is closed and cannot get new service accounts.');
  }
  const isProject = and(eq(projects.id, input.projectId), eq(projects.organizationId, input.organizationId));
  const [project] = await tx.select().from(projects).where(isProject).for('share');
  if (project === undefined) return null;
  if (project.archived)
    throw conflict(`The project "${project.name}" is archived and cannot get new service accounts.`);
  const [counted] = await tx
    .select({ total: count() })
    .from(serviceAccounts)
    .where(eq(serviceAccounts.projectId, project.id));
  requireRoom(counted?.total ?? 0, maxOfProject);
  const row: ServiceAccountRow = { id: uuidv7(now.getTime()), ...input, createdAt: now };
  await tx.insert(serviceAccounts).values(row);
  await record(context, ['created', row], { before: null, after: row }, author);
  return toServiceAccount(row);
}

async function rename(
  context: ChangeContext,
  ref: ServiceAccountRef,
  name: string,
  author: Author,
): Promise<ServiceAccount | null> {
  const { tx } = context;
  const [before] = await tx.select().from(serviceAccounts).where(isOf(ref)).for('update');
  if (before === undefined) return null;
  if (before.name === name) return toServiceAccount(before);
  const after = { ...before, name };
  await tx.update(serviceAccounts).set({ name }).where(isOf(ref));
  await record(context, ['changed', after], { before, after }, author);
  return toServiceAccount(after);
}

/** All service accounts of a project. */
interface AllOfProject {
  readonly organizationId: string;
  readonly projectId: string;
  readonly id: null;
}

/** Deletes one service account, or all of a project; the transaction has locked the organization's row. */
export async function removeServiceAccounts(
  context: ChangeContext,
  { organizationId, projectId, id }: ServiceAccountRef | AllOfProject,
  author: Author,
): Promise<ServiceAccountsEnd> {
  const { tx } = context;
  const rows = await tx
    .delete(serviceAccounts)
    .where(
      and(
        eq(serviceAccounts.organizationId, organizationId),
        projectId === null ? undefined : eq(serviceAccounts.projectId, projectId),
        id === null ? undefined : eq(serviceAccounts.id, id),
      ),
    )
    .returning();
  for (const before of rows) await record(context, ['deleted', before], { before, after: null }, author);
  return { organizationId, ids: rows.map((row) => row.id), author };
}

async function list(db: Db, { organizationId, projectId, limit, before }: ServiceAccountListing) {
  const rows = await db.orm
    .select()
    .from(serviceAccounts)
    .where(
      and(
        eq(serviceAccounts.organizationId, organizationId),
        eq(serviceAccounts.projectId, projectId),
        before === null ? undefined : lt(serviceAccounts.id, before),
      ),
    )
    .orderBy(desc(serviceAccounts.id))
    .limit(limit + 1);
  return { accounts: rows.slice(0, limit).map(toServiceAccount), more: rows.length > limit };
}

export function createServiceAccounts({ db, inside, maxOfProject, end }: ServiceAccountsOptions): ServiceAccounts {
  const findIn = async (tx: Pick<Transaction, 'select'>, ref: ServiceAccountRef): Promise<ServiceAccount | null> => {
    const [row] = await tx.select().from(serviceAccounts).where(isOf(ref));
    return row === undefined ? null : toServiceAccount(row);
  };
  return {
    list: (listing) => list(db, listing),
    find: (ref) => findIn(db.orm, ref),
    findIn,
    async findNamedIn(tx, { organizationId, projectId, name }) {
      const isOfProject = and(
        eq(serviceAccounts.organizationId, organizationId),
        eq(serviceAccounts.projectId, projectId),
        eq(sql`lower(${serviceAccounts.name})`, name.toLowerCase()),
      );
      const [row] = await tx.select().from(serviceAccounts).where(isOfProject);
      return row === undefined ? null : toServiceAccount(row);
    },
    createIn: (tx, input, author) =>
      refusingTakenNames(input.name, () => insert(inside(tx), input, maxOfProject, author)),
    rename: (ref, name, author) =>
      refusingTakenNames(name, () => db.orm.transaction((tx) => rename(inside(tx), ref, name, author))),
    async remove(ref, author) {
      const notify = await db.orm.transaction(async (tx) => {
        await lockOrganization(tx, ref.organizationId);
        const ended = await removeServiceAccounts(inside(tx), ref, author);
        return ended.ids.length === 0 ? null : end(tx, ended);
      });
      await notify?.();
      return notify !== null;
    },
  };
}
