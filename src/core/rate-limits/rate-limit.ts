/** Limits of a model in a project. Null is unlimited; numbers are 1 or more. */
export interface RateLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly requestsPerDay: number | null;
}

/** The project and model of limits. Ids are UUIDs; the model is its catalog id. */
export interface RateLimitRef {
  readonly organizationId: string;
  readonly projectId: string;
  readonly model: string;
}

/** The limits of a project for a model. */
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
