import type { Actor } from '#core/audit/audit.ts';
import type { Project } from './project.ts';

/** Rights beyond the organization: an admin opens organizations, posts credits and runs engines. */
export type PlatformRole = 'admin' | 'user';
export type OrganizationRole = 'owner' | 'admin' | 'member';
/** `inference` may use models and read its own data; `management` may also change things. */
export type Scope = 'inference' | 'management';

/**
 * The actor of a request and their rights. Permission checks read role and scope; the kind of actor matters only for
 * what exists per key or per user.
 */
export interface Principal<A extends Actor = Actor> {
  readonly actor: A;
  readonly organizationId: string;
  /** A project of the principal's organization. */
  readonly project: Project;
  readonly platformRole: PlatformRole;
  /** Null if unknown: a key does not carry the role of its user. */
  readonly organizationRole: OrganizationRole | null;
  readonly scope: Scope;
  /** False if the organization reserves runs to admins. Absent for keys, which have no role of a member. */
  readonly membersMayApply?: boolean;
}
