import { describe, expect, it } from 'vitest';
import { systemAuthor } from '#core/audit/audit.ts';
import type { FoundRunner } from '#core/runs/runs.ts';
import { useRuns } from './support.ts';

const bench = useRuns();

const nothing = (): Promise<FoundRunner> => Promise.resolve({ runner: null, terraform: null, problem: 'nothing' });

describe('runs of a suspended organization', () => {
  it('fail before they begin, new ones are rejected, and a destroy still works', async () => {
    const runs = bench.gateway();
    const version = bench.stack('resource "terraform_data" "a" {}\n');
    const made = await bench.becomes(runs, await bench.apply(runs, version), 'APPLIED');
    const { clusterId } = made;
    await runs.loop.close();
    const idle = bench.gateway({ findRunner: nothing });
    const waiting = await bench.apply(idle, bench.stack('resource "terraform_data" "b" {}\n'), { clusterId });
    bench.suspend(clusterId);
    const next = bench.gateway();
    expect(await bench.ended(next, waiting)).toMatchObject({
      status: 'FAILED',
      failureCode: 'ORGANIZATION_INACTIVE',
      failureMessage: 'the organization was suspended before the run started',
    });
    const refused = { kind: 'organization_inactive', status: 'suspended' };
    expect(await next.retry(waiting.id, systemAuthor)).toEqual(refused);
    await expect(bench.apply(next, version, { clusterId })).rejects.toThrow('organization_inactive');
    const result = await next.destroy(made.id, systemAuthor);
    if (result.kind !== 'created') throw new Error(result.kind);
    expect((await bench.ended(next, result.run)).status).toBe('DESTROYED');
  });
});
