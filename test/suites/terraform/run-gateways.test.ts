import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, describe, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { rowsOf } from '#test/terraform/printed.ts';
import { usePlace } from '#test/terraform/run-gateway.ts';
import { waitingStack } from '#test/terraform/waiting-stacks.ts';

const newPlace = usePlace();
const rows = Array.from({ length: 400 }, (_, index) => index + 1);
let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

const open = (folder: string): void => {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'go'), '');
};

function placeFileOf(dataDir: string): string {
  const folder = join(dataDir, 'runs');
  const name = readdirSync(folder).find((found) => found.startsWith('.place')) ?? '';
  return readFileSync(join(folder, name), 'utf8');
}

describe('two gateways on one database', () => {
  it('share runs, run none twice, and one ends the runs of the other after its death', async () => {
    const place = await newPlace();
    const env = { REDIS_URL: redis.url, HEADGATE_RUNS_AT_ONCE: '2' };
    const [first, second] = [await place.startHere({ env }), await place.start({ env })];
    const { id } = await first.made('/v1/organizations', { name: 'Shared' });
    await first.upload('waiting', waitingStack());
    const started: { run: Body; folder: string }[] = [];
    // Two for each: none of them could run them all.
    for (let index = 0; index < 4; index += 1) {
      const cluster = await first.cluster(place.server, id);
      const folder = place.folder();
      started.push({ run: await first.apply('waiting', cluster.id, { folder }), folder });
    }
    for (const { run } of started) await second.prints(run.id, 'row 200.');
    const placeOf = async (runId: string): Promise<string> => {
      const hex = runId.replace('run_', '');
      const [row] = await place.sql<{ place: string }[]>`select place from runs where id = ${hex}::uuid`;
      return row?.place ?? '';
    };
    const places = await Promise.all(started.map(({ run }) => placeOf(run.id)));
    const placeOfSecond = placeFileOf(second.home.dataDir);
    expect(places.filter((found) => found === placeOfSecond)).toHaveLength(2);
    expect(new Set(places).size).toBe(2);

    // The second never comes back, nor does its machine.
    const lost = started.filter((_, index) => places[index] === placeOfSecond);
    const kept = started.filter((_, index) => places[index] !== placeOfSecond);
    await second.kill();
    for (const { run } of lost) second.killIn(run.id, 'apply', 'terraform');
    for (const { folder } of kept) open(folder);
    for (const { run, folder } of kept) {
      await first.becomes(run.id, 'APPLIED');
      expect(rowsOf(await first.log(run.id))).toEqual(rows);
      expect(readFileSync(join(folder, 'times'), 'utf8')).toBe('once\n');
    }
    expect((await first.run(lost[0]?.run.id)).status).toBe('APPLYING');
    await place.sql`
      update runs set lease_until = lease_until - interval '16 minutes' where status = 'APPLYING'`;
    for (const { run } of lost) {
      const failed = await first.becomes(run.id, 'FAILED');
      expect([failed.failure_code, failed.failure_message]).toEqual([
        'INTERRUPTED',
        'its machine stopped responding; the resources that the run created until then are kept',
      ]);
    }

    const installed = async (): Promise<number> =>
      (await place.sql`select distinct installation_id from stack_states where resources > 0`).length;
    expect(await installed()).toBe(kept.length);
    // It comes back after all: what its folders know of what was made is on record then, and can be removed.
    const again = await place.startHere({ env, home: second.home });
    await eventually(async () => (await installed()) === started.length);
    for (const { run, folder } of lost) {
      const destroying = await again.made(`/v1/runs/${run.id}/destroy`);
      await again.becomes(destroying.id, 'DESTROYED');
      expect(existsSync(join(folder, 'software'))).toBe(false);
      expect(readFileSync(join(folder, 'times'), 'utf8')).toBe('once\n');
    }
  });
});
