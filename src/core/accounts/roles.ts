import type { OrganizationRole, Principal } from './principal.ts';

/**
 * Who may do what. One table for keys and for people: a key of scope `inference` acts as member, one of scope
 * `management` as admin, and that of a platform administrator as platform admin; a key with `confined: true` acts as
 * member, whatever its scope. People who are signed in have the role of their membership, and platform administrators
 * theirs.
 */
export type Role = 'member' | 'admin' | 'owner' | 'platform_admin';

/** Of what somebody may do it: what is his own, all of his organization, or of any. */
export type Extent = 'none' | 'own' | 'organization' | 'any';

type Row = Readonly<Record<Role, Extent>>;

const row = (member: Extent, admin: Extent, owner: Extent, platformAdmin: Extent): Row => ({
  member,
  admin,
  owner,
  platform_admin: platformAdmin,
});

const table = {
  /** Records of requests, and their sums. */
  'usage.read': row('own', 'organization', 'organization', 'any'),
  /** What requests asked and got, where it is stored: read, deleted. */
  'usage.contents': row('own', 'organization', 'organization', 'any'),
  /** Files and batches: sent, made, read, deleted. */
  files: row('own', 'organization', 'organization', 'any'),
  /** Balance and ledger. */
  'wallet.read': row('organization', 'organization', 'organization', 'any'),
  'wallet.statements': row('none', 'organization', 'organization', 'any'),
  /** Credits and adjustments. */
  'wallet.book': row('none', 'none', 'none', 'any'),
  'budgets.read': row('own', 'organization', 'organization', 'any'),
  budgets: row('none', 'organization', 'organization', 'any'),
  keys: row('own', 'organization', 'organization', 'any'),
  /** His own is that of the key, and those that are public in the organization. */
  'projects.read': row('own', 'organization', 'organization', 'any'),
  projects: row('none', 'organization', 'organization', 'any'),
  /** Of projects: listing, making, renaming and deleting them. */
  service_accounts: row('none', 'organization', 'organization', 'any'),
  /** Where events are sent to, and what became of them: reading and changing. */
  webhooks: row('none', 'organization', 'organization', 'any'),
  /** Reading and changing; of himself a member. */
  users: row('own', 'organization', 'organization', 'any'),
  /** Making and removing. */
  'users.manage': row('none', 'organization', 'organization', 'any'),
  'audit.read': row('none', 'organization', 'organization', 'any'),
  'organization.read': row('none', 'organization', 'organization', 'any'),
  'organization.rename': row('none', 'organization', 'organization', 'any'),
  /** Opening, suspending and closing them, and what their keys may come to. */
  organizations: row('none', 'none', 'none', 'any'),
  engines: row('none', 'none', 'none', 'any'),
  'clusters.read': row('organization', 'organization', 'organization', 'any'),
  /** Making, changing and deleting them, and telling what is allocated. */
  clusters: row('none', 'none', 'none', 'any'),
  'stacks.read': row('organization', 'organization', 'organization', 'any'),
  stacks: row('none', 'organization', 'organization', 'any'),
  'runs.read': row('organization', 'organization', 'organization', 'any'),
  /** Applying, canceling, destroying. */
  runs: row('none', 'organization', 'organization', 'any'),
  /** Dropping what is known of what a stack has made. */
  'runs.forget': row('none', 'none', 'none', 'any'),
  'costs.read': row('organization', 'organization', 'organization', 'any'),
  /** In which currency costs are shown. */
  'costs.currency': row('none', 'organization', 'organization', 'any'),
  'rates.read': row('none', 'organization', 'organization', 'any'),
  rates: row('none', 'none', 'none', 'any'),
  margins: row('none', 'none', 'none', 'any'),
  /** Quarantine and reconciliation, of all organizations together. */
  books: row('none', 'none', 'none', 'any'),
} as const satisfies Readonly<Record<string, Row>>;

export type Action = keyof typeof table;

/** A scope bounds what its holder may do, whatever the role. */
export function roleOf({ scope, platformRole, organizationRole }: Principal): Role {
  if (scope === 'inference') return 'member';
  return platformRole === 'admin' ? 'platform_admin' : (organizationRole ?? 'admin');
}

export function extentOf(principal: Principal, action: Action): Extent {
  return table[action][roleOf(principal)];
}

/** Whether nobody but platform administrators may do it, in whatever organization. */
export function isOfPlatform(action: Action): boolean {
  return table[action].owner === 'none';
}

const given: Readonly<Record<Role, readonly OrganizationRole[]>> = {
  member: [],
  admin: ['admin', 'member'],
  owner: ['owner', 'admin', 'member'],
  platform_admin: ['owner', 'admin', 'member'],
};

/** The roles that somebody of a role may give. */
export function rolesGivenAs(role: Role): readonly OrganizationRole[] {
  return given[role];
}

/** The roles that somebody may give and take, and whose holders he may change and remove. */
export function rolesGivenBy(principal: Principal): readonly OrganizationRole[] {
  return given[roleOf(principal)];
}
