import { organizationIdsSql, projectOwnersSql } from '#core/accounts/accounts.ts';
import { keyOwnersSql } from '#core/keys/keys.ts';
import type { KnownIds } from '#core/metering/metering.ts';

/** Whose ids usage may be kept by. */
export const knownIds: KnownIds = {
  organizations: organizationIdsSql,
  keys: keyOwnersSql,
  projects: projectOwnersSql,
};
