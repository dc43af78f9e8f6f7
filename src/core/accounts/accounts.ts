import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import {
  countOrganizations,
  insertOrganization,
  type JoinOpening,
  listOrganizations,
  lockOrganization,
  type NewOrganization,
  type OrganizationMade,
  type OrganizationPage,
} from './organization.ts';
import {
  createProjects,
  type NewProject,
  type Project,
  type ProjectPage,
  type ProjectPatch,
  type ProjectRef,
} from './project.ts';
import { readPlatformRole } from './user.ts';

export type {
  JoinOpening,
  NewOrganization,
  NewOwner,
  Organization,
  OrganizationMade,
  OrganizationPage,
} from './organization.ts';
export { organizationIdsSql, projectOwnersSql } from './known-ids.ts';
export { hashPassword, verifyPassword } from './password.ts';
export type { OrganizationRole, PlatformRole, Principal, Scope } from './principal.ts';
export {
  type NewProject,
  type Project,
  type ProjectPage,
  type ProjectPatch,
  type ProjectRef,
  projectVisibilities,
  type ProjectVisibility,
} from './project.ts';

export interface Accounts {
  /**
   * A project of an organization, null when that organization has none of this id. Answers at once when the project
   * is known; known ones keep their answer while Postgres is away, for `staleMs`.
   * @throws AppError billing_unavailable for a project that is not known yet while Postgres is away, and then for all
   */
  findProject(organizationId: string, projectId: string): Project | null | Promise<Project | null>;
  /**
   * An organization with its owner and the project `default`, then all that joins its opening, in a transaction of the
   * caller.
   */
  createOrganizationIn(tx: Transaction, input: NewOrganization, author: Author): Promise<OrganizationMade>;
  /** From now on `join` is called for every organization that is made, after those that joined before. */
  onOpening(join: JoinOpening): void;
  /** Newest first. */
  listOrganizations(limit: number, before: string | null): Promise<OrganizationPage>;
  /** Whether there is no organization; to be asked in the transaction that would make the first. */
  isEmptyIn(tx: Transaction): Promise<boolean>;
  /** Locks an organization's row until the transaction ends, so that counts of what it has stay true. */
  lockOrganization(tx: Transaction, organizationId: string): Promise<void>;
  isPlatformAdmin(userId: string): Promise<boolean>;
  /** Oldest first; `page` counts from 1. */
  listProjects(organizationId: string, page: number, limit: number): Promise<ProjectPage>;
  /** @throws AppError conflict when the organization has a project of that name, in any case */
  createProject(input: NewProject, author: Author): Promise<Project>;
  /** Null when there is no such project. @throws AppError conflict */
  patchProject(ref: ProjectRef, patch: ProjectPatch, author: Author): Promise<Project | null>;
}

export interface AccountsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  /** How long projects that are known keep their answer while Postgres is away; 300,000 when absent. */
  readonly staleMs?: number;
}

/** Organizations, their users and their projects. */
export function createAccounts(options: AccountsOptions): Accounts {
  const { db, clock, audit } = options;
  const projects = createProjects(options);
  const joining: JoinOpening[] = [];
  return {
    findProject: projects.find,
    async createOrganizationIn(tx, input, author) {
      const made = await insertOrganization({ tx, audit, now: new Date(clock.now()) }, input, author);
      for (const join of joining) await join(tx, { ...made, isFirst: input.isFirst, author });
      return made;
    },
    onOpening(join) {
      joining.push(join);
    },
    listOrganizations: (limit, before) => listOrganizations(db, limit, before),
    isEmptyIn: async (tx) => (await countOrganizations(tx)) === 0,
    lockOrganization,
    isPlatformAdmin: async (userId) => (await readPlatformRole(db, userId)) === 'admin',
    listProjects: projects.list,
    createProject: projects.create,
    patchProject: projects.patch,
  };
}
