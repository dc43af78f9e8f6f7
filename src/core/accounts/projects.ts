import { and, asc, count, desc, eq, or } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { type Db, isUniqueViolation, type Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { BoundedStore, createRefreshingCache } from '#base/queues/queues.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { lockOrganization } from './organization.ts';
import type { Paging } from './paging.ts';
import {
  insertProject,
  type NewProject,
  type Project,
  projectAuditView,
  type ProjectPage,
  type ProjectPatch,
  type ProjectRef,
  type ProjectRow,
  type ProjectSort,
  type ProjectView,
  toProject,
} from './project.ts';
import { projects } from './schema.ts';
import { type JoinServiceAccountsEnd, removeServiceAccounts } from './service-account.ts';

export interface Projects {
  readonly find: (organizationId: string, projectId: string) => Project | null | Promise<Project | null>;
  readonly list: (view: ProjectView, paging: Paging<ProjectSort>) => Promise<ProjectPage>;
  readonly names: (organizationId: string) => Promise<ReadonlyMap<string, string>>;
  readonly create: (input: NewProject, author: Author) => Promise<Project>;
  readonly createIn: (tx: Transaction, input: NewProject, author: Author) => Promise<Project>;
  readonly findImportedIn: (tx: Transaction, organizationId: string, importedFrom: string) => Promise<Project | null>;
  readonly patch: (ref: ProjectRef, patch: ProjectPatch, author: Author) => Promise<Project | null>;
  /** Forgets every project that `find` has read. */
  readonly forget: () => void;
}

export interface ProjectsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  /** Called when a project with service accounts is archived. */
  readonly end: JoinServiceAccountsEnd;
  /** Milliseconds for which known projects are returned while PostgreSQL is unavailable. */
  readonly staleMs?: number;
}

const staleMsDefault = 300_000;
/** Milliseconds after which a lookup fails: a silently lost connection may never answer. */
const lookUpTimeoutMs = 5000;
const cacheEntriesMax = 10_000;
const cacheRefreshAfterMs = 30_000;

/** @throws AppError conflict if the organization has a project of that name, ignoring case */
async function refusingTakenNames<T>(name: string, change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'projects_organization_name_key')) throw error;
    const message = `The organization already has a project named "${name}".`;
    throw new AppError('conflict', { message, param: 'name', cause: error });
  }
}

/** A project after a change, with a function to call after the commit. */
interface ChangedProject {
  readonly project: Project;
  readonly notify: () => Promise<void>;
}

const noNotification = (): Promise<void> => Promise.resolve();

/** Deletes the service accounts of an archived project; unarchiving does not restore them. */
async function endAccounts(
  context: ChangeContext,
  ref: ProjectRef,
  author: Author,
  end: JoinServiceAccountsEnd,
): Promise<() => Promise<void>> {
  const ended = await removeServiceAccounts(context, { ...ref, id: null }, author);
  return ended.ids.length === 0 ? noNotification : end(context.tx, ended);
}

async function updateProject(
  context: ChangeContext & { readonly end: JoinServiceAccountsEnd },
  ref: ProjectRef,
  patch: ProjectPatch,
  author: Author,
): Promise<ChangedProject | null> {
  const { tx, audit } = context;
  // The organization is locked before the project's row, in the same order as by the creation of service accounts.
  if (patch.archived === true) await lockOrganization(tx, ref.organizationId);
  const same = and(eq(projects.id, ref.projectId), eq(projects.organizationId, ref.organizationId));
  const [before] = await tx.select().from(projects).where(same).for('update');
  if (before === undefined) return null;
  if (Object.values(patch).every((value) => value === undefined))
    return { project: toProject(before), notify: noNotification };
  const [after] = await tx.update(projects).set(patch).where(same).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await audit.record(tx, {
    organizationId: ref.organizationId,
    author,
    action: before.archived === after.archived ? 'project.changed' : archiveAction(after),
    targetType: 'project',
    targetId: formatId('proj', ref.projectId),
    before: projectAuditView(before),
    after: projectAuditView(after),
  });
  const notify = patch.archived === true ? await endAccounts(context, ref, author, context.end) : noNotification;
  return { project: toProject(after), notify };
}

const archiveAction = ({ archived }: ProjectRow): string => (archived ? 'project.archived' : 'project.unarchived');

const sortColumns = { created_at: projects.createdAt, name: projects.name, id: projects.id } as const;

async function listProjects(
  db: Db,
  { organizationId, ownId }: ProjectView,
  { page, limit, sort }: Paging<ProjectSort>,
): Promise<ProjectPage> {
  const seen = and(
    eq(projects.organizationId, organizationId),
    ownId === null ? undefined : or(eq(projects.id, ownId), eq(projects.visibility, 'public')),
  );
  const direction = sort.descending ? desc : asc;
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.select({ total: count() }).from(projects).where(seen);
      const rows = await tx
        .select()
        .from(projects)
        .where(seen)
        .orderBy(direction(sortColumns[sort.by]), direction(projects.id))
        .limit(limit)
        .offset((page - 1) * limit);
      return { projects: rows.map(toProject), total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}

/** Manages projects, and caches them for the request path. */
export function createProjects({ db, clock, log, audit, end, staleMs = staleMsDefault }: ProjectsOptions): Projects {
  const store = new BoundedStore();
  const load = async (projectId: string): Promise<Project | null> => {
    try {
      const read = () => db.orm.select().from(projects).where(eq(projects.id, projectId));
      const [row] = await store.ask('a project', lookUpTimeoutMs, read);
      return row === undefined ? null : toProject(row);
    } catch (error) {
      // A failed lookup says nothing about the project.
      throw new AppError('database_unavailable', { cause: error });
    }
  };
  const cache = createRefreshingCache<Project>({
    clock,
    entriesMax: cacheEntriesMax,
    refreshAfterMs: cacheRefreshAfterMs,
    load,
    staleMs,
    onRefreshFailed: (error) =>
      log.warn(
        { err: error },
        'a project could not be read from PostgreSQL; its cached version stays in use for HEADGATE_AUTH_STALE_SECONDS',
      ),
  });
  const now = (): Date => new Date(clock.now());
  const createIn: Projects['createIn'] = (tx, input, author) =>
    refusingTakenNames(input.name, () => insertProject({ tx, audit, now: now() }, input, author));
  const ofOrganization = (project: Project | null, organizationId: string): Project | null =>
    project?.organizationId === organizationId ? project : null;
  return {
    find(organizationId, projectId) {
      const project = cache.get(projectId);
      if (!(project instanceof Promise)) return ofOrganization(project, organizationId);
      return project.then((found) => ofOrganization(found, organizationId));
    },
    forget: () =>
      cache.updateWhere(
        () => true,
        () => null,
      ),
    list: (view, paging) => listProjects(db, view, paging),
    async names(organizationId) {
      const rows = await db.orm
        .select({ id: projects.id, name: projects.name })
        .from(projects)
        .where(eq(projects.organizationId, organizationId));
      return new Map(rows.map(({ id, name }) => [id, name]));
    },
    create: (input, author) => db.orm.transaction((tx) => createIn(tx, input, author)),
    createIn,
    async findImportedIn(tx, organizationId, importedFrom) {
      const isImported = and(eq(projects.organizationId, organizationId), eq(projects.importedFrom, importedFrom));
      const [row] = await tx.select().from(projects).where(isImported);
      return row === undefined ? null : toProject(row);
    },
    async patch(ref, patch, author) {
      const changed = await refusingTakenNames(patch.name ?? '', () =>
        db.orm.transaction((tx) => updateProject({ tx, audit, now: now(), end }, ref, patch, author)),
      );
      if (changed === null) return null;
      const { project, notify } = changed;
      cache.update(project.id, () => project);
      await notify();
      return project;
    },
  };
}
