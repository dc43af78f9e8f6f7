import { organizationIdsSql, projectOwnersSql } from '#core/accounts/accounts.ts';
import { keyOwnersSql } from '#core/keys/keys.ts';
import type { KnownIds } from '#core/metering/metering.ts';

/** Ids by which usage may be stored. */
export const knownIds: KnownIds = {
  organizations: organizationIdsSql,
  keys: keyOwnersSql,
  projects: projectOwnersSql,
};
