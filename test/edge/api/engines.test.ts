import { describe, expect, it } from 'vitest';
import type { LogLine } from '#core/fleet/log-follow.ts';
import type { EngineReloadResult } from '#core/catalog/catalog.ts';
import type { EngineOperations, OperatedEngine } from '#edge/api/api.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { type Answer, type AskOptions, type ScriptedOperations, useApi } from '#test/api/test-api.ts';

const needs = {
  memoryBytes: 4_294_967_296,
  gpus: { count: 1, memoryBytesMin: null, profile: 'H100' },
  group: { name: 'large', swap: true, exclusive: false, persistent: false },
};

/** A fleet as the API sees it, whose every answer a test can set: it is the surface that is looked at here. */
class TestOperations implements ScriptedOperations {
  engines: OperatedEngine[] = [];
  ordered: string[] = [];
  asked: unknown[] = [];
  lines: LogLine[] = [];
  refusesCommands = false;
  reloaded: EngineReloadResult = { ok: true, added: [], changed: [], removed: [] };
  readonly left = Promise.withResolvers<void>();

  definitions() {
    return [
      engineDefinition(needs, { id: 'plain', file: 'engines/plain.yaml', name: 'Plain' }),
      engineDefinition({}, { id: 'acme/chat:7b', file: 'engines/chat.yaml', name: 'Chat' }),
      engineDefinition({}, { id: 'off', file: 'engines/off.yaml', enabled: false }),
    ];
  }
  files() {
    return { readAtMs: 0, refused: null, leftOut: [] };
  }

  differing: ReturnType<EngineOperations['differences']> = [];
  differences() {
    return this.differing;
  }
  pendingPrices() {
    return this.differing.length === 0 ? [] : ['plain'];
  }
  list() {
    return this.engines;
  }
  async command(engineId: string, kind: string) {
    if (this.refusesCommands) throw new Error('the store is away');
    return async () => void this.ordered.push(`${kind} ${engineId}`);
  }
  async *logs(...asked: Parameters<EngineOperations['logs']>) {
    const [engineId, replicaId, { signal, ...request }] = asked;
    this.asked.push([engineId, replicaId, request]);
    yield* this.lines;
    if (!request.follow) return;
    await new Promise<void>((resolve) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    this.left.resolve();
  }
  hosts() {
    const gpus = ['GPU-1', 'GPU-2', 'GPU-3'].map((id) => ({ id, memoryBytes: 85_899_345_920, profile: 'H100' }));
    return [
      { name: 'h1', pools: ['big'], reachable: true, gpus, memoryBytes: 17_179_869_184 },
      { name: 'h2', pools: [], reachable: false, trouble: 'timed out', gpus: [] },
    ];
  }
  orphans() {
    const endedBy = 'docker rm --force headgate-gone-1';
    return [{ host: 'h1', name: 'headgate-gone-1', engineId: 'gone', gpuIds: ['GPU-1'], endedBy }];
  }
  reload() {
    return Promise.resolve(this.reloaded);
  }
}

const nothingSampled = { load: null, gpu_use: [], last_start: null };
const operations = new TestOperations();
const api = useApi({ operations });
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);

function engine(engineId: string, over: Partial<OperatedEngine> = {}): OperatedEngine {
  return {
    engineId,
    phase: 'stopped',
    sinceMs: 1_790_000_000_900,
    cause: null,
    causeDetail: null,
    retryAtMs: null,
    failures: 0,
    kind: 'vllm',
    warnings: [],
    replicas: [],
    leases: 0,
    waiting: 0,
    startTimesMs: [],
    lastStart: null,
    rollout: null,
    bounds: { min: 0, max: 1, schedule: null },
    ...over,
  };
}

const replica = {
  id: 'r1',
  state: 'ready' as const,
  host: 'h1',
  gpuIds: ['GPU-2'],
  progress: null,
  sinceMs: 1_790_000_001_000,
  leases: 3,
  healthy: true,
  version: { name: '0.32.0', isTried: true },
  deployment: null,
};

const routes = [
  ['GET', '/v1/admin/engines'],
  ['GET', '/v1/admin/engines/plain'],
  ['GET', '/v1/admin/engines/plain/logs'],
  ['GET', '/v1/admin/hosts'],
  ['POST', '/v1/admin/engines/reload'],
  ['POST', '/v1/admin/engines/plain/start'],
  ['POST', '/v1/admin/engines/plain/stop'],
  ['POST', '/v1/admin/engines/plain/restart'],
  ['POST', '/v1/admin/engines/plain/reset'],
] as const;

describe('access to engine operations', () => {
  it.each(routes)('returns 401 without a key: %s %s', async (method, path) => {
    const { status, body } = await ask(path, { method, key: null });
    expect([status, body.error.code]).toEqual([401, 'unauthorized']);
  });

  it.each(routes)('returns 403 to a manager of an organization: %s %s', async (method, path) => {
    const { key } = await api().organization();
    const { status, body } = await ask(path, { method, key });
    expect([status, body.error.code]).toEqual([403, 'insufficient_scope']);
    expect(operations.ordered).toEqual([]);
  });

  it("returns 403 to an administrator's inference key", async () => {
    const { body } = await ask('/v1/keys', { body: { scope: 'inference' } });
    expect((await ask('/v1/admin/engines', { key: body.secret })).status).toBe(403);
  });
});

describe('an engine', () => {
  it('returns 404 on every route when no file defines it', async () => {
    for (const path of ['/v1/admin/engines/none', '/v1/admin/engines/none/logs', '/v1/admin/engines/acme%2Fother']) {
      const { status, body } = await ask(path);
      expect([path, status, body.error.code]).toEqual([path, 404, 'not_found']);
    }
    expect((await ask('/v1/admin/engines/none/start', { method: 'POST' })).status).toBe(404);
  });

  it('is found by an id with a slash and a colon', async () => {
    operations.engines = [engine('plain'), engine('acme/chat:7b', { phase: 'ready' })];
    const { status, body } = await ask(`/v1/admin/engines/${encodeURIComponent('acme/chat:7b')}`);
    expect([status, body.id, body.state]).toEqual([200, 'acme/chat:7b', 'ready']);
  });

  it('shows its replicas, devices, queue, failure and rollout', async () => {
    operations.engines = [
      engine('plain', {
        phase: 'ready',
        cause: 'There is not enough memory.',
        causeDetail: '70 GiB asked of GPU-2',
        retryAtMs: 1_790_000_060_000,
        failures: 3,
        replicas: [replica, { ...replica, id: 'r2', state: 'creating', progress: 'pulling 43 %', gpuIds: ['GPU-1'] }],
        leases: 3,
        waiting: 7,
        startTimesMs: [812.4, 790],
        rollout: { state: 'refused', text: 'It refused its settings.' },
      }),
    ];
    expect((await ask('/v1/admin/engines/plain')).body).toEqual({
      id: 'plain',
      object: 'engine',
      name: 'Plain',
      driver: 'process',
      kind: 'vllm',
      warnings: [],
      file: 'engines/plain.yaml',
      adapters: [],
      state: 'ready',
      since: 1_790_000_000,
      held: false,
      last_failure: {
        message: 'There is not enough memory.',
        detail: '70 GiB asked of GPU-2',
        retry_at: 1_790_000_060,
        failures: 3,
      },
      rollout: { state: 'refused', message: 'It refused its settings.' },
      replicas: [
        {
          id: 'r1',
          state: 'ready',
          since: 1_790_000_001,
          host: 'h1',
          gpus: ['GPU-2'],
          progress: null,
          running: 3,
          healthy: true,
          version: { name: '0.32.0', tried: true },
          deployment: null,
        },
        expect.objectContaining({ id: 'r2', state: 'creating', progress: 'pulling 43 %' }),
      ],
      replicas_min: 0,
      replicas_max: 1,
      schedule: null,
      pinned: false,
      hosts: ['h1'],
      gpus: ['GPU-2', 'GPU-1'],
      gpus_needed: { count: 1, memory_bytes: null, profile: 'H100' },
      memory_needed_bytes: 4_294_967_296,
      group: { name: 'large', swap: true, exclusive: false, persistent: false },
      queue: { running: 3, waiting: 7 },
      start_times_ms: [812, 790],
      ...nothingSampled,
    });
  });

  it('is listed with all others, including disabled engines', async () => {
    operations.engines = [engine('plain'), engine('acme/chat:7b', { phase: 'held' })];
    const { body } = await ask('/v1/admin/engines');
    expect(body.object).toBe('list');
    expect(
      body.data.map(({ id, state, held }: { id: string; state: string; held: boolean }) => [id, state, held]),
    ).toEqual([
      ['acme/chat:7b', 'held', true],
      ['off', 'disabled', false],
      ['plain', 'stopped', false],
    ]);
  });
});

describe('an engine command', () => {
  it('is rejected for a disabled engine', async () => {
    const { status, body } = await ask('/v1/admin/engines/off/start', { method: 'POST' });
    expect([status, body.error.code]).toEqual([409, 'conflict']);
    expect(body.error.message).toContain('engines/off.yaml');
  });

  it('leaves no audit entry when it cannot be stored', async () => {
    operations.engines = [engine('plain')];
    operations.refusesCommands = true;
    const { status } = await ask('/v1/admin/engines/plain/stop', { method: 'POST' });
    operations.refusesCommands = false;
    expect(status).toBe(500);
    expect(await api().db.sql`select 1 from audit_log where target_type = 'engine'`).toHaveLength(0);
  });

  it.each(['start', 'stop', 'restart', 'reset'])(
    'is stored, audited and answered with the engine: %s',
    async (kind) => {
      operations.engines = [engine('acme/chat:7b', { phase: 'ready' })];
      operations.ordered = [];
      const { status, body } = await ask(`/v1/admin/engines/acme%2Fchat:7b/${kind}`, { method: 'POST' });
      expect([status, body.object, body.id]).toEqual([202, 'engine', 'acme/chat:7b']);
      expect(operations.ordered).toEqual([`${kind} acme/chat:7b`]);
      const rows = await api().db.sql`select action, target_id, before::text, after::text, actor_key_id from audit_log
      where target_type = 'engine' order by id desc limit 1`;
      expect(rows).toEqual([
        {
          action: `engine.${kind}_ordered`,
          target_id: 'acme/chat:7b',
          before: '{"state": "ready"}',
          after: JSON.stringify({ ordered: kind }).replace(':', ': '),
          actor_key_id: expect.any(String),
        },
      ]);
    },
  );
});

describe('engine logs', () => {
  const lines = [
    { replicaId: 'r1', line: 'INFO: started' },
    { replicaId: 'r2', line: 'a "quoted" line\u2028with more' },
  ];

  it.each(['tail=-1', 'tail=10001', 'tail=x', 'follow=maybe', 'lines=3'])('return 400 for %s', async (query) => {
    const { status, body } = await ask(`/v1/admin/engines/plain/logs?${query}`);
    expect([status, body.error.param]).toEqual([400, query.split('=')[0]]);
  });

  it('return 404 for an unknown replica', async () => {
    operations.engines = [engine('plain', { replicas: [replica] })];
    const { status, body } = await ask('/v1/admin/engines/plain/logs?replica=r9');
    expect([status, body.error.param]).toEqual([404, 'replica']);
  });

  it('are returned as a list', async () => {
    operations.engines = [engine('plain', { replicas: [replica] })];
    operations.lines = lines;
    operations.asked = [];
    const all = await ask('/v1/admin/engines/plain/logs');
    await ask('/v1/admin/engines/plain/logs?tail=5&replica=r1');
    expect(all.body).toEqual({
      object: 'list',
      data: lines.map(({ replicaId, line }) => ({ replica: replicaId, line })),
    });
    expect(operations.asked).toEqual([
      ['plain', null, { tailLines: 200, follow: false }],
      ['plain', 'r1', { tailLines: 5, follow: false }],
    ]);
  });

  it('are streamed as events until the client leaves', async () => {
    operations.engines = [engine('plain')];
    operations.lines = lines;
    const leave = new AbortController();
    const response = await fetch(new URL('/v1/admin/engines/plain/logs?follow=1', api().url), {
      headers: { authorization: `Bearer ${api().admin}` },
      signal: leave.signal,
    });
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    let text = '';
    const decoder = new TextDecoder();
    const reader = response.body?.getReader();
    while (text.split('\n\n').length <= 2) {
      const part = await reader?.read();
      if (part === undefined || part.done) break;
      text += decoder.decode(part.value, { stream: true });
    }
    expect(text).toBe(
      lines.map(({ replicaId, line }) => `data: ${JSON.stringify({ replica: replicaId, line })}\n\n`).join(''),
    );
    leave.abort();
    await operations.left.promise;
  });
});

describe('hosts', () => {
  it('show their devices, the replicas that use them, and unknown processes on them', async () => {
    operations.engines = [engine('plain', { replicas: [replica] })];
    const { body } = await ask('/v1/admin/hosts');
    const gpu = { memory_bytes: 85_899_345_920, profile: 'H100' };
    expect(body.data).toEqual([
      {
        name: 'h1',
        object: 'host',
        reachable: true,
        trouble: null,
        pools: ['big'],
        gpus: [
          { ...gpu, id: 'GPU-1', used_by: { engine: 'gone', replica: null, stranger: 'headgate-gone-1' } },
          { ...gpu, id: 'GPU-2', used_by: { engine: 'plain', replica: 'r1', stranger: null } },
          { ...gpu, id: 'GPU-3', used_by: null },
        ],
        memory_bytes: 17_179_869_184,
        replicas: [{ engine: 'plain', replica: 'r1', state: 'ready', memory_bytes: 4_294_967_296 }],
        strangers: [
          { name: 'headgate-gone-1', engine: 'gone', gpus: ['GPU-1'], ended_by: 'docker rm --force headgate-gone-1' },
        ],
      },
      {
        name: 'h2',
        object: 'host',
        reachable: false,
        trouble: 'timed out',
        pools: [],
        gpus: [],
        memory_bytes: null,
        replicas: [],
        strangers: [],
      },
    ]);
  });
});

describe('POST /v1/admin/engines/reload', () => {
  it('returns the problems of all files in one response', async () => {
    operations.reloaded = {
      ok: false,
      problems: [
        { file: 'engines/a.yaml', line: 12, field: 'pricing.input_per_million', message: 'must not be negative' },
        { file: 'engines/b.yaml', line: null, field: null, message: 'cannot be read (EACCES)' },
      ],
    };
    const { status, body } = await ask('/v1/admin/engines/reload', { method: 'POST' });
    expect([status, body.error.code, body.error.param]).toEqual([422, 'unprocessable', 'pricing.input_per_million']);
    expect(body.error.message).toContain('engines/a.yaml:12: pricing.input_per_million: must not be negative');
    expect(body.error.message).toContain('engines/b.yaml: cannot be read (EACCES)');
  });

  it('returns the changed engines, and writes an audit entry', async () => {
    operations.reloaded = { ok: true, added: ['acme/new'], changed: [], removed: ['x', 'y'] };
    const { status, body } = await ask('/v1/admin/engines/reload', { method: 'POST' });
    expect([status, body]).toEqual([
      200,
      { object: 'engines.reload', added: ['acme/new'], changed: [], removed: ['x', 'y'] },
    ]);
    const [row] = await api().db.sql`select action, after::text from audit_log order by id desc limit 1`;
    expect(row).toMatchObject({ action: 'engines.reloaded' });
    expect(JSON.parse(String(row?.['after']))).toEqual({ added: 'acme/new', changed: '', removed: 'x y' });
  });
});
