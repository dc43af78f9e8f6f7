import { afterAll, describe, expect, it } from 'vitest';
import {
  type Body,
  chatPath,
  errorOf,
  externalFile,
  framesOf,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { startStandIn, type StandIn } from '#test/standin/engine.ts';

/** Deployments that fail, and others that answer in their place: each is an engine that somebody else runs. */

/** Failures of one server before its first byte, by the name of its models. */
const faults = {
  'error-500': ['--status', '500'],
  'error-503': ['--status', '503'],
  garbage: ['--garbage-http', 'true'],
  cut: ['--cut-after', '0'],
  'no-token': ['--error-after', '0'],
} as const;

const flagsOf = {
  ...faults,
  good: [],
  gone: [],
  silent: ['--hang', 'before_headers'],
  'cut-late': ['--cut-after', '3', '--tpot-ms', '5'],
  'error-late': ['--error-after', '3', '--tpot-ms', '5'],
  renewed: ['--lora-modules', 'tuned=test/tuned-lora'],
} as const;

type ServerName = keyof typeof flagsOf;
const serverNames = Object.keys(flagsOf) as readonly ServerName[];
const faultNames = Object.keys(faults) as readonly (keyof typeof faults)[];
const modes = [
  ['streamed', true],
  ['JSON', false],
] as const;

const upstreamNames = ['first', 'second', 'third'];

/** An engine that serves one model under several names, so that it can be several deployments. */
class Server {
  readonly #engine: StandIn;
  readonly url: string;
  #marks = 0;

  private constructor(engine: StandIn) {
    this.#engine = engine;
    this.url = /http:\/\/127\.0\.0\.1:\d+/.exec(engine.log())?.[0] ?? '';
  }

  static async start(flags: readonly string[]): Promise<Server> {
    const place = ['--host', '127.0.0.1', '--port', '0', '--access-log'];
    const names = ['--served-model-name', ...upstreamNames];
    return new Server(await startStandIn([...place, ...names, ...flags], { tcp: true }));
  }

  /** Returns the number of chat requests that have come. */
  async asked(): Promise<number> {
    this.#marks += 1;
    const path = `/mark-${this.#marks}`;
    await fetch(`${this.url}${path}`);
    // The log has a line for each request in their order.
    await this.#engine.logged(`"GET ${path} `);
    return this.#engine.log().split(`"POST ${chatPath} `).length - 1;
  }

  stop(): Promise<void> {
    return this.#engine.stop();
  }
}

const started = new Map<ServerName, Server>();
afterAll(() => Promise.all([...started.values()].map((server) => server.stop())));

function serverOf(name: ServerName): Server {
  const server = started.get(name);
  if (server === undefined) throw new Error(`${name} is started before the tests`);
  return server;
}

/**
 * The file of a model whose last deployment gets requests only instead of the others: by their weights it is chosen
 * first for one of a hundred million requests.
 */
function inOrder(id: string, names: readonly ServerName[], lines: readonly string[] = []): string {
  const deployments = names.map((name, at) => {
    const weight = at === names.length - 1 ? 0.00001 : 1000;
    const place = `url: "${serverOf(name).url}", upstream_model: ${upstreamNames[at]}`;
    return `{ name: ${name}-${at}, ${place}, weight: ${weight} }`;
  });
  const text = externalFile(id, '-', { lines: ['kind: vllm', ...lines] });
  return text.replace(/url: .*/, `deployments: [${deployments.join(', ')}]`);
}

/** The servers of each model. A server that keeps failing gets no more requests of its model: tests have their own. */
const orders: Readonly<Record<string, readonly ServerName[]>> = {
  ...Object.fromEntries(
    modes.flatMap(([mode]) => [
      ...faultNames.map((name) => [`${name}-${mode}`, [name, 'good']] as const),
      [`gone-${mode}`, ['gone', 'good']] as const,
      [`broken-${mode}`, ['error-500', 'error-500', 'good']] as const,
    ]),
  ),
  noted: ['no-token', 'good'],
  well: ['good', 'good'],
  silent: ['silent', 'good'],
  'cut-late': ['cut-late', 'good'],
  'error-late': ['error-late', 'good'],
};

const bench = useInference(async () => {
  const starting = serverNames.map(async (name) => started.set(name, await Server.start(flagsOf[name])));
  await Promise.all(starting);
  const files = Object.entries(orders).map(([id, names]) => [id, inOrder(id, names)] as const);
  return {
    engines: {
      ...Object.fromEntries(files),
      chat: inOrder('chat', ['good', 'renewed'], ['lora: [{ id: tuned }, { id: lacked }]']),
    },
    env: { HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '3' },
  };
});

const get = async (path: string): Promise<Body> => (await bench.gateway.request(path)).json();

/** Returns how many more chat requests these servers got during the work. */
async function countAsked(names: readonly ServerName[], work: () => Promise<unknown>): Promise<readonly number[]> {
  const read = () => Promise.all(names.map((name) => serverOf(name).asked()));
  const before = await read();
  await work();
  const after = await read();
  return after.map((count, at) => count - (before[at] ?? 0));
}

/** More than the five failures in a row that exclude a server. */
const many = 6;

/** Does the work several times, one after another: each time may decide about the next. */
async function repeat(times: number, work: () => Promise<void>): Promise<void> {
  for (let time = 0; time < times; time += 1) await work();
}

/** Checks that the failing server of a model gets no requests for a while, except for one now and then as a trial. */
async function expectExcluded(model: string, server: ServerName, fields: object): Promise<void> {
  const burst = Array.from({ length: 8 }, () => fields);
  const answerAll = () => Promise.all(burst.map(async (each) => (await bench.chat({ model, ...each })).text()));
  const [asked] = await countAsked([server], answerAll);
  expect(asked).toBeLessThan(burst.length / 2);
}

async function expectNoneRunning(model: string): Promise<void> {
  const running = async (): Promise<number> => (await get(`/v1/admin/engines/${model}`)).queue.running;
  await expect.poll(running).toBe(0);
}

describe.each(modes)('a failure before the first byte, %s', (mode, stream) => {
  it.each(faultNames)(
    'is answered by the other server, billed once, and excludes a server that repeats it: %s',
    async (fault) => {
      const model = `${fault}-${mode}`;
      const asked = await countAsked([fault, 'good'], () =>
        repeat(5, async () => {
          const answer = await bench.chat({ model, stream });
          expect(answer.status, await answer.text()).toBe(200);
          expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', output_tokens: 8 });
        }),
      );
      expect(asked).toEqual([5, 5]);
      await expectExcluded(model, fault, { stream });
      await expectNoneRunning(model);
    },
  );

  it('returns upstream_error after two servers, and excludes neither', async () => {
    const model = `broken-${mode}`;
    const asked = await countAsked(['error-500', 'good'], () =>
      repeat(many, async () => {
        const error = await errorOf(await bench.chat({ model, stream }));
        expect(error).toMatchObject({ status: 502, code: 'upstream_error' });
      }),
    );
    expect(asked).toEqual([2 * many, 0]);
    await expectNoneRunning(model);
  });

  it("is not retried when it is the request's fault", async () => {
    const [asked] = await countAsked(['good'], async () => {
      expect((await bench.chat({ model: 'well', stream, temperature: -1 })).status).toBe(400);
    });
    expect(asked).toBe(1);
  });
});

it('a request is not retried after silence, since it may be running', async () => {
  const asked = await countAsked(['silent', 'good'], async () => {
    const answers = await Promise.all(modes.map(([, stream]) => bench.chat({ model: 'silent', stream })));
    expect(answers.map(({ status }) => status)).toEqual([504, 504]);
  });
  expect(asked).toEqual([2, 0]);
});

it('a retried attempt is recorded outside usage, unless its server was never reached', async () => {
  await serverOf('gone').stop();
  const refused = await Promise.all(modes.map(([mode, stream]) => bench.chat({ model: `gone-${mode}`, stream })));
  for (const answer of refused) expect(answer.status, await answer.text()).toBe(200);
  for (const [mode] of modes) await expectNoneRunning(`gone-${mode}`);
  const answer = await bench.chat({ model: 'noted', stream: true });
  await answer.text();
  expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', output_tokens: 8 });
  const noted = () => bench.gateway.db.sql`select model, replica, requests::int, uncounted::int from engine_requests
    where kind = 'retry' and (model = 'noted' or model like 'gone-%')`;
  await expect.poll(noted).not.toEqual([]);
  const { replicas } = await get('/v1/admin/engines/noted');
  const failed = replicas.find(({ deployment }: Body) => deployment.name === 'no-token-0');
  expect(await noted()).toEqual([{ model: 'noted', replica: failed.id, requests: 1, uncounted: 1 }]);
  const listed = await get('/v1/usage/requests?limit=100&model=noted');
  expect(listed.data.map(({ id }: Body) => id)).toEqual([answer.headers.get('x-request-id')]);
});

describe('a failure after the first frame', () => {
  async function expectBroken(model: string): Promise<void> {
    const frames = framesOf(await (await bench.chat({ model, stream: true })).text());
    expect(frames.slice(-2)).toEqual([{ error: expect.objectContaining({ code: 'upstream_error' }) }, '[DONE]']);
  }

  it('is never retried, since the client has read a part, and excludes a server that repeats it', async () => {
    const asked = await countAsked(['cut-late', 'good'], () => repeat(5, () => expectBroken('cut-late')));
    expect(asked).toEqual([5, 0]);
    await expectExcluded('cut-late', 'cut-late', { stream: true });
  });

  it('excludes no server that reports it, since the request may be the cause', async () => {
    const asked = await countAsked(['error-late', 'good'], () => repeat(many, () => expectBroken('error-late')));
    expect(asked).toEqual([many, 0]);
  });
});

describe('an adapter that not every server has loaded', () => {
  /** Checks that the first server still gets requests. */
  async function expectFirst(): Promise<void> {
    const asked = await countAsked(['good', 'renewed'], async () => {
      expect((await bench.chat({ model: 'chat' })).status).toBe(200);
    });
    expect(asked).toEqual([1, 0]);
  }

  it('returns upstream_error when no server has it, and excludes none', async () => {
    const asked = await countAsked(['good', 'renewed'], () =>
      repeat(many, async () => {
        const error = await errorOf(await bench.chat({ model: 'lacked' }));
        expect(error).toMatchObject({ status: 502, code: 'upstream_error' });
        expect(error.message).toContain('has not loaded this adapter');
      }),
    );
    expect(asked).toEqual([many, many]);
    await expectFirst();
  });

  it.each(modes)('is answered by the server that has it, and excludes no other, %s', async (_, stream) => {
    const asked = await countAsked(['good', 'renewed'], () =>
      repeat(many, async () => {
        const answer = await bench.chat({ model: 'tuned', stream });
        expect(await answer.text()).toContain('"model":"tuned"');
        expect(await bench.recordOf(answer)).toMatchObject({ model: 'tuned', outcome: 'completed' });
      }),
    );
    expect(asked).toEqual([many, many]);
    await expectFirst();
  });
});
