import type { OrganizationMade } from '#core/accounts/accounts.ts';
import type { KeyLimits, KeyToggles } from './api-key.ts';
import type { NewKey } from './key-rows.ts';

/** The limits of a key that was made without any, in an organization that has no defaults of its own. */
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

/** The management key that an organization begins with; it acts for the owner. */
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
