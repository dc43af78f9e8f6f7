import { describe, expect, it } from 'vitest';
import { PackageRefusedError, readPackage } from '#core/stacks/package/package.ts';
import { hostilePackages } from './hostile-packages.ts';

/** What a package is refused with; null where it was taken. */
async function refusalOf(zip: Buffer): Promise<PackageRefusedError | null> {
  try {
    await readPackage(zip, 'stack.zip', null);
    return null;
  } catch (error) {
    if (error instanceof PackageRefusedError) return error;
    throw error;
  }
}

describe('a hostile package', () => {
  it('is one of many kinds', () => {
    expect(hostilePackages.length).toBeGreaterThan(60);
    expect(new Set(hostilePackages.map(({ what }) => what)).size).toBe(hostilePackages.length);
  });

  it('takes no more memory than it may inflate to, however often it is sent', async () => {
    const bombs = hostilePackages.filter(({ what }) => what.includes('bomb')).map(({ zip }) => zip());
    expect(bombs.length).toBeGreaterThan(1);
    for (const zip of bombs) await refusalOf(zip);
    const before = process.resourceUsage().maxRSS;
    for (let round = 0; round < 10; round += 1) for (const zip of bombs) await refusalOf(zip);
    // KiB.
    expect(process.resourceUsage().maxRSS - before).toBeLessThan(128 * 1024);
  });

  it.each(hostilePackages.map((one) => [one.what, one] as const))('with %s is refused', async (_, { zip, problem }) => {
    const refusal = await refusalOf(zip());
    const [field, message] = problem;
    expect(refusal?.problems).toContainEqual({ field, message: expect.stringContaining(message) });
    expect(refusal?.problems.length).toBeLessThan(102);
    expect(JSON.stringify(refusal?.problems)).not.toMatch(/\\u00[01]|node_modules|\/src\//);
  });
});
