import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import { type Body, chatPath, eventually, externalFile, useInference } from '#test/inference/inference-gateway.ts';

/** A server of the model with a name of the model and a key of its own. */
class Deployment {
  readonly model: string;
  /** Keys of the requests that it answered, each with its own key only. */
  readonly keys: string[] = [];
  status = 200;
  port = 0;
  #server: Server | null = null;

  constructor(model: string) {
    this.model = model;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async open(): Promise<void> {
    if (this.#server !== null) return;
    const server = createServer((incoming, response) => {
      void this.#answer(incoming).then(({ status, body }) => response.writeHead(status).end(JSON.stringify(body)));
    });
    await new Promise<void>((resolve) => server.listen(this.port, '127.0.0.1', resolve));
    this.port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    server?.closeAllConnections();
    await new Promise<void>((resolve) => (server === null ? resolve() : server.close(() => resolve())));
  }

  async #answer(incoming: IncomingMessage): Promise<{ readonly status: number; readonly body: object }> {
    const text = await readText(incoming);
    if (incoming.method === 'GET') return { status: incoming.url === '/health' ? 200 : 404, body: {} };
    if (this.status !== 200) return { status: this.status, body: {} };
    const { model }: Body = JSON.parse(text);
    if (model !== this.model) return { status: 404, body: {} };
    this.keys.push(incoming.headers.authorization ?? '');
    const choices = [{ index: 0, message: { role: 'assistant', content: 'word' }, finish_reason: 'stop' }];
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    return { status: 200, body: { id: 'x', model, choices, usage } };
  }
}

const large = new Deployment('large/chat');
const small = new Deployment('small-chat');
const both = [large, small];
/** Every status that is not the request's fault; each fails at a model of its own, which stays ejected after its test. */
const failing = [500, 301, 401, 402, 404, 405, 410, 429];
const secrets = { LARGE_KEY: 'key-of-large-0123456789', SMALL_KEY: 'key-of-small-0123456789' };

const fileOf = (id: string, deployments: readonly string[]): string =>
  externalFile(id, '-').replace(/url: .*/, `deployments: [${deployments.join(', ')}]`);

const bench = useInference(async () => {
  for (const one of both) await one.open();
  const largeFields = `url: "${large.url}", upstream_model: ${large.model}, api_key_env: LARGE_KEY`;
  const smallFields = `url: "${small.url}", upstream_model: ${small.model}, api_key_env: SMALL_KEY`;
  const weighted = [`{ name: large, ${largeFields}, weight: 3 }`, `{ name: small, ${smallFields} }`];
  const failingFiles = failing.map((status) => [`fails-${status}`, fileOf(`fails-${status}`, weighted)] as const);
  return {
    engines: {
      ...Object.fromEntries(failingFiles),
      chat: fileOf('chat', weighted),
      even: fileOf('even', [`{ name: large, ${largeFields} }`, `{ ${smallFields} }`]),
      keys: fileOf('keys', [
        `{ name: one, ${largeFields}, weight: 2 }`,
        `{ name: two, url: "${large.url}", upstream_model: ${large.model}, api_key_env: SMALL_KEY }`,
      ]),
    },
    env: secrets,
  };
});
afterAll(() => Promise.all(both.map((one) => one.close())));
afterEach(async () => {
  for (const one of both) {
    one.status = 200;
    one.keys.length = 0;
    await one.open();
  }
});

async function get(path: string): Promise<Body> {
  return (await bench.gateway.request(path)).json();
}

/** Sends requests one after another, and returns their answers. */
async function ask(count: number, fields: object = {}): Promise<Response[]> {
  const answers: Response[] = [];
  for (let at = 0; at < count; at += 1) answers.push(await bench.chat({ model: 'chat', ...fields }));
  return answers;
}

const statuses = (answers: readonly Response[]): readonly number[] => [...new Set(answers.map(({ status }) => status))];

const healthOf = async (name: string): Promise<unknown> => {
  const { replicas } = await get('/v1/admin/engines/chat');
  return replicas.find((one: Body) => one.deployment.name === name).healthy;
};

describe('a model with several deployments', () => {
  it('sends each its own key and model name, and bills by the one public model', async () => {
    const answers = await ask(40);
    expect(statuses(answers)).toEqual([200]);
    expect(new Set(large.keys)).toEqual(new Set([`Bearer ${secrets.LARGE_KEY}`]));
    expect(new Set(small.keys)).toEqual(new Set([`Bearer ${secrets.SMALL_KEY}`]));
    for (const answer of answers.slice(0, 3)) {
      expect(await answer.clone().json()).toMatchObject({ model: 'chat' });
      // 10 tokens at 0.10 and 5 at 0.40 USD per million.
      expect(await bench.recordOf(answer)).toMatchObject({ model: 'chat', cost: '0.000003' });
    }
  });

  it('divides requests by weight', async () => {
    expect(statuses(await ask(400))).toEqual([200]);
    expect(large.keys.length + small.keys.length).toBe(400);
    // Three quarters of 400, give or take five standard deviations.
    expect(Math.abs(large.keys.length - 300)).toBeLessThan(45);
  });

  it('divides simultaneous requests by weight too', async () => {
    const answers = await Promise.all(Array.from({ length: 200 }, () => bench.chat({ model: 'chat' })));
    expect(statuses(answers)).toEqual([200]);
    expect(Math.abs(large.keys.length - 150)).toBeLessThan(32);
  });

  it('keeps requests with the same prompt_cache_key at one deployment, and divides keys by weight', async () => {
    let atLarge = 0;
    for (let key = 0; key < 100; key += 1) {
      const [before] = [large.keys.length];
      await ask(2, { prompt_cache_key: `conversation ${key}` });
      const found = large.keys.length - before;
      expect([0, 2]).toContain(found);
      atLarge += found / 2;
    }
    expect(Math.abs(atLarge - 75)).toBeLessThan(22);
  });

  it('accepts two deployments with one address and different keys', async () => {
    expect(statuses(await ask(40, { model: 'keys' }))).toEqual([200]);
    expect(new Set(large.keys)).toEqual(new Set(Object.values(secrets).map((key) => `Bearer ${key}`)));
  });

  it.each(failing)('answers from another deployment when one fails with status %d', async (status) => {
    large.status = status;
    expect(statuses(await ask(12, { model: `fails-${status}` }))).toEqual([200]);
    expect(small.keys).toHaveLength(12);
  });

  it('uses a deployment again that had failed', async () => {
    const answered = await eventually(async () => {
      const answers = await ask(1, { model: 'fails-500' });
      return large.keys.length > 0 && answers;
    });
    expect(statuses(answered)).toEqual([200]);
  });

  it('avoids a deployment that does not answer its probes, and uses it again once it does', async () => {
    await large.close();
    expect(statuses(await ask(12))).toEqual([200]);
    await eventually(async () => (await healthOf('large')) === false);
    expect(await healthOf('small')).not.toBe(false);
    const { url, key } = bench.gateway;
    const listed = await runCli(['engines', 'ls'], { env: { HEADGATE_URL: url, HEADGATE_API_KEY: key } });
    expect(listed.stdout).toMatch(/^chat .*1\/2.*no answer to health checks: large/m);
    await large.open();
    await eventually(async () => (await healthOf('large')) === true);
    await eventually(async () => (await ask(1)).length > 0 && large.keys.length > 0);
  });

  it('names the deployment that rejects requests to the operator', async () => {
    small.status = 404;
    await ask(20);
    const detail: string = await eventually(async () => (await get('/v1/admin/engines/chat')).last_failure?.detail);
    expect(detail).toMatch(`small (127.0.0.1:${small.port}) answered 404 to POST ${chatPath}: check upstream_model`);
  });

  it('shows names, models and weights to operators, and no keys', async () => {
    const answer = await (await bench.gateway.request('/v1/admin/engines/chat')).text();
    const { replicas }: Body = JSON.parse(answer);
    expect(replicas.map((one: Body) => one.deployment)).toEqual([
      { name: 'large', upstream_model: 'large/chat', weight: 3 },
      { name: 'small', upstream_model: 'small-chat', weight: 1 },
    ]);
    for (const secret of [...Object.values(secrets), ...Object.keys(secrets)]) expect(answer).not.toContain(secret);
    const { replicas: even }: Body = await get('/v1/admin/engines/even');
    expect(even.map((one: Body) => one.deployment.name)).toEqual(['large', `127.0.0.1:${small.port}`]);
  });
});
