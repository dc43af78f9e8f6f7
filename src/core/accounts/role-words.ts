import type { OrganizationRole } from './principal.ts';

/** What roles are called where people read of them: on all pages, and in letters. */
export const roleWords: Readonly<Record<OrganizationRole, string>> = {
  owner: 'Owner',
  admin: 'Administrator',
  member: 'Member',
};
