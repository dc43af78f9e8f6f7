import { describe, expect, it } from 'vitest';
import { bucketOf, valueOfBucket } from '#core/metering/tables/latency-buckets.ts';

describe('the buckets of histograms', () => {
  it('return every value from 1 to a week of milliseconds with an error of at most 4.5 %', () => {
    for (let value = 1; value < 604_800_000; value *= 1.0007) {
      const shown = valueOfBucket(bucketOf(value));
      expect(Math.abs(shown - value) / value).toBeLessThan(0.045);
    }
  });

  it('return 0 for values below 1, and never a lower bucket for a higher value', () => {
    expect([0, 0.4, -3, Number.NaN].map((value) => valueOfBucket(bucketOf(value)))).toEqual([0, 0, 0, 0]);
    const buckets = Array.from({ length: 5000 }, (_, index) => bucketOf(index));
    expect(buckets).toEqual(buckets.toSorted((a, b) => a - b));
  });
});
