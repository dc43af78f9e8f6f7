import { organizationIdsSql, projectOwnersSql } from '#core/accounts/accounts.ts';
import { keyOwnersSql } from '#core/keys/keys.ts';
import type { KnownIds } from '#core/metering/metering.ts';

/** Queries for the ids under which usage may be recorded. */
export const knownIds: KnownIds = {
  organizations: organizationIdsSql,
  keys: keyOwnersSql,
  projects: projectOwnersSql,
};
