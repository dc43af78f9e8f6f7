import type { Actor } from '#core/audit/audit.ts';
import type { Project } from './project.ts';

/** What somebody may do beyond the organization: an admin opens organizations, books credits and runs engines. */
export type PlatformRole = 'admin' | 'user';
export type OrganizationRole = 'owner' | 'admin' | 'member';
/** `inference` may use models and read what belongs to it; `management` may also change things. */
export type Scope = 'inference' | 'management';

/**
 * On whose behalf something is done, and what may be done. Who asks what a principal may do reads role and scope; which
 * kind of actor it is matters only to what exists per key or per user.
 */
export interface Principal<A extends Actor = Actor> {
  readonly actor: A;
  readonly organizationId: string;
  /** Of that organization. */
  readonly project: Project;
  readonly platformRole: PlatformRole;
  /** Null where it is not known: a key carries no role of its user's. */
  readonly organizationRole: OrganizationRole | null;
  readonly scope: Scope;
}
