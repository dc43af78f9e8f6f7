/** Null is unlimited; numbers are 1 or more. */
export interface RateLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly requestsPerDay: number | null;
}

/** Whose limits: ids are UUIDs, a model is named by its catalog id. */
export interface RateLimitRef {
  readonly organizationId: string;
  readonly projectId: string;
  readonly model: string;
}

/** What a project may ask of a model. */
export interface RateLimit extends RateLimitRef {
  /** UUID. */
  readonly id: string;
  readonly limits: RateLimits;
}

export const noRateLimits: RateLimits = Object.freeze({
  requestsPerMinute: null,
  tokensPerMinute: null,
  requestsPerDay: null,
});
