import type { AuditView } from '#core/audit/audit.ts';
import type { projects } from './schema.ts';

/** Who may see a project: its members alone, or everybody in the organization. */
export const projectVisibilities = ['private', 'organization'] as const;
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

export function toProject(row: typeof projects.$inferSelect): Project {
  return {
    id: row.id,
    organizationId: row.organizationId,
    name: row.name,
    description: row.description,
    visibility: row.visibility,
    archived: row.archived,
    createdAtMs: row.createdAt.getTime(),
  };
}

/** What the audit keeps of a project. */
export function projectAuditView(project: Project): AuditView {
  return {
    name: project.name,
    description: project.description,
    visibility: project.visibility,
    archived: project.archived,
  };
}
