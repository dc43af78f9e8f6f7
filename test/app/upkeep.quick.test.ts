import { expect, it } from 'vitest';
import { createUpkeep, problemsOf, type UpkeepFigures, type UpkeepParts } from '#app/upkeep.ts';

const gib = 2 ** 30;
const well: UpkeepFigures = {
  dataDisk: { used: 89 * gib, size: 100 * gib },
  databaseBytes: 5 * gib,
  backupAgeMs: 36 * 3_600_000,
  redis: { used: 1, size: gib },
  keyTrouble: null,
  unexplained: 0,
};

const named = (over: Partial<UpkeepFigures>): string[] =>
  problemsOf({ ...well, ...over }).map(({ problem }) => problem);

it('reports nothing while there is room, nothing is lost, or nothing is measured yet', () => {
  expect(named({})).toEqual([]);
  expect(named({ dataDisk: null, redis: null, unexplained: null })).toEqual([]);
});

it('reports a disk and a Redis that are 90 % full, with their sizes', () => {
  const full = { used: 90 * gib, size: 100 * gib };
  expect(problemsOf({ ...well, dataDisk: full, redis: full })).toEqual([
    { problem: 'disk_nearly_full', text: 'The disk of the data folder is full to 90 % of 100.0 GiB.' },
    { problem: 'redis_nearly_full', text: 'Redis uses 90 % of 100.0 GiB (maxmemory).' },
  ]);
});

it('reports a newest backup older than 36 hours', () => {
  expect(problemsOf({ ...well, backupAgeMs: 50.5 * 3_600_000 })).toEqual([
    { problem: 'backup_old', text: 'The newest good backup is 50 hours old.' },
  ]);
});

it('reports a missing platform key with the reason, and unexplained token counts', () => {
  expect(problemsOf({ ...well, keyTrouble: 'The key abc is missing.', unexplained: 2 })).toMatchObject([
    { problem: 'platform_key_missing', text: 'The key abc is missing.' },
    { problem: 'reconcile_unexplained', text: expect.stringContaining('2 models') },
  ]);
});

it('forgets the unexplained counts once another gateway has the job that finds them', async () => {
  const parts: unknown = {
    clock: { now: () => 0, monotonicMs: () => 0 },
    foundation: { accounts: { readPlatformOrganization: () => Promise.resolve(null) } },
    gateway: { reconciler: { reconcile: () => Promise.resolve({ unexplained: 2 }) } },
  };
  const upkeep = createUpkeep(parts as UpkeepParts);
  const job = upkeep.part.jobs?.find(({ where }) => where === 'one');
  await job?.run();
  expect(problemsOf(upkeep.figures())).toMatchObject([{ problem: 'reconcile_unexplained' }]);
  job?.forget?.();
  expect(problemsOf(upkeep.figures())).toEqual([]);
});
