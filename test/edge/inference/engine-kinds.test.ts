import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  eventually,
  externalFile,
  json,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

interface Manner {
  /** Answer of GET /version; null for a server without the route. */
  version: string | null;
  versionStatus?: number;
  metrics: string;
  delayMs?: number;
}

const vllmMetrics = 'vllm:prompt_tokens_total{engine="0"} 1.0\nvllm:generation_tokens_total{engine="0"} 1.0\n';

/** An external server, with the bodies that it got. */
class OtherServer {
  readonly bodies: Body[] = [];
  readonly manner: Manner;
  #server: Server | null = null;
  url = '';

  constructor(manner: Manner) {
    this.manner = manner;
  }

  async open(): Promise<void> {
    const server = createServer((request, answer) => void this.#answer(request, answer));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }

  last(): Body {
    return this.bodies.at(-1);
  }

  async #answer(request: IncomingMessage, answer: ServerResponse): Promise<void> {
    const { version, versionStatus = 200, metrics, delayMs = 0 } = this.manner;
    if (request.url === '/version' && version !== null) {
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      answer.writeHead(versionStatus, json).end(JSON.stringify({ version }));
    } else if (request.url === '/metrics' && metrics !== '') answer.writeHead(200).end(metrics);
    else if (request.method === 'POST') {
      this.bodies.push(JSON.parse(await readText(request)));
      const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4, input_tokens: 3, output_tokens: 1 };
      const choices = [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }];
      answer.writeHead(200, json).end(JSON.stringify({ id: 'x', status: 'completed', output: [], choices, usage }));
    } else answer.writeHead(404).end();
  }
}

const servers = {
  found: new OtherServer({ version: '0.29.0', metrics: vllmMetrics, delayMs: 500 }),
  plain: new OtherServer({ version: null, metrics: '' }),
  halfway: new OtherServer({ version: '3.1', metrics: 'http_requests_total 1\n' }),
  newer: new OtherServer({ version: '0.99.1', metrics: vllmMetrics }),
  silent: new OtherServer({ version: '0.29.0', versionStatus: 503, metrics: vllmMetrics }),
  mixed: new OtherServer({ version: null, metrics: '' }),
};

const bench = useInference(async () => {
  await Promise.all(Object.values(servers).map((server) => server.open()));
  const { found, plain, halfway, newer, silent, mixed } = servers;
  const both = `urls: [${newer.url}, ${mixed.url}]`;
  return {
    engines: {
      found: externalFile('found', found.url),
      plain: externalFile('plain', plain.url),
      halfway: externalFile('halfway', halfway.url),
      unmarked: externalFile('unmarked', newer.url, { lines: ['kind: openai'] }),
      mismarked: externalFile('mismarked', plain.url, { lines: ['kind: vllm'] }),
      newer: externalFile('newer', newer.url),
      silent: externalFile('silent', silent.url, { lines: ['kind: vllm'] }),
      mixed: externalFile('mixed', newer.url).replace(/url: .*/, both),
      ours: standinFile('ours'),
    },
    env: { HEADGATE_METRICS_PORT: '0' },
  };
});
afterAll(() => Object.values(servers).forEach((server) => server.close()));

let one = '';
let two = '';
beforeAll(async () => {
  one = (await openOrganization(bench.gateway, '5')).key;
  two = (await openOrganization(bench.gateway, '5')).key;
});

/** The engine once it was asked. */
const engine = (id: string): Promise<Body> =>
  eventually(async () => {
    const answer: Body = await (await bench.gateway.request(`/v1/admin/engines/${id}`)).json();
    return answer.replicas.length > 0 && (answer.kind !== 'vllm' || answer.replicas[0].version !== null)
      ? answer
      : null;
  });

describe('an external engine whose file names no kind', () => {
  it('is treated as vLLM from the first request on if it answers as vLLM', async () => {
    const { found } = servers;
    expect((await bench.chat({ model: 'found' }, { key: one })).status).toBe(200);
    const salt: string = found.last().cache_salt;
    expect(salt).toMatch(/^[\w-]{43}$/);
    await bench.chat({ model: 'found' }, { key: two });
    expect(found.last().cache_salt).toMatch(/^[\w-]{43}$/);
    expect(found.last().cache_salt).not.toBe(salt);
    const answer = await bench.post('/v1/responses', { model: 'found', input: 'Hi' });
    expect(answer.status).toBe(200);
    expect(found.last().request_id).toBe(`resp_${answer.headers.get('x-request-id')}`);
    expect(await engine('found')).toMatchObject({
      kind: 'vllm',
      warnings: [],
      replicas: [{ version: { name: '0.29.0', tried: true } }],
    });
  });

  it.each(['plain', 'halfway'] as const)('gets what the client sent if it does not answer as vLLM: %s', async (id) => {
    await bench.chat({ model: id });
    await bench.post('/v1/responses', { model: id, input: 'Hi' });
    for (const body of servers[id].bodies) {
      expect(body).not.toHaveProperty('cache_salt');
      expect(body).not.toHaveProperty('request_id');
    }
    expect(await engine(id)).toMatchObject({ kind: 'openai', warnings: [], replicas: [{ version: null }] });
  });

  it('sends a salt to those of its addresses that are vLLM, and warns of the others', async () => {
    const { mixed, newer } = servers;
    const counts = (): number[] => [newer, mixed].map(({ bodies }) => bodies.length);
    const before = counts();
    await eventually(async () => {
      await Promise.all(Array.from({ length: 4 }, () => bench.chat({ model: 'mixed' })));
      return counts().every((count, index) => count > (before[index] ?? 0));
    });
    expect(newer.last()).toHaveProperty('cache_salt');
    expect(mixed.last()).not.toHaveProperty('cache_salt');
    const warned = await eventually(async () => {
      const answer = await engine('mixed');
      return answer.warnings.length > 0 ? answer : null;
    });
    expect(warned).toMatchObject({ kind: 'openai', warnings: [expect.stringContaining('others are not')] });
  });
});

describe('the version and kind of an engine', () => {
  it('warns of a file that contradicts the engine, and follows the file', async () => {
    const warned = (id: string): Promise<Body> =>
      eventually(async () => ((await engine(id)).warnings.length > 0 ? engine(id) : null));
    expect((await warned('unmarked')).warnings).toEqual([expect.stringContaining('Set kind: vllm.')]);
    expect((await warned('mismarked')).warnings).toEqual([expect.stringContaining('set kind: openai.')]);
    await bench.chat({ model: 'unmarked' });
    expect(servers.newer.last()).not.toHaveProperty('cache_salt');
    await bench.chat({ model: 'mismarked' });
    expect(servers.plain.last()).toHaveProperty('cache_salt');
  });

  it('names an untried version, and an unknown one', async () => {
    const { replicas } = await engine('newer');
    expect(replicas).toMatchObject([{ version: { name: '0.99.1', tried: false } }]);
    expect((await engine('silent')).replicas).toMatchObject([{ version: { name: null, tried: false } }]);
  });

  it('is known of an engine that the gateway starts, and counted by a metric', async () => {
    expect((await bench.chat({ model: 'ours' })).status).toBe(200);
    const { replicas } = await engine('ours');
    expect(replicas[0].version).toMatchObject({ name: expect.stringMatching(/^0\.\d+\.0$/), tried: true });
    const text = await (await fetch(new URL('/metrics', bench.gateway.metricsUrl ?? ''))).text();
    expect(text).toContain('headgate_engine_version{engine="newer",version="0.99.1",tried="false"} 1');
    expect(text).toContain('headgate_engine_version{engine="silent",version="unknown",tried="false"} 1');
    expect(text).toContain(
      `headgate_engine_version{engine="ours",version="${replicas[0].version.name}",tried="true"} 1`,
    );
  });
});
