import { formatId, uuidv7 } from '#base/id.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { projects } from './schema.ts';

/** Visibility of a project: only to its members, or to everybody in the organization. */
export const projectVisibilities = ['private', 'public'] as const;
export type ProjectVisibility = (typeof projectVisibilities)[number];

/** Part of an organization that requests and keys belong to. Ids are UUIDs. */
export interface Project {
  readonly id: string;
  readonly organizationId: string;
  readonly name: string;
  readonly description: string;
  readonly visibility: ProjectVisibility;
  /** True if the project accepts no new requests and no new keys. */
  readonly archived: boolean;
  /** Name of the group of another program that the project was imported from; null for other projects. */
  readonly importedFrom: string | null;
  readonly createdAtMs: number;
}

export interface NewProject {
  readonly organizationId: string;
  readonly name: string;
  readonly description: string;
  readonly visibility: ProjectVisibility;
  readonly importedFrom?: string;
}

export interface ProjectPatch {
  readonly name?: string | undefined;
  readonly description?: string | undefined;
  readonly visibility?: ProjectVisibility | undefined;
  readonly archived?: boolean | undefined;
}

/**
 * Projects of an organization that somebody sees: all if `ownId` is null, otherwise that project and the public ones.
 */
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

/** A project as a caller names it: a project of another organization is not found. */
export interface ProjectRef {
  readonly organizationId: string;
  readonly projectId: string;
}

export type ProjectRow = typeof projects.$inferSelect;

export function toProject(row: ProjectRow): Project {
  const { createdAt, ...fields } = row;
  return { ...fields, createdAtMs: createdAt.getTime() };
}

/** Returns the fields of a project that the audit log stores. */
export function projectAuditView(project: ProjectRow): AuditView {
  const { name, description, visibility, archived } = project;
  return { name, description, visibility, archived };
}

export async function insertProject(context: ChangeContext, input: NewProject, author: Author): Promise<Project> {
  const { tx, audit, now } = context;
  const row: ProjectRow = {
    id: uuidv7(now.getTime()),
    importedFrom: null,
    ...input,
    archived: false,
    createdAt: now,
  };
  await tx.insert(projects).values(row);
  await audit.record(tx, {
    organizationId: row.organizationId,
    author,
    action: 'project.created',
    targetType: 'project',
    targetId: formatId('proj', row.id),
    before: null,
    after: projectAuditView(row),
  });
  return toProject(row);
}
