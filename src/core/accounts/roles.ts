import type { OrganizationRole, Principal } from './principal.ts';

/**
 * Roles of the permission table, which is the same for keys and people. A key of scope `management` acts as admin, or as
 * platform admin if its user is one. Other keys, and keys with `confined: true` whatever their scope, have the role
 * `inference`: the rights of a member, except what a program that calls models must not do. Signed-in people have the
 * role of their membership; platform administrators act as platform admin.
 */
export type Role = 'inference' | 'member' | 'admin' | 'owner' | 'platform_admin';

/** Extent of a permission: only one's own, everything in the organization, or any organization. */
export type Extent = 'none' | 'own' | 'organization' | 'any';

type Row = Readonly<Record<Role, Extent>>;

const row = (member: Extent, admin: Extent, owner: Extent, platformAdmin: Extent): Row => ({
  inference: member,
  member,
  admin,
  owner,
  platform_admin: platformAdmin,
});

const table = {
  /** Records of requests, and their sums. */
  'usage.read': row('own', 'organization', 'organization', 'any'),
  /** Stored contents of requests and answers: reading and deleting. */
  'usage.contents': row('own', 'organization', 'organization', 'any'),
  /** Files and batches: uploading, creating, reading and deleting. */
  files: row('own', 'organization', 'organization', 'any'),
  /** Balance and ledger. */
  'wallet.read': row('organization', 'organization', 'organization', 'any'),
  'wallet.statements': row('none', 'organization', 'organization', 'any'),
  /** Credits and adjustments. */
  'wallet.book': row('none', 'none', 'none', 'any'),
  'budgets.read': row('own', 'organization', 'organization', 'any'),
  budgets: row('none', 'organization', 'organization', 'any'),
  keys: row('own', 'organization', 'organization', 'any'),
  /** A member's own extent: the key's project, and the organization's public projects. */
  'projects.read': row('own', 'organization', 'organization', 'any'),
  projects: row('none', 'organization', 'organization', 'any'),
  /** Service accounts of projects: listing, creating, renaming and deleting. */
  service_accounts: row('none', 'organization', 'organization', 'any'),
  /** Webhook endpoints and their deliveries: reading and changing. */
  webhooks: row('none', 'organization', 'organization', 'any'),
  /** Reading and changing users; a member only themselves. */
  users: row('own', 'organization', 'organization', 'any'),
  /** Creating and removing users. */
  'users.manage': row('none', 'organization', 'organization', 'any'),
  'audit.read': row('none', 'organization', 'organization', 'any'),
  'organization.read': row('none', 'organization', 'organization', 'any'),
  'organization.rename': row('none', 'organization', 'organization', 'any'),
  /** Opening, suspending and closing organizations, changing the limits of their keys, and imports. */
  organizations: row('none', 'none', 'none', 'any'),
  engines: row('none', 'none', 'none', 'any'),
  'clusters.read': row('organization', 'organization', 'organization', 'any'),
  /** Creating, changing and archiving clusters, and reporting allocated nodes. */
  clusters: row('none', 'none', 'none', 'any'),
  'stacks.read': row('organization', 'organization', 'organization', 'any'),
  /** Uploading stacks; changing and deleting one's own private stacks. */
  stacks: { ...row('own', 'own', 'own', 'any'), inference: 'none' },
  'runs.read': row('organization', 'organization', 'organization', 'any'),
  /** Applying, canceling and destroying runs. An organization may reserve them to admins: `members_may_apply`. */
  runs: { ...row('organization', 'organization', 'organization', 'any'), inference: 'none' },
  /** Deleting the record of a stack's resources. */
  'runs.forget': row('none', 'none', 'none', 'any'),
  'costs.read': row('organization', 'organization', 'organization', 'any'),
  /** Changing the currency in which costs are shown. */
  'costs.currency': row('none', 'organization', 'organization', 'any'),
  'rates.read': row('none', 'organization', 'organization', 'any'),
  rates: row('none', 'none', 'none', 'any'),
  margins: row('none', 'none', 'none', 'any'),
  /** Quarantine and reconciliation, for all organizations together. */
  books: row('none', 'none', 'none', 'any'),
} as const satisfies Readonly<Record<string, Row>>;

export type Action = keyof typeof table;

/** Returns the role of a principal: the scope bounds its holder's rights, whatever the role. */
export function roleOf({ scope, platformRole, organizationRole }: Principal): Role {
  if (scope === 'inference') return 'inference';
  return platformRole === 'admin' ? 'platform_admin' : (organizationRole ?? 'admin');
}

export function extentOf(principal: Principal, action: Action): Extent {
  const role = roleOf(principal);
  if (action === 'runs' && role === 'member' && principal.membersMayApply === false) return 'none';
  return table[action][role];
}

/** True if only platform administrators may do the action, in any organization. */
export function isOfPlatform(action: Action): boolean {
  return table[action].owner === 'none';
}

const given: Readonly<Record<Role, readonly OrganizationRole[]>> = {
  inference: [],
  member: [],
  admin: ['admin', 'member'],
  owner: ['owner', 'admin', 'member'],
  platform_admin: ['owner', 'admin', 'member'],
};

/** Returns the roles that the holder of a role may give. */
export function rolesGivenAs(role: Role): readonly OrganizationRole[] {
  return given[role];
}

/** Returns the roles that a principal may give and take, and whose holders it may change and remove. */
export function rolesGivenBy(principal: Principal): readonly OrganizationRole[] {
  return given[roleOf(principal)];
}
