import { and, asc, eq, inArray } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { ThrottleOptions } from '#base/redis/redis.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
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
import { memberships, organizations, projects, users } from './schema.ts';

export {
  readFirstOrganizationMs,
  type JoinOpening,
  type NewOrganization,
  type NewOwner,
  type Organization,
  type OrganizationMade,
  type OrganizationPage,
  type OrganizationStatus,
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
export { type AlertLetter, createLetters, type Letters } from './letters.ts';
export { createLowBalances } from './low-balance.ts';
export { roleWords } from './role-words.ts';
export type { ResetLink, ResetLinks } from './reset-link.ts';
export type { OwnOrganization, SignInRecord } from './sign-in.ts';
export type { ServiceAccount, ServiceAccounts, ServiceAccountsEnd } from './service-account.ts';
export type { Users } from './users.ts';
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
  type ProjectVisibility,
} from './project.ts';

/** Administrators of an organization, as recipients of its alerts. */
export interface AlertPeople {
  /** Kinds of alerts sent by email; null: the organization has not chosen. */
  readonly types: readonly string[] | null;
  /** UUIDs of administrators with an email address. */
  readonly userIds: readonly string[];
}

/** Recipient of an email. */
export interface AlertReader {
  readonly email: string;
  readonly organizationName: string;
}

/** True for real addresses: nobody reads the generated address of an owner without one. */
const isRead = ({ email }: { readonly email: string }): boolean => !email.endsWith('.invalid');

const administers = inArray(memberships.role, ['owner', 'admin']);

/** Returns null for an unknown or closed organization. */
async function readAlertPeople(db: Db, organizationId: string): Promise<AlertPeople | null> {
  const [organization] = await db.orm.select().from(organizations).where(eq(organizations.id, organizationId));
  if (organization === undefined || organization.status === 'closed') return null;
  const rows = await db.orm
    .select({ id: users.id, email: users.email })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .where(and(eq(memberships.organizationId, organizationId), administers))
    .orderBy(asc(users.id));
  return { types: organization.alertEmails, userIds: rows.filter(isRead).map(({ id }) => id) };
}

/** Reads one recipient from PostgreSQL; null for a user who no longer administers the organization. */
async function readAlertReader(db: Db, organizationId: string, userId: string): Promise<AlertReader | null> {
  const [row] = await db.orm
    .select({ email: users.email, organizationName: organizations.name })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .innerJoin(organizations, eq(organizations.id, memberships.organizationId))
    .where(and(eq(memberships.organizationId, organizationId), eq(users.id, userId), administers));
  return row !== undefined && isRead(row) ? row : null;
}

/** A platform administrator, with a place for their keys. Ids are UUIDs. */
export interface PlatformAdmin {
  readonly userId: string;
  readonly email: string;
  readonly organizationId: string;
  /** Oldest unarchived project of the organization, else the oldest. */
  readonly projectId: string;
}

/** Lists platform administrators, oldest first; each with their first organization. */
export async function listPlatformAdmins(tx: Transaction): Promise<readonly PlatformAdmin[]> {
  const rows = await tx
    .select({
      userId: users.id,
      email: users.email,
      organizationId: memberships.organizationId,
      projectId: projects.id,
    })
    .from(users)
    .innerJoin(memberships, eq(memberships.userId, users.id))
    .innerJoin(projects, eq(projects.organizationId, memberships.organizationId))
    .where(eq(users.platformRole, 'admin'))
    .orderBy(asc(users.id), asc(memberships.organizationId), asc(projects.archived), asc(projects.id));
  return [...Map.groupBy(rows, ({ userId }) => userId).values()].flatMap((own) => own.slice(0, 1));
}

/** Reads the addresses of platform administrators, and the hashes of their passwords if they have one. */
export async function readAdminSignIns(
  db: Db,
): Promise<readonly { readonly email: string; readonly passwordHash: string | null }[]> {
  return db.orm
    .select({ email: users.email, passwordHash: users.passwordHash })
    .from(users)
    .where(eq(users.platformRole, 'admin'));
}

/** Selects every organization, and every project with its organization. */
export const organizationIdsSql = 'select id from organizations';
export const projectOwnersSql = 'select id, organization_id from projects';

/** Tables left out of backups: a copy would restore links that were used or revoked since. */
export const linkTables = ['reset_links', 'invitations'] as const;

export interface Accounts {
  /**
   * Returns a project of an organization, or null if the organization has no project with this id. Known projects are
   * returned synchronously, and for `staleMs` while PostgreSQL is unavailable.
   * @throws AppError database_unavailable while PostgreSQL is unavailable: for unknown projects, and after `staleMs`
   *   for all
   */
  findProject(organizationId: string, projectId: string): Project | null | Promise<Project | null>;
  /** Makes every project be read again at its next use: PostgreSQL may have been restored to an earlier state. */
  forgetProjects(): void;
  /**
   * Creates an organization with its owner and the project `default`, then calls all joined functions, in a transaction
   * of the caller.
   */
  createOrganizationIn(tx: Transaction, input: NewOrganization, author: Author): Promise<OrganizationMade>;
  /** Registers a function to call for every new organization, after the functions registered before. */
  onOpening(join: JoinOpening): void;
  /** Registers a function to call when a password changes or a membership ends, in the transaction of the change. */
  onAccessEnd(join: JoinAccessEnd): void;
  /** Registers a function to call when service accounts are deleted or end with their project, in that transaction. */
  onServiceAccountsEnd(join: JoinServiceAccountsEnd): void;
  /** Lists organizations, newest first. */
  listOrganizations(limit: number, before: string | null): Promise<OrganizationPage>;
  /** True if there is no organization; call this in the transaction that would create the first. */
  isEmptyIn(tx: Transaction): Promise<boolean>;
  /**
   * Locks an organization's row until the transaction ends, so that counts of its parts stay true. Null if there is no
   * such organization.
   */
  lockOrganization(tx: Transaction, organizationId: string): Promise<Organization | null>;
  /** Reads an organization from PostgreSQL; null if there is none. */
  readOrganization(organizationId: string): Promise<Organization | null>;
  /** Returns the organization that runs the platform; null before it exists. */
  readPlatformOrganization(): Promise<Organization | null>;
  /** Returns the organizations that exist among these ids. */
  readOrganizations(organizationIds: readonly string[]): Promise<readonly Organization[]>;
  /** Returns the owner of an organization, or else an administrator; null if there is neither. */
  readOwner(organizationId: string): Promise<string | null>;
  /**
   * Changes an organization; the caller notifies the keys after the commit. Null if there is no such organization.
   * @throws AppError conflict for a closed organization, and for suspending the platform's own organization
   */
  changeOrganizationIn(
    tx: Transaction,
    organizationId: string,
    patch: OrganizationPatch,
    author: Author,
  ): Promise<Organization | null>;
  /**
   * Closes an organization permanently; a second call changes nothing. Null if there is no such organization.
   * @throws AppError conflict for the platform's own organization
   */
  closeOrganizationIn(tx: Transaction, organizationId: string, author: Author): Promise<Organization | null>;
  isPlatformAdmin(userId: string): Promise<boolean>;
  /** Reads a user's roles in an organization from PostgreSQL; the organization role is null for other users. */
  readRoles(organizationId: string, userId: string): Promise<UserRoles>;
  /** True if a user is in an organization, whose row the transaction has locked. */
  isMember(tx: Transaction, organizationId: string, userId: string): Promise<boolean>;
  /** Reads a user as a member of an organization from PostgreSQL; null if there is no such membership. */
  readMember(userId: string, organizationId: string): Promise<Member | null>;
  /** Returns the kinds of alerts sent by email, and their recipients. Null for an unknown or closed organization. */
  readAlertPeople(organizationId: string): Promise<AlertPeople | null>;
  /** Reads one recipient from PostgreSQL; null for a user who no longer administers the organization. */
  readAlertReader(organizationId: string, userId: string): Promise<AlertReader | null>;
  readonly users: Users;
  readonly serviceAccounts: ServiceAccounts;
  listProjects(view: ProjectView, paging: Paging<ProjectSort>): Promise<ProjectPage>;
  /** Returns the name of each project by its UUID, including archived projects. */
  projectNames(organizationId: string): Promise<ReadonlyMap<string, string>>;
  /** @throws AppError conflict if the organization has a project of that name, ignoring case */
  createProject(input: NewProject, author: Author): Promise<Project>;
  /** Like `createProject`, inside a transaction of the caller, which a conflict aborts. */
  createProjectIn(tx: Transaction, input: NewProject, author: Author): Promise<Project>;
  /** Returns the project that was imported from a group of another program; null if there is none. */
  findImportedProjectIn(tx: Transaction, organizationId: string, importedFrom: string): Promise<Project | null>;
  /** Returns null if there is no such project. @throws AppError conflict */
  patchProject(ref: ProjectRef, patch: ProjectPatch, author: Author): Promise<Project | null>;
}

export interface AccountsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  /** Most service accounts per project; 20 if absent. */
  readonly maxServiceAccounts?: number;
  /** Store that counts wrong passwords; in this process if absent. */
  readonly guesses?: Pick<ThrottleOptions, 'store' | 'prefix'>;
  /** Milliseconds for which known projects are returned while PostgreSQL is unavailable; 300,000 if absent. */
  readonly staleMs?: number;
}

/** Manages organizations, their users and their projects. */
export function createAccounts(options: AccountsOptions): Accounts {
  const { db, clock, audit, guesses = { store: null, prefix: '' }, maxServiceAccounts = 20 } = options;
  const joining: JoinOpening[] = [];
  const ending: JoinAccessEnd[] = [];
  const accountsEnding: JoinServiceAccountsEnd[] = [];
  const inside = (tx: Transaction) => ({ tx, audit, now: new Date(clock.now()) });
  const end: JoinServiceAccountsEnd = async (tx, ended) => {
    const notifications: (() => Promise<void>)[] = [];
    for (const join of accountsEnding) notifications.push(await join(tx, ended));
    return async () => void (await Promise.all(notifications.map((notify) => notify())));
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
    projectNames: projects.names,
    createProject: projects.create,
    createProjectIn: projects.createIn,
    findImportedProjectIn: projects.findImportedIn,
    patchProject: projects.patch,
  };
}
