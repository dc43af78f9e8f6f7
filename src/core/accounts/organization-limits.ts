/** What an organization's keys may come to. */

/** Limits that its new keys have; null is unlimited, numbers are 1 or more. What is absent is as for every new key. */
export interface DefaultLimits {
  readonly requestsPerMinute?: number | null;
  readonly maxConcurrency?: number | null;
  readonly tokensPerMinute?: number | null;
  readonly monthlyTokenLimit?: number | null;
}

export interface OrganizationLimits {
  readonly defaultLimits: DefaultLimits;
  /** Null: as many as the gateway's setting allows. */
  readonly maxActiveKeys: number | null;
  /** Ids of the models that its keys may use; null: all. */
  readonly models: readonly string[] | null;
}
