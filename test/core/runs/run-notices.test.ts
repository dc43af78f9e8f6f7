import { describe, expect, it } from 'vitest';
import { formatId } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import type { RunNotice } from '#core/runs/runs.ts';
import { useRuns } from './support.ts';

/** Notices of several gateways of one database. */

const bench = useRuns();

describe('a notice about a run', () => {
  it('is raised once by several gateways, and again after a gateway that died while it raised the notice', async () => {
    const raised: RunNotice[] = [];
    const raiseIn = (_: unknown, notice: RunNotice): Promise<void> => {
      raised.push(notice);
      return Promise.resolve();
    };
    const gateways = [bench.gateway({ raiseIn }), bench.gateway({ raiseIn }), bench.gateway({ raiseIn })];
    const dying = bench.gateway({ raiseIn: () => Promise.reject(new Error('killed')) });
    const [runs] = gateways;
    if (runs === undefined) throw new Error('a gateway is there');
    const version = bench.stack('variable "x" {\n  default = 1\n}\n');
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1) {
      const run = await bench.apply(runs, version);
      await bench.ended(runs, run);
      ids.push(formatId('run', run.id));
    }
    await expect(dying.notify()).rejects.toThrow('killed');
    const counts = await Promise.all(gateways.map((one) => one.notify()));
    expect(counts.reduce((sum, one) => sum + one)).toBe(3);
    expect(raised.map(({ data }) => data.run_id).toSorted()).toEqual(ids.toSorted());
    for (const one of gateways) expect(await one.notify()).toBe(0);
  });

  it('is not raised for a run that was superseded after its notice', async () => {
    const types: string[] = [];
    const runs = bench.gateway({
      raiseIn: (_, { type, data }) => {
        types.push(`${type} ${'status' in data ? data.status : ''}`);
        return Promise.resolve();
      },
    });
    const version = bench.stack('resource "terraform_data" "a" {}\n');
    const first = await bench.apply(runs, version);
    await bench.ended(runs, first);
    await runs.notify();
    const same = { clusterId: first.clusterId, stackId: first.stackId };
    await bench.ended(runs, await bench.apply(runs, version, same));
    expect((await runs.find(first.id))?.status).toBe('SUPERSEDED');
    await runs.notify();
    const destroyed = await runs.destroy(first.id, systemAuthor);
    if (destroyed.kind !== 'created') throw new Error(destroyed.kind);
    await bench.ended(runs, destroyed.run);
    await runs.notify();
    expect(types).toEqual(['run.succeeded APPLIED', 'run.succeeded APPLIED', 'run.succeeded DESTROYED']);
  });
});
