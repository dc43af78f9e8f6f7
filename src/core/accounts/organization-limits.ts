/** Limits of an organization's keys. */

/** Default limits of new keys; null is unlimited, numbers are 1 or more. Absent fields use the gateway's defaults. */
export interface DefaultLimits {
  readonly requestsPerMinute?: number | null;
  readonly maxConcurrency?: number | null;
  readonly tokensPerMinute?: number | null;
  readonly monthlyTokenLimit?: number | null;
}

export interface OrganizationLimits {
  readonly defaultLimits: DefaultLimits;
  /** Most active keys; null uses the gateway's setting. */
  readonly maxActiveKeys: number | null;
  /** Ids of allowed models; null: all. */
  readonly models: readonly string[] | null;
}
