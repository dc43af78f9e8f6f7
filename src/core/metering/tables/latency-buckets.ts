/**
 * Buckets of histograms that can be merged: eight for each doubling. The value of a bucket is at most 4.5 % away from
 * every value in the bucket.
 */

const perDoubling = 8;
const bucketMax = 32_767;

/** Values that have histograms, with the numbers that `usage_latency` stores for them. */
export const latencyMeasures = { firstByteMs: 1, tokensPerSecond: 2, queuedMs: 3 } as const;
export type LatencyMeasure = keyof typeof latencyMeasures;

/** Returns the bucket of a value; 0 for values below 1. */
export function bucketOf(value: number): number {
  return value >= 1 ? Math.min(1 + Math.floor(perDoubling * Math.log2(value)), bucketMax) : 0;
}

/** Returns the value of a bucket: the geometric mean of its bounds; 0 for bucket 0. */
export function valueOfBucket(bucket: number): number {
  return bucket === 0 ? 0 : 2 ** ((bucket - 0.5) / perDoubling);
}
