import type { OrganizationRole } from './principal.ts';

/** Display names of roles, on all pages and in emails. */
export const roleWords: Readonly<Record<OrganizationRole, string>> = {
  owner: 'Owner',
  admin: 'Administrator',
  member: 'Member',
};
