import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { ThrottleOptions } from '#base/throttle.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { type AlertPeople, type AlertReader, readAlertPeople, readAlertReader } from './alert-people.ts';
import { type Member, readMember } from './member.ts';
import type { JoinAccessEnd } from './access-end.ts';
import { changeOrganization, closeOrganization, type OrganizationPatch } from './organization-change.ts';
import {
  countOrganizations,
  insertOrganization,
  type JoinOpening,
  listOrganizations,
  lockOrganization,
  type NewOrganization,
  type Organization,
  type OrganizationMade,
  type OrganizationPage,
  readOrganizations,
  readOwner,
  readPlatformOrganization,
} from './organization.ts';
export { readFirstOrganizationMs } from './organization.ts';
import type {
  NewProject,
  Project,
  ProjectPage,
  ProjectPatch,
  ProjectRef,
  ProjectSort,
  ProjectView,
} from './project.ts';
import { createProjects } from './projects.ts';
import type { Paging } from './paging.ts';
import { createServiceAccounts, type JoinServiceAccountsEnd, type ServiceAccounts } from './service-account.ts';
import { isMember, readPlatformRole, readUserRoles, type UserRoles } from './user.ts';
import { createUsers, type Users } from './users.ts';

export { listPlatformAdmins, type PlatformAdmin, readAdminSignIns } from './platform-admin.ts';

export type {
  JoinOpening,
  NewOrganization,
  NewOwner,
  Organization,
  OrganizationMade,
  OrganizationPage,
  OrganizationStatus,
} from './organization.ts';
export type { OrganizationPatch } from './organization-change.ts';
export type { DefaultLimits } from './organization-limits.ts';
export { type Action, type Extent, extentOf, isOfPlatform, rolesGivenBy } from './roles.ts';
export { emailProblem } from './email.ts';
export { type User, userSorts, type UserView } from './user.ts';
export type { UserEditor } from './user-editor.ts';
export type { UserRemoval } from './user-changes.ts';
export type { AccessEnd, JoinAccessEnd } from './access-end.ts';
export type { Identities, Identity, NewPeople } from './identity.ts';
export type { LinkedIdentity } from './linked-identities.ts';
export type { Invitation, InvitationPage, Invitations, MadeInvitation } from './invitation.ts';
export type { AlertPeople, AlertReader } from './alert-people.ts';
export { type AlertLetter, createLetters, type Letters } from './letters.ts';
export { createLowBalances } from './low-balance.ts';
export { roleWords } from './role-words.ts';
export type { ResetLink, ResetLinks } from './reset-link.ts';
export type { OwnOrganization, SignInRecord } from './sign-in.ts';
export type { ServiceAccount, ServiceAccounts, ServiceAccountsEnd } from './service-account.ts';
export type { Users } from './users.ts';
export { organizationIdsSql, projectOwnersSql } from './known-ids.ts';
export type { Member } from './member.ts';
export { decoyHash, hashPassword, passwordCharacters, passwordProblem, verifyPassword } from './password.ts';
export type { OrganizationRole, PlatformRole, Principal, Scope } from './principal.ts';
export {
  isProjectSeen,
  type NewProject,
  type Project,
  type ProjectPage,
  type ProjectPatch,
  type ProjectRef,
  projectSorts,
  type ProjectView,
  projectVisibilities,
  type ProjectVisibility,
} from './project.ts';

/** Tables that go into no backup: a copy would bring back links that were used or revoked since. */
export const linkTables = ['reset_links', 'invitations'] as const;

export interface Accounts {
  /**
   * A project of an organization, null when that organization has none of this id. Answers at once when the project
   * is known; known ones keep their answer while Postgres is away, for `staleMs`.
   * @throws AppError database_unavailable for a project that is not known yet while Postgres is away, and then for all
   */
  findProject(organizationId: string, projectId: string): Project | null | Promise<Project | null>;
  /** Has every project read again when it is found next: PostgreSQL's history may have gone back. */
  forgetProjects(): void;
  /**
   * An organization with its owner and the project `default`, then all that joins its opening, in a transaction of the
   * caller.
   */
  createOrganizationIn(tx: Transaction, input: NewOrganization, author: Author): Promise<OrganizationMade>;
  /** From now on `join` is called for every organization that is made, after those that joined before. */
  onOpening(join: JoinOpening): void;
  /** From now on `join` is called where a password was changed or a membership ended, in that transaction. */
  onAccessEnd(join: JoinAccessEnd): void;
  /** From now on `join` is called where service accounts are deleted, or end with their project, in that transaction. */
  onServiceAccountsEnd(join: JoinServiceAccountsEnd): void;
  /** Newest first. */
  listOrganizations(limit: number, before: string | null): Promise<OrganizationPage>;
  /** Whether there is no organization; to be asked in the transaction that would make the first. */
  isEmptyIn(tx: Transaction): Promise<boolean>;
  /**
   * Locks an organization's row until the transaction ends, so that counts of what it has stay true. Null when there
   * is none.
   */
  lockOrganization(tx: Transaction, organizationId: string): Promise<Organization | null>;
  /** As PostgreSQL has it; null when there is none. */
  readOrganization(organizationId: string): Promise<Organization | null>;
  /** The one that runs the platform; null before there is any. */
  readPlatformOrganization(): Promise<Organization | null>;
  /** Those of the ids that there are. */
  readOrganizations(organizationIds: readonly string[]): Promise<readonly Organization[]>;
  /** The user who owns an organization; null when there is no such organization. */
  readOwner(organizationId: string): Promise<string | null>;
  /**
   * Null when there is no such organization. To be told to keys once it is committed.
   * @throws AppError conflict for a closed one, and where the platform's own would be suspended
   */
  changeOrganizationIn(
    tx: Transaction,
    organizationId: string,
    patch: OrganizationPatch,
    author: Author,
  ): Promise<Organization | null>;
  /**
   * Closes it for good; a second call changes nothing. Null when there is no such organization.
   * @throws AppError conflict for the platform's own
   */
  closeOrganizationIn(tx: Transaction, organizationId: string, author: Author): Promise<Organization | null>;
  isPlatformAdmin(userId: string): Promise<boolean>;
  /** What a user may do in an organization, as PostgreSQL has it now; without a role for who is not of it. */
  readRoles(organizationId: string, userId: string): Promise<UserRoles>;
  /** Whether a user is in an organization, whose row the transaction holds. */
  isMember(tx: Transaction, organizationId: string, userId: string): Promise<boolean>;
  /** A user as somebody of an organization, as PostgreSQL has it now; null where there is no such membership. */
  readMember(userId: string, organizationId: string): Promise<Member | null>;
  /** Who is told of alerts by mail, and of which. Null when there is no such organization, and for a closed one. */
  readAlertPeople(organizationId: string): Promise<AlertPeople | null>;
  /** One of those, as PostgreSQL has it now; null for who does not administer the organization any more. */
  readAlertReader(organizationId: string, userId: string): Promise<AlertReader | null>;
  readonly users: Users;
  readonly serviceAccounts: ServiceAccounts;
  listProjects(view: ProjectView, paging: Paging<ProjectSort>): Promise<ProjectPage>;
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
  /** How many service accounts a project may have; 20 when absent. */
  readonly maxServiceAccounts?: number;
  /** Where wrong passwords are counted; in this process where absent. */
  readonly guesses?: Pick<ThrottleOptions, 'store' | 'prefix'>;
  /** How long projects that are known keep their answer while Postgres is away; 300,000 when absent. */
  readonly staleMs?: number;
}

/** Organizations, their users and their projects. */
export function createAccounts(options: AccountsOptions): Accounts {
  const { db, clock, audit, guesses = { store: null, prefix: '' }, maxServiceAccounts = 20 } = options;
  const joining: JoinOpening[] = [];
  const ending: JoinAccessEnd[] = [];
  const accountsEnding: JoinServiceAccountsEnd[] = [];
  const inside = (tx: Transaction) => ({ tx, audit, now: new Date(clock.now()) });
  const end: JoinServiceAccountsEnd = async (tx, ended) => {
    const told: (() => Promise<void>)[] = [];
    for (const join of accountsEnding) told.push(await join(tx, ended));
    return async () => void (await Promise.all(told.map((tell) => tell())));
  };
  const projects = createProjects({ ...options, end });
  return {
    findProject: projects.find,
    forgetProjects: projects.forget,
    async createOrganizationIn(tx, input, author) {
      const made = await insertOrganization(inside(tx), input, author);
      for (const join of joining) await join(tx, { ...made, isFirst: input.isFirst, author });
      return made;
    },
    onOpening(join) {
      joining.push(join);
    },
    onAccessEnd(join) {
      ending.push(join);
    },
    onServiceAccountsEnd(join) {
      accountsEnding.push(join);
    },
    listOrganizations: (limit, before) => listOrganizations(db, limit, before),
    isEmptyIn: async (tx) => (await countOrganizations(tx)) === 0,
    lockOrganization,
    readOrganization: async (organizationId) => (await readOrganizations(db, [organizationId]))[0] ?? null,
    readPlatformOrganization: () => readPlatformOrganization(db),
    readOrganizations: (organizationIds) => readOrganizations(db, organizationIds),
    readOwner: (organizationId) => readOwner(db, organizationId),
    changeOrganizationIn: (tx, id, patch, author) => changeOrganization(inside(tx), id, patch, author),
    closeOrganizationIn: (tx, id, author) => closeOrganization(inside(tx), id, author),
    readMember: (userId, organizationId) => readMember(db, userId, organizationId),
    readAlertPeople: (organizationId) => readAlertPeople(db, organizationId),
    readAlertReader: (organizationId, userId) => readAlertReader(db, organizationId, userId),
    isPlatformAdmin: async (userId) => (await readPlatformRole(db, userId)) === 'admin',
    readRoles: (organizationId, userId) => readUserRoles(db.orm, organizationId, userId),
    isMember,
    users: createUsers({
      ...options,
      guesses,
      async endAccess(tx, end) {
        for (const join of ending) await join(tx, end);
      },
    }),
    serviceAccounts: createServiceAccounts({ db, inside, maxOfProject: maxServiceAccounts, end }),
    listProjects: projects.list,
    createProject: projects.create,
    patchProject: projects.patch,
  };
}
