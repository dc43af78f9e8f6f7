import { describe, expect, it } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { type ScriptedOperations, useApi } from '#test/api/test-api.ts';

/** An engine whose last start has failed. */
const operations: ScriptedOperations = {
  definitions: () => [engineDefinition({}, { id: 'chat' })],
  files: () => ({ readAtMs: 0, refused: null, leftOut: [] }),
  differences: () => [],
  pendingPrices: () => [],
  list: () => [
    {
      engineId: 'chat',
      phase: 'failed',
      sinceMs: 0,
      cause: 'The start of this model timed out.',
      causeDetail: null,
      retryAtMs: null,
      failures: 1,
      kind: 'vllm',
      warnings: [],
      replicas: [],
      leases: 0,
      waiting: 0,
      startTimesMs: [],
      rollout: null,
      bounds: { min: 0, max: 1, schedule: null },
      lastStart: {
        replicaId: 'r1',
        steps: [
          { phase: 'requested', atMs: 1_790_000_001_000 },
          { phase: 'creating', atMs: 1_790_000_001_500 },
          { phase: 'failed', atMs: 1_790_000_002_500 },
        ],
        cause: { kind: 'timeout', publicText: 'The start of this model timed out.', detail: 'late' },
      },
    },
  ],
  async *logs() {},
  hosts: () => [],
  orphans: () => [],
  command: () => Promise.resolve(() => Promise.resolve()),
  reload: () => Promise.resolve({ ok: true, added: [], changed: [], removed: [] }),
};

const api = useApi({ operations });

describe('the last start of an engine', () => {
  it('has each phase with its duration, and why it failed', async () => {
    expect((await api().ask('/v1/admin/engines/chat')).body.last_start).toEqual({
      replica: 'r1',
      steps: [
        { phase: 'requested', at: 1_790_000_001, duration_ms: 500 },
        { phase: 'creating', at: 1_790_000_001, duration_ms: 1000 },
        { phase: 'failed', at: 1_790_000_002, duration_ms: null },
      ],
      total_ms: 1500,
      failure: { message: 'The start of this model timed out.', detail: 'late' },
    });
  });

  it('is printed by headgate engines show', async () => {
    const env = { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin };
    const { stdout } = await runCli(['engines', 'show', 'chat'], { env });
    expect(stdout).toContain('    - phase: creating\n      at: 2026-09-21 14:13:21 UTC\n      duration_ms: 1000\n');
    expect(stdout).toContain('detail: late');
  });
});
