import { expect, it } from 'vitest';
import { problemsOf, type UpkeepFigures } from '#app/upkeep.ts';

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

it('reports nothing while there is room, nothing is lost, and before anything is measured', () => {
  expect(named({})).toEqual([]);
  expect(named({ dataDisk: null, redis: null, unexplained: null })).toEqual([]);
});

it('reports a disk and a Redis that are used to 90 %, with their sizes', () => {
  const full = { used: 90 * gib, size: 100 * gib };
  expect(problemsOf({ ...well, dataDisk: full, redis: full })).toEqual([
    { problem: 'disk_nearly_full', text: 'The disk of the data folder is full to 90 % of 100.0 GiB.' },
    { problem: 'redis_nearly_full', text: 'Redis uses 90 % of 100.0 GiB (maxmemory).' },
  ]);
});

it('reports a newest backup of more than 36 hours', () => {
  expect(problemsOf({ ...well, backupAgeMs: 50.5 * 3_600_000 })).toEqual([
    { problem: 'backup_old', text: 'The newest good backup is 50 hours old.' },
  ]);
});

it('reports a platform key that is missing in the words of its check, and hours that nothing explains', () => {
  expect(problemsOf({ ...well, keyTrouble: 'The key abc is missing.', unexplained: 2 })).toMatchObject([
    { problem: 'platform_key_missing', text: 'The key abc is missing.' },
    { problem: 'reconcile_unexplained', text: expect.stringContaining('2 models') },
  ]);
});
