import { describe, expect, it } from 'vitest';
import type { LogLine } from '#core/fleet/log-follow.ts';
import type { EngineReloadResult } from '#core/catalog/catalog.ts';
import type { EngineOperations, OperatedEngine } from '#edge/api/api.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { type ScriptedOperations, useApi } from '#test/api/test-api.ts';
import { type CliOptions, runCli } from '#test/cli/run-cli.ts';

/** A fleet whose state the tests say; the API and the command between it and them are the real ones. */
class ScriptedFleet implements ScriptedOperations {
  ordered: string[] = [];
  /** Overrides of the engine `plain`. */
  over: Partial<OperatedEngine> = {};
  /** States of `plain` after a command, one after the other each time that somebody looks; the last one stays. */
  script: Partial<OperatedEngine>[] = [];
  reloaded: EngineReloadResult = { ok: true, added: ['a'], changed: [], removed: ['b'] };
  lines: LogLine[] = [];
  warnings: string[] = [];

  definitions() {
    return [
      engineDefinition({}, { id: 'plain', name: 'Plain' }),
      engineDefinition({ memoryBytes: 4 * 2 ** 30 }, { id: 'acme/chat:7b' }),
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

  list(): OperatedEngine[] {
    const scripted = this.ordered.length === 0 ? undefined : this.script[0];
    if (this.ordered.length > 0 && this.script.length > 1) this.script.shift();
    const common = {
      sinceMs: 0,
      causeDetail: null,
      retryAtMs: null,
      failures: 0,
      startTimesMs: [],
      lastStart: null,
      rollout: null,
      bounds: { min: 0, max: 1, schedule: null },
      kind: 'vllm' as const,
      warnings: this.warnings,
    };
    const fresh = { progress: null, sinceMs: 0, deployment: null, version: { name: '0.99.0', isTried: false } };
    const replica = { ...fresh, gpuIds: ['GPU-1'], healthy: true, leases: 2 };
    return [
      {
        ...common,
        engineId: 'plain',
        phase: 'failed',
        cause: 'no \u001b[2Jsuch model',
        replicas: [],
        leases: 0,
        waiting: 4,
        ...this.over,
        ...scripted,
      },
      {
        ...common,
        engineId: 'acme/chat:7b',
        phase: 'ready',
        cause: null,
        replicas: [{ ...replica, id: 'r1', state: 'ready', host: 'gpu-1' }],
        leases: 2,
        waiting: 0,
      },
    ];
  }
  command(engineId: string, kind: string) {
    return Promise.resolve(async () => void this.ordered.push(`${kind} ${engineId}`));
  }
  async *logs(...[, replicaId, { tailLines, follow, signal }]: Parameters<EngineOperations['logs']>) {
    yield* this.lines.filter((line) => replicaId === null || line.replicaId === replicaId).slice(-tailLines);
    if (!follow) return;
    yield { replicaId: 'r2', line: 'and then' };
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  }
  hosts() {
    return [
      {
        name: 'gpu-1',
        pools: ['big'],
        reachable: true,
        gpus: [{ id: 'GPU-1', memoryBytes: null, profile: null }],
        memoryBytes: 16 * 2 ** 30,
      },
      { name: 'gpu-2', pools: [], reachable: false, trouble: 'timed out', gpus: [] },
    ];
  }
  orphans() {
    const endedBy = 'docker rm --force headgate-gone-1';
    return [{ host: 'gpu-1', name: 'headgate-gone-1', engineId: 'gone', gpuIds: [], endedBy }];
  }
  reload() {
    return Promise.resolve(this.reloaded);
  }
}

const fleet = new ScriptedFleet();
const api = useApi({ operations: fleet });
const headgate = (args: readonly string[], options: CliOptions = {}) =>
  runCli(args, { ...options, env: { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin, ...options.env } });

describe('a rejected headgate engines command', () => {
  it('says what the key lacks', async () => {
    expect(await headgate(['engines', 'ls'], { env: { HEADGATE_API_KEY: 'sk-wrong' } })).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('set HEADGATE_API_KEY to a valid key'),
    });
    const { key } = await api().organization();
    expect(await headgate(['engines', 'ls'], { env: { HEADGATE_API_KEY: key } })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        'This route requires a management key of a platform administrator; the key in HEADGATE_API_KEY is not one',
      ),
    });
  });

  it('says that the engine does not exist, and how to list engines', async () => {
    for (const command of ['show', 'start', 'logs']) {
      expect(await headgate(['engines', command, 'nobody']), command).toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(
          /^headgate: There is no such engine; "headgate engines ls" lists the engines\n {2}request [0-9a-f-]{36}\n$/,
        ),
      });
    }
    expect(await headgate(['engines', 'logs', 'plain', '-f', '--replica', 'none'])).toMatchObject({ code: 1 });
  });

  it('shows the problem in the engine files', async () => {
    fleet.reloaded = { ok: false, problems: [{ file: 'engines/a.yaml', line: 3, field: 'port', message: 'is odd' }] };
    const result = await headgate(['engines', 'reload']);
    fleet.reloaded = { ok: true, added: ['a'], changed: [], removed: ['b'] };
    expect(result).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('engines/a.yaml:3: port: is odd'),
    });
  });
});

describe('headgate engines', () => {
  it('lists engines as a table without control characters, or as the JSON of the API', async () => {
    const table = await headgate(['engines', 'ls']);
    expect(table).toMatchObject({ code: 0, stderr: '' });
    const lines = table.stdout.split('\n');
    expect(lines[0]).toMatch(/^ENGINE +STATE +VERSION +READY +RUNNING +WAITING +HOST$/);
    expect(lines[1]).toMatch(/^acme\/chat:7b +ready +0\.99\.0 \(untried\) +1\/1 +2 +0 +gpu-1$/);
    expect(lines[2]).toMatch(
      /^plain +failed +- +0\/1 +0 +4 +- +no \[2Jsuch model; once it is fixed: headgate engines reset plain$/,
    );
    const json = await headgate(['engines', 'ls', '--json']);
    const { body } = await api().ask('/v1/admin/engines');
    expect(JSON.parse(json.stdout)).toEqual(body);
  });

  it('lists warnings of engines that serve', async () => {
    fleet.warnings = ['It is vLLM, but its file does not say so.'];
    const table = await headgate(['engines', 'ls']);
    fleet.warnings = [];
    const line = table.stdout.split('\n').find((one) => one.startsWith('acme/chat:7b'));
    expect(line).toMatch(/gpu-1 +It is vLLM, but its file does not say so\.$/);
  });

  it.each<[string, Partial<OperatedEngine>, string]>([
    ['held', { phase: 'held', cause: null }, 'stopped by a command; to start it: headgate engines start plain'],
    [
      'given up',
      { cause: 'The program that runs this model is not installed.', causeDetail: 'vllm is not on the PATH: /bin' },
      'The program that runs this model is not installed; vllm is not on the PATH: /bin; once it is fixed: headgate engines reset plain',
    ],
    [
      'tried again by itself',
      { cause: 'It ended.', causeDetail: 'ValueError: no', retryAtMs: 1_790_000_000_000 },
      'It ended; ValueError: no',
    ],
    [
      'with a rejected new version',
      { phase: 'ready', cause: null, rollout: { state: 'refused', text: 'It refused its settings.' } },
      'new version rejected: It refused its settings; fix engines/fixture.yaml, then: headgate engines reload',
    ],
  ])('shows the fix for an engine that is %s', async (_, over, text) => {
    fleet.over = over;
    const { stdout } = await headgate(['engines', 'ls']);
    fleet.over = {};
    expect(stdout.split('\n')[2]).toMatch(/^plain /);
    expect(stdout.split('\n')[2]?.endsWith(` ${text}`), stdout).toBe(true);
  });

  it('lists settings that differ between gateways, and prices that are not in effect because of that', async () => {
    const values = [
      { value: '3f2a', gateways: ['a (1)', 'b (2)'] },
      { value: null, gateways: ['c (3)'] },
    ];
    fleet.differing = [{ kind: 'engine file', name: 'plain', values, forMs: 61_900, isOverdue: false }];
    const { stderr } = await headgate(['engines', 'ls']);
    expect(stderr).toBe(
      'The gateways differ; give all gateways the same values:\n' +
        '  engine file plain: 3f2a on a (1), b (2); missing on c (3)\n' +
        'Prices in the files of this gateway that are not in effect, since other gateways have other prices: plain\n',
    );
    fleet.differing = fleet.differing.map((one) => ({ ...one, isOverdue: true }));
    expect((await headgate(['engines', 'ls'])).stderr).toContain('differ for longer than a rollout takes');
    const { stdout } = await headgate(['--json', 'engines', 'ls']);
    expect(JSON.parse(stdout)).toMatchObject({
      differences: [{ kind: 'engine file', name: 'plain', seconds: 61, overdue: true, values }],
      pending_prices: ['plain'],
    });
    fleet.differing = [];
    expect((await headgate(['engines', 'ls'])).stderr).toBe('');
  });

  it('shows one engine, also with a slash and a colon in its id', async () => {
    const shown = await headgate(['engines', 'show', 'acme/chat:7b']);
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringMatching(/^id: acme\/chat:7b$/m) });
    expect(shown.stdout).toMatch(/^ +host: gpu-1$/m);
  });

  it('sends commands, and does not wait with --no-wait', async () => {
    fleet.ordered = [];
    // Requests run on it: what ends is named, and nothing is ordered where nobody can say yes.
    expect(await headgate(['engines', 'stop', 'acme/chat:7b', '--no-wait'])).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining(
        'Stop the engine acme/chat:7b? 2 running and 0 waiting requests end with an error.',
      ),
    });
    expect(fleet.ordered).toEqual([]);
    for (const kind of ['start', 'stop', 'restart', 'reset']) {
      const yes = kind === 'stop' ? ['--yes'] : [];
      expect(await headgate(['engines', kind, 'acme/chat:7b', '--no-wait', ...yes])).toMatchObject({
        code: 0,
        stdout: 'acme/chat:7b: ready\n',
        stderr: '',
      });
    }
    expect(fleet.ordered).toEqual(['start', 'stop', 'restart', 'reset'].map((kind) => `${kind} acme/chat:7b`));
    fleet.ordered = [];
    expect(await headgate(['engines', 'reload'])).toMatchObject({ code: 0, stdout: 'added a\nremoved b\n' });
  });

  const started = {
    id: 'r1',
    host: 'gpu-1',
    gpuIds: [],
    progress: null,
    sinceMs: 0,
    healthy: true,
    leases: 0,
    version: null,
    deployment: null,
  };
  const loading = { ...started, state: 'creating', progress: 'pulling acme/chat:1 43 %' } as const;
  const ready = { ...started, state: 'ready' } as const;
  const fresh = { ...ready, id: 'r2' };
  const off = { cause: null, causeDetail: null, retryAtMs: null, replicas: [] } as const;

  it.each<[string, Partial<OperatedEngine>[], { code: number; out: string; err?: string }]>([
    [
      'start',
      [
        { ...off, phase: 'starting' },
        { ...off, phase: 'starting', replicas: [loading] },
        { ...off, phase: 'ready', replicas: [ready] },
      ],
      { code: 0, out: 'plain: ready\n', err: 'plain: starting' },
    ],
    [
      'start',
      [
        { ...off, phase: 'starting' },
        { ...off, phase: 'failed', cause: 'It ended.', causeDetail: 'ValueError: no' },
      ],
      { code: 1, out: 'plain: failed, It ended; ValueError: no; once it is fixed: headgate engines reset plain\n' },
    ],
    [
      'start',
      [
        { ...off, phase: 'starting' },
        {
          ...off,
          phase: 'retrying',
          cause: 'It ended.',
          causeDetail: 'ValueError: no',
          retryAtMs: 1_800_000_000_000,
          failures: 2,
        },
      ],
      {
        code: 1,
        out: 'plain: retrying, It ended; ValueError: no; attempt 3 of 5 at the earliest at 08:00:00 UTC; its output: headgate engines logs plain\n',
      },
    ],
    [
      'start',
      [
        { ...off, phase: 'starting' },
        { ...off, phase: 'held' },
      ],
      { code: 1, out: 'plain: held, stopped by a command; to start it: headgate engines start plain\n' },
    ],
    [
      'stop',
      [
        { ...off, phase: 'draining', replicas: [{ ...ready, state: 'draining' }] },
        { ...off, phase: 'held', replicas: [{ ...ready, state: 'stopping' }] },
        { ...off, phase: 'held' },
      ],
      { code: 0, out: 'plain: held, stopped by a command; to start it: headgate engines start plain\n' },
    ],
    [
      'restart',
      [
        { ...off, phase: 'ready', replicas: [ready] },
        { ...off, phase: 'ready', replicas: [ready, { ...loading, id: 'r2' }] },
        { ...off, phase: 'ready', replicas: [fresh, { ...ready, state: 'draining' }] },
        { ...off, phase: 'ready', replicas: [fresh] },
      ],
      { code: 0, out: 'plain: ready\n', err: 'plain: ready, a replica is creating (pulling acme/chat:1 43 %)' },
    ],
    [
      'restart',
      [
        { ...off, phase: 'ready', replicas: [ready] },
        { ...off, phase: 'ready', replicas: [ready], rollout: { state: 'refused', text: 'It ended.' } },
      ],
      { code: 1, out: expect.stringContaining('plain: ready, new version rejected: It ended') as string },
    ],
    ['reset', [{ ...off, phase: 'stopped' }], { code: 0, out: 'plain: stopped\n' }],
  ])('prints the result of a command: %s %#', async (kind, script, { code, out, err = '' }) => {
    fleet.ordered = [];
    fleet.over = { ...off, replicas: [ready] };
    fleet.script = script.flatMap((one) => [one, one]);
    const result = await headgate(['engines', kind, 'plain', ...(kind === 'stop' ? ['--yes'] : [])]);
    Object.assign(fleet, { over: {}, script: [], ordered: [] });
    expect(result).toMatchObject({ code, stdout: out });
    expect(result.stderr).toContain(err);
  });

  it('prints the state after its timeout, and exits with 1', async () => {
    fleet.script = [{ ...off, phase: 'starting', replicas: [loading] }];
    const result = await headgate(['engines', 'start', 'plain', '--timeout', '1']);
    const json = await headgate(['--json', 'engines', 'start', 'plain', '--timeout', '1']);
    Object.assign(fleet, { script: [], ordered: [] });
    expect(result).toMatchObject({ code: 1, stderr: 'plain: starting, pulling acme/chat:1 43 %\n' });
    expect(result.stdout).toMatch(/timed out after 1 seconds?, see: headgate engines show plain\n$/);
    expect(json).toMatchObject({ code: 1, stderr: '' });
    expect(JSON.parse(json.stdout)).toMatchObject({ id: 'plain', state: 'starting' });
  });

  it('accepts --json before, within and after the command name', async () => {
    for (const args of [
      ['--json', 'engines', 'ls'],
      ['engines', '--json', 'ls'],
      ['engines', 'ls', '--json'],
    ]) {
      const { code, stdout } = await headgate(args);
      expect([code, JSON.parse(stdout).object], args.join(' ')).toEqual([0, 'list']);
    }
    expect((await headgate(['--json', 'engines', 'logs', '--tail', '1', 'plain'])).code).toBe(0);
  });

  it('prints the last lines of one replica or all, and follows until it is interrupted', async () => {
    fleet.lines = [
      { replicaId: 'r1', line: 'first' },
      { replicaId: 'r1', line: '\u001b[32mgreen\u001b[0m \u0007bell' },
      { replicaId: 'r2', line: 'other' },
    ];
    const all = await headgate(['engines', 'logs', 'plain']);
    expect(all).toMatchObject({ code: 0, stdout: 'first\n\u001b[32mgreen\u001b[0m bell\u001b[0m\nr2 | other\n' });
    expect((await headgate(['engines', 'logs', 'plain', '--replica', 'r1', '--tail', '1'])).code).toBe(1);
    const one = await headgate(['engines', 'logs', 'acme/chat:7b', '--replica', 'r1', '--tail', '1', '--json']);
    expect(JSON.parse(one.stdout)).toMatchObject({ replica: 'r1', line: expect.stringContaining('green') });
    const followed = await headgate(['engines', 'logs', 'plain', '-f', '--tail', '1'], {
      until: (stdout) => stdout.includes('and then'),
    });
    expect(followed.stdout).toBe('other\nand then\n');
  });

  it('lists hosts with free resources and orphaned containers', async () => {
    const { stdout } = await headgate(['hosts', 'ls']);
    expect(stdout).toMatch(
      /^gpu-1 +reachable +0\/1 +12\/16 +1 +big +orphaned: headgate-gone-1, remove it there with "docker rm --force headgate-gone-1"$/m,
    );
    expect(stdout).toMatch(/^gpu-2 +unreachable +0\/0 +- +0 +- +timed out$/m);
  });
});
