import type { KeyLimits, KeyToggles } from './api-key.ts';

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
  unservedTools: null,
  endUserFromHeader: false,
  confined: null,
});
