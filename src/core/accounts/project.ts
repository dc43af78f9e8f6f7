import { and, asc, count, desc, eq, or } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { BoundedStore } from '#base/bounded-store.ts';
import { type Db, isUniqueViolation } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { createRefreshingCache } from '#base/refreshing-cache.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { projects } from './schema.ts';
import type { Paging } from './paging.ts';

/** Who may see a project: its members alone, or everybody in the organization. */
export const projectVisibilities = ['private', 'public'] as const;
export type ProjectVisibility = (typeof projectVisibilities)[number];

/** Where requests and keys belong inside an organization. Ids are UUIDs. */
export interface Project {
  readonly id: string;
  readonly organizationId: string;
  readonly name: string;
  readonly description: string;
  readonly visibility: ProjectVisibility;
  /** An archived project takes no new requests and no new keys. */
  readonly archived: boolean;
  readonly createdAtMs: number;
}

export interface NewProject {
  readonly organizationId: string;
  readonly name: string;
  readonly description: string;
  readonly visibility: ProjectVisibility;
}

export interface ProjectPatch {
  readonly name?: string | undefined;
  readonly description?: string | undefined;
  readonly visibility?: ProjectVisibility | undefined;
  readonly archived?: boolean | undefined;
}

/** Which projects of an organization somebody sees: all, or, where `ownId` is given, that one and those that are public. */
export interface ProjectView {
  readonly organizationId: string;
  readonly ownId: string | null;
}

export const projectSorts = ['created_at', 'name', 'id'] as const;
export type ProjectSort = (typeof projectSorts)[number];

export const isProjectSeen = ({ id, visibility }: Project, { ownId }: ProjectView): boolean =>
  ownId === null || id === ownId || visibility === 'public';

export interface ProjectPage {
  readonly projects: readonly Project[];
  readonly total: number;
}

export interface Projects {
  readonly find: (organizationId: string, projectId: string) => Project | null | Promise<Project | null>;
  readonly list: (view: ProjectView, paging: Paging<ProjectSort>) => Promise<ProjectPage>;
  readonly create: (input: NewProject, author: Author) => Promise<Project>;
  readonly patch: (ref: ProjectRef, patch: ProjectPatch, author: Author) => Promise<Project | null>;
}

/** A project as a caller names it: of that organization or not there. */
export interface ProjectRef {
  readonly organizationId: string;
  readonly projectId: string;
}

export interface ProjectsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  /** How long projects that are known keep their answer while Postgres is away. */
  readonly staleMs?: number;
}

const staleMsDefault = 300_000;
/** A connection that was lost without a word may never answer. */
const lookUpTimeoutMs = 5000;
const cacheEntriesMax = 10_000;
const cacheRefreshAfterMs = 30_000;

type ProjectRow = typeof projects.$inferSelect;

export function toProject(row: ProjectRow): Project {
  const { createdAt, ...fields } = row;
  return { ...fields, createdAtMs: createdAt.getTime() };
}

function auditView(project: ProjectRow): AuditView {
  const { name, description, visibility, archived } = project;
  return { name, description, visibility, archived };
}

/** @throws AppError conflict when the organization has a project of that name, in any case */
async function refusingTakenNames<T>(name: string, change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'projects_organization_name_key')) throw error;
    const message = `The organization already has a project named "${name}".`;
    throw new AppError('conflict', { message, param: 'name', cause: error });
  }
}

export async function insertProject(context: ChangeContext, input: NewProject, author: Author): Promise<Project> {
  const { tx, audit, now } = context;
  const row: ProjectRow = { id: uuidv7(now.getTime()), ...input, archived: false, createdAt: now };
  await tx.insert(projects).values(row);
  await audit.record(tx, {
    organizationId: row.organizationId,
    author,
    action: 'project.created',
    targetType: 'project',
    targetId: formatId('proj', row.id),
    before: null,
    after: auditView(row),
  });
  return toProject(row);
}

async function updateProject(
  context: ChangeContext,
  ref: ProjectRef,
  patch: ProjectPatch,
  author: Author,
): Promise<Project | null> {
  const { tx, audit } = context;
  const same = and(eq(projects.id, ref.projectId), eq(projects.organizationId, ref.organizationId));
  const [before] = await tx.select().from(projects).where(same).for('update');
  if (before === undefined) return null;
  if (Object.values(patch).every((value) => value === undefined)) return toProject(before);
  const [after] = await tx.update(projects).set(patch).where(same).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await audit.record(tx, {
    organizationId: ref.organizationId,
    author,
    action: before.archived === after.archived ? 'project.changed' : archiveAction(after),
    targetType: 'project',
    targetId: formatId('proj', ref.projectId),
    before: auditView(before),
    after: auditView(after),
  });
  return toProject(after);
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

/** Projects, and the short memory that resolves them on the request path. */
export function createProjects({ db, clock, log, audit, staleMs = staleMsDefault }: ProjectsOptions): Projects {
  const store = new BoundedStore();
  const load = async (projectId: string): Promise<Project | null> => {
    try {
      const read = () => db.orm.select().from(projects).where(eq(projects.id, projectId));
      const [row] = await store.ask('a project', lookUpTimeoutMs, read);
      return row === undefined ? null : toProject(row);
    } catch (error) {
      // Whatever went wrong, it says nothing about the project.
      throw new AppError('billing_unavailable', { cause: error });
    }
  };
  const cache = createRefreshingCache<Project>({
    clock,
    entriesMax: cacheEntriesMax,
    refreshAfterMs: cacheRefreshAfterMs,
    load,
    staleMs,
    onRefreshFailed: (error) => log.warn({ err: error }, 'a project could not be read again; the known one stays'),
  });
  const now = (): Date => new Date(clock.now());
  const ofOrganization = (project: Project | null, organizationId: string): Project | null =>
    project?.organizationId === organizationId ? project : null;
  return {
    find(organizationId, projectId) {
      const project = cache.get(projectId);
      if (!(project instanceof Promise)) return ofOrganization(project, organizationId);
      return project.then((found) => ofOrganization(found, organizationId));
    },
    list: (view, paging) => listProjects(db, view, paging),
    create: (input, author) =>
      refusingTakenNames(input.name, () =>
        db.orm.transaction((tx) => insertProject({ tx, audit, now: now() }, input, author)),
      ),
    async patch(ref, patch, author) {
      const changed = await refusingTakenNames(patch.name ?? '', () =>
        db.orm.transaction((tx) => updateProject({ tx, audit, now: now() }, ref, patch, author)),
      );
      if (changed !== null) cache.update(changed.id, () => changed);
      return changed;
    },
  };
}
