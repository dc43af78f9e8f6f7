import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Lease, Replica } from '#core/fleet/fleet.ts';
import type { Routing } from '#core/routing/routing.ts';
import { startStandIn, type StandIn } from '#test/standin/engine.ts';
import type { Body } from '#test/inference/inference-gateway.ts';

/** Two replicas of one engine, handed out in this order, and the outcome of their leases. */
const fake = vi.hoisted(() => ({
  replicas: [] as Replica[],
  taken: [] as string[],
  open: 0,
  reported: [] as string[],
}));

// The fleet of this version runs one replica of an engine; the path is ready for several.
vi.mock(import('#core/routing/routing.ts'), async (importOriginal) => ({
  ...(await importOriginal()),
  createRouting: (): Routing => ({
    now(_, { exclude } = {}) {
      const replica = fake.replicas.find(({ id }) => exclude?.has(id) !== true);
      if (replica === undefined) return null;
      fake.taken.push(replica.id);
      fake.open += 1;
      let held = true;
      const release = (): void => {
        if (held) fake.open -= 1;
        held = false;
      };
      return {
        replica,
        cold: false,
        readySinceMs: null,
        isWedged: false,
        describe: () => undefined,
        release,
      } satisfies Lease;
    },
    replicas: () => fake.replicas.length,
    wait: () => Promise.reject(new Error('no replica has to be waited for')),
    flex: () => Promise.reject(new Error('nobody asks for flex here')),
    coldStartMs: () => null,
    downloadText: () => null,
    reportRefusal: () => undefined,
    report: ({ replica }, outcome) => void fake.reported.push(`${replica.id} ${outcome}`),
    close: () => {},
  }),
}));

// Files of a worker share their modules: the path of an earlier file has the real routing, and the next one needs it.
vi.resetModules();
const { errorOf, framesOf, standinFile, useInference } = await import('#test/inference/inference-gateway.ts');
afterAll(() => void vi.resetModules());

const engines: StandIn[] = [];

function replicaOf(id: string, socketPath: string): Replica {
  const endpoint = { socketPath, host: 'localhost', port: 0, tls: false, basePath: '' };
  return { id, engineId: 'chat', endpoint, upstreamModel: null, headerLines: '', forcedUsage: true, kind: 'vllm' };
}

async function startReplica(flags: readonly string[] = []): Promise<string> {
  const engine = await startStandIn([
    '--served-model-name',
    'chat',
    '--enable-force-include-usage',
    '--dev-mode',
    ...flags,
  ]);
  engines.push(engine);
  return engine.socketPath;
}

let good = '';
const bench = useInference(async () => {
  good = await startReplica();
  const lora = 'lora: [{ id: tuned, path: test/tuned-lora }]';
  return {
    engines: { chat: standinFile('chat', { lines: [lora] }) },
    env: { HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '1' },
  };
});
afterAll(() => Promise.all(engines.map((engine) => engine.stop())));
beforeEach(() => {
  Object.assign(fake, { replicas: [], taken: [], open: 0, reported: [] });
});

/** Puts a replica that fails in a way of its own before the good one. */
async function failFirst(flags: readonly string[]): Promise<void> {
  fake.replicas = [replicaOf('bad', await startReplica(flags)), replicaOf('good', good)];
}

describe.each([
  ['streamed', true],
  ['JSON', false],
])('a failure before the first byte, %s', (_, stream) => {
  it.each([
    ['status 500', ['--status', '500']],
    ['status 503', ['--status', '503']],
    ['bytes that are not HTTP', ['--garbage-http', 'true']],
    ['a cut', ['--cut-after', '0']],
    ['an error before the first token', ['--error-after', '0']],
  ])('is answered by the other replica, and billed once: %s', async (__, flags) => {
    await failFirst(flags);
    const answer = await bench.chat({ stream });
    expect(answer.status).toBe(200);
    await answer.text();
    expect(fake.taken).toEqual(['bad', 'good']);
    expect(fake.reported).toEqual(['bad failed', 'good answered']);
    expect(fake.open).toBe(0);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', output_tokens: 8 });
  });

  it('is answered by the other replica after a refused connection, and reported', async () => {
    fake.replicas = [replicaOf('gone', '/nonexistent/engine.sock'), replicaOf('good', good)];
    const answer = await bench.chat({ stream });
    expect(answer.status).toBe(200);
    await answer.text();
    expect(fake.reported).toEqual(['gone unreachable', 'good answered']);
    expect(fake.open).toBe(0);
  });

  it('returns upstream_error after two replicas, and counts against neither', async () => {
    const bad = await startReplica(['--status', '500']);
    fake.replicas = ['one', 'two', 'three'].map((id) => replicaOf(id, bad));
    expect(await errorOf(await bench.chat({ stream }))).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(fake.taken).toEqual(['one', 'two']);
    expect(fake.reported).toEqual(['one unknown', 'two unknown']);
    expect(fake.open).toBe(0);
  });

  it("is not retried when it is the request's fault", async () => {
    fake.replicas = [replicaOf('one', good), replicaOf('two', good)];
    expect((await bench.chat({ stream, temperature: -1 })).status).toBe(400);
    expect(fake.taken).toEqual(['one']);
  });

  it('is not retried after silence, since the request may be running', async () => {
    await failFirst(['--hang', 'before_headers']);
    expect((await bench.chat({ stream })).status).toBe(504);
    expect(fake.taken).toEqual(['bad']);
    expect(fake.reported).toEqual(['bad failed']);
  });
});

it('records a retried attempt of an engine outside usage', async () => {
  await failFirst(['--error-after', '0']);
  const answer = await bench.chat({ stream: true });
  await answer.text();
  const noted = async () => bench.gateway.db.sql`select kind, model, requests::int, uncounted::int from engine_requests
    where replica = 'bad' and hour = date_trunc('hour', now())`;
  await expect.poll(noted).not.toEqual([]);
  const record = await bench.recordOf(answer);
  expect(record).toMatchObject({ outcome: 'completed', output_tokens: 8 });
  expect((await noted())[0]).toMatchObject({ kind: 'retry', model: 'chat' });
  const listed: Body = await (await bench.gateway.request('/v1/usage/requests?limit=100')).json();
  expect(listed.data.filter(({ id }: Body) => id === record.id)).toHaveLength(1);
});

describe('a failure after the first frame', () => {
  it('is never retried, since the client has read a part', async () => {
    await failFirst(['--cut-after', '3', '--tpot-ms', '5']);
    const frames = framesOf(await (await bench.chat({ stream: true })).text());
    expect(frames.slice(-2)).toEqual([{ error: expect.objectContaining({ code: 'upstream_error' }) }, '[DONE]']);
    expect(fake.taken).toEqual(['bad']);
    expect(fake.reported).toEqual(['bad failed']);
  });

  it('does not count against the replica when the engine reports it, since the request may be the cause', async () => {
    await failFirst(['--error-after', '3', '--tpot-ms', '5']);
    for (let request = 0; request < 5; request += 1) {
      const frames = framesOf(await (await bench.chat({ stream: true })).text());
      expect(frames.slice(-2)).toEqual([{ error: expect.objectContaining({ code: 'upstream_error' }) }, '[DONE]']);
    }
    expect(fake.taken).toEqual(Array.from({ length: 5 }, () => 'bad'));
    expect(fake.reported).toEqual(Array.from({ length: 5 }, () => 'bad unknown'));
  });
});

describe('an adapter that not every replica has loaded', () => {
  it('returns 503 with Retry-After when no replica has it, and counts against none', async () => {
    fake.replicas = [replicaOf('one', good), replicaOf('two', good)];
    const answer = await bench.chat({ model: 'tuned' });
    expect(answer.headers.get('retry-after')).toBe('5');
    const error = await errorOf(answer);
    expect(error).toMatchObject({ status: 503, code: 'upstream_error' });
    expect(error.message).toContain('has not been updated with this adapter yet');
    expect(fake.reported).toEqual(['one unknown', 'two unknown']);
  });

  it.each([true, false])('is answered by the replica that has it, streamed: %s', async (stream) => {
    const renewed = await startReplica(['--lora-modules', 'tuned=test/tuned-lora']);
    fake.replicas = [replicaOf('old', good), replicaOf('renewed', renewed)];
    const answer = await bench.chat({ model: 'tuned', stream });
    expect(await answer.text()).toContain('"model":"tuned"');
    expect(fake.reported).toEqual(['old unknown', 'renewed answered']);
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'tuned', outcome: 'completed' });
  });
});
