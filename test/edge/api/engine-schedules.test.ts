import { describe, expect, it } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { type ScriptedOperations, useApi } from '#test/api/test-api.ts';

const day = { cron: '0 8 * * 1-5', timezone: 'Europe/Berlin', min: 2, max: 4 };
const night = { cron: '0 20 * * 1-5', timezone: 'Europe/Berlin', min: 0, max: 0 };
const [sinceMs, untilMs] = [Date.UTC(2026, 10, 27, 19), Date.UTC(2026, 10, 30, 7)];
const common = {
  sinceMs: 0,
  cause: null,
  causeDetail: null,
  retryAtMs: null,
  failures: 0,
  kind: 'openai',
  warnings: [],
  replicas: [],
  leases: 0,
  waiting: 0,
  startTimesMs: [],
  lastStart: null,
  rollout: null,
} as const;

/** Commands that were carried out. */
const ordered: string[] = [];

/** An engine that its schedule keeps off, and one none of whose entries has had its time. */
const operations: ScriptedOperations = {
  definitions: () => ['nightly', 'fresh'].map((id) => engineDefinition({}, { id, file: `engines/${id}.yaml` })),
  files: () => ({ readAtMs: 0, refused: null, leftOut: [] }),
  differences: () => [],
  pendingPrices: () => [],
  list: () => [
    {
      ...common,
      engineId: 'nightly',
      phase: 'off',
      bounds: { min: 0, max: 0, schedule: { entry: night, sinceMs, next: day, untilMs } },
    },
    {
      ...common,
      engineId: 'fresh',
      phase: 'stopped',
      bounds: { min: 0, max: 1, schedule: { entry: null, sinceMs: -Infinity, next: day, untilMs } },
    },
  ],
  async *logs() {},
  hosts: () => [],
  orphans: () => [],
  command: (id, kind) => Promise.resolve(() => Promise.resolve(void ordered.push(`${kind} ${id}`))),
  reload: () => Promise.resolve({ ok: true, added: [], changed: [], removed: [] }),
};

const api = useApi({ operations });
const path = '/v1/admin/engines/nightly';
const headgate = (...args: readonly string[]) =>
  runCli(['engines', ...args], { env: { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin } });

describe('an engine with a schedule', () => {
  it('shows the entry in effect and the next one', async () => {
    const { body } = await api().ask(path);
    expect(body).toMatchObject({ state: 'off', held: false, replicas_min: 0, replicas_max: 0, last_failure: null });
    expect(body.schedule).toEqual({
      entry: { cron: '0 20 * * 1-5', timezone: 'Europe/Berlin', min_replicas: 0, max_replicas: 0 },
      since: sinceMs / 1000,
      next: { cron: '0 8 * * 1-5', timezone: 'Europe/Berlin', min_replicas: 2, max_replicas: 4 },
      next_at: untilMs / 1000,
    });
  });

  it('shows only the next entry before the first time of one', async () => {
    const { body } = await api().ask('/v1/admin/engines/fresh');
    expect(body.schedule).toMatchObject({ entry: null, since: null, next_at: untilMs / 1000 });
  });

  it.each(['start', 'restart'])('returns 409 to the command %s while the schedule keeps it off', async (command) => {
    const { status, body } = await api().ask(`${path}/${command}`, { method: 'POST' });
    expect([status, body.error.code]).toEqual([409, 'conflict']);
    expect(body.error.message).toBe(
      'The schedule of the engine keeps it off until 2026-11-30T07:00:00Z. Change it in its file, engines/nightly.yaml, and reload the engine files.',
    );
    expect(ordered).toEqual([]);
  });

  it('carries out a stop command while the schedule keeps it off', async () => {
    expect((await api().ask(`${path}/stop`, { method: 'POST' })).status).toBe(202);
    expect(ordered).toEqual(['stop nightly']);
  });

  it('is listed by the command line with the time of the next change', async () => {
    const lines = (await headgate('ls')).stdout.split('\n');
    const line = lines.find((one) => one.startsWith('nightly'));
    expect(line).toMatch(/^nightly +off .* off by its schedule until 2026-11-30T07:00Z$/);
  });

  it('is shown by the command line with both entries', async () => {
    const { stdout } = await headgate('show', 'nightly');
    const entries = /^schedule:\n {2}entry:\n {4}cron: 0 20 \* \* 1-5\n(.*\n)*? {2}next:\n {4}cron: 0 8 \* \* 1-5\n/m;
    expect(stdout).toMatch(entries);
  });
});
