import { describe, expect, it } from 'vitest';
import { PackageRefusedError, readPackage } from '#core/stacks/package/package.ts';
import { hostilePackages } from './hostile-packages.ts';

/** The error for a package; null where it was accepted. */
async function refusalOf(zip: Buffer): Promise<PackageRefusedError | null> {
  try {
    await readPackage(zip, 'stack.zip', null);
    return null;
  } catch (error) {
    if (error instanceof PackageRefusedError) return error;
    throw error;
  }
}

describe('hostile packages', () => {
  it('include more than 60 different kinds', () => {
    expect(hostilePackages.length).toBeGreaterThan(60);
    expect(new Set(hostilePackages.map(({ what }) => what)).size).toBe(hostilePackages.length);
  });

  it('use no more memory than their inflation limit, in 10 repetitions', async () => {
    const bombs = hostilePackages.filter(({ what }) => what.includes('bomb')).map(({ zip }) => zip());
    expect(bombs.length).toBeGreaterThan(1);
    for (const zip of bombs) await refusalOf(zip);
    const before = process.resourceUsage().maxRSS;
    for (let round = 0; round < 10; round += 1) for (const zip of bombs) await refusalOf(zip);
    // KiB.
    expect(process.resourceUsage().maxRSS - before).toBeLessThan(128 * 1024);
  });

  it.each(hostilePackages.map((one) => [one.what, one] as const))(
    'are rejected with %s',
    async (_, { zip, problem }) => {
      const refusal = await refusalOf(zip());
      const [field, message] = problem;
      expect(refusal?.problems).toContainEqual({ field, message: expect.stringContaining(message) });
      expect(refusal?.problems.length).toBeLessThan(102);
      expect(JSON.stringify(refusal?.problems)).not.toMatch(/\\u00[01]|node_modules|\/src\//);
    },
  );
});
