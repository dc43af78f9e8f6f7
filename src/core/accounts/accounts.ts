import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { Actor, Audit } from '#core/audit/audit.ts';
import type { Organization } from './organization.ts';
import type { Project, ProjectVisibility } from './project.ts';

export { type Project, projectVisibilities, type ProjectVisibility } from './project.ts';
export type { Organization } from './organization.ts';
export { hashPassword, verifyPassword } from './password.ts';

export interface NewOrganization {
  readonly name: string;
  /** Null makes an owner who cannot sign in and administers nothing beyond the organization. */
  readonly owner: NewOwner | null;
}

export interface NewOwner {
  readonly email: string;
  readonly name: string;
  /** Of `hashPassword`; null for a user who cannot sign in. */
  readonly passwordHash: string | null;
  readonly platformRole: 'admin' | 'user';
}

export interface OrganizationMade {
  readonly organization: Organization;
  readonly ownerId: string;
  /** The project `default`. */
  readonly project: Project;
}

export interface OrganizationPage {
  readonly organizations: readonly Organization[];
  readonly more: boolean;
}

export interface NewProject {
  readonly name: string;
  readonly description: string;
  readonly visibility: ProjectVisibility;
}

export type ProjectPatch = Partial<NewProject & { readonly archived: boolean }>;

export interface ProjectPage {
  readonly projects: readonly Project[];
  readonly total: number;
}

export interface Accounts {
  /**
   * A project of an organization, null when that organization has none of this id. Answers at once when the project
   * is known; known ones keep their answer while Postgres is away.
   * @throws AppError billing_unavailable for a project that is not known yet while Postgres is away
   */
  findProject(organizationId: string, projectId: string): Project | null | Promise<Project | null>;
  /** An organization with its owner and the project `default`, in a transaction of the caller. */
  createOrganizationIn(tx: Transaction, input: NewOrganization, actor: Actor): Promise<OrganizationMade>;
  /** Newest first. */
  listOrganizations(limit: number, before: string | null): Promise<OrganizationPage>;
  /** Whether there is any organization; asked in the transaction that would make the first. */
  isEmptyIn(tx: Transaction): Promise<boolean>;
  /** Holds an organization's row until the transaction ends, so that what is counted stays true. */
  lockOrganization(tx: Transaction, organizationId: string): Promise<void>;
  isPlatformAdmin(userId: string): Promise<boolean>;
  /** Oldest first; `page` counts from 1. */
  listProjects(organizationId: string, page: number, limit: number): Promise<ProjectPage>;
  /** @throws AppError conflict when the organization has a project of that name, in any case */
  createProject(organizationId: string, input: NewProject, actor: Actor): Promise<Project>;
  /** Null when there is no such project. @throws AppError conflict */
  patchProject(organizationId: string, projectId: string, patch: ProjectPatch, actor: Actor): Promise<Project | null>;
}

export interface AccountsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
}
