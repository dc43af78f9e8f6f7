import type { OrganizationMade } from '#core/accounts/accounts.ts';
import type { KeyLimits, KeyToggles } from './api-key.ts';
import type { NewKey } from './key-rows.ts';

/** Limits of a key created without any, in an organization without defaults of its own. */
export const defaultKeyLimits: KeyLimits = Object.freeze({
  requestsPerMinute: 60,
  maxConcurrency: 10,
  tokensPerMinute: null,
  monthlyTokenLimit: null,
});

export const defaultKeyToggles: KeyToggles = Object.freeze({
  storeRequests: false,
  cacheResponses: false,
  confined: null,
});

/** Returns the management key that a new organization starts with; it acts for the owner. */
export function firstKeyOf({ organization, project, ownerId }: OrganizationMade): NewKey {
  return {
    organizationId: organization.id,
    projectId: project.id,
    userId: ownerId,
    name: 'Management key',
    scope: 'management',
    expires: null,
    limits: {},
    toggles: defaultKeyToggles,
    models: null,
  };
}
