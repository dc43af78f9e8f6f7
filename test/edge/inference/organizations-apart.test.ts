import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { startGateway } from '#test/gateway.ts';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  externalFile,
  json,
  openOrganization,
  standinFile,
  useInference,
  writeEngines,
} from '#test/inference/inference-gateway.ts';

/** The part of an engine that organizations share: its cache of their prompts. */

const jsonBody = '{"choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}';
const jsonAnswer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${jsonBody.length}\r\n\r\n${jsonBody}`;

let engine: ByteServer | null = null;
let engineUrl = '';

const bench = useInference(async () => {
  engine = await startByteServer({ transport: 'tcp', answer: ({ socket }) => void socket.write(jsonAnswer) });
  engineUrl = `http://127.0.0.1:${engine.endpoint.port}`;
  return {
    engines: {
      chat: standinFile('chat'),
      shared: standinFile('shared', { lines: ['share_cache: true'] }),
      vllm: externalFile('vllm', engineUrl, { lines: ['kind: vllm'] }),
      open: externalFile('open', engineUrl, { lines: ['kind: vllm', 'share_cache: true'] }),
      embed: externalFile('embed', engineUrl, { lines: ['kind: vllm'], taskType: 'embedding' }),
      other: externalFile('other', engineUrl),
    },
  };
});
afterAll(() => engine?.close());

/** Body of the last request that has one: the gateway asks for /health and /metrics by itself. */
const seenBody = (): Body => {
  const text = engine?.requests.findLast(({ body }) => body.length > 0)?.body ?? '';
  return JSON.parse(Buffer.from(text, 'latin1').toString('utf8'));
};

let one = '';
let two = '';
beforeAll(async () => {
  one = (await openOrganization(bench.gateway, '5')).key;
  two = (await openOrganization(bench.gateway, '5')).key;
});

/** A prompt that nobody else here sends. */
const longPrompt = (name: string): object => ({
  messages: [{ role: 'user', content: `${name}: ${'a confidential sentence. '.repeat(40)}` }],
});

/** The stand-in sets this before every conversation; each organization reads it once. */
const headTokens = 16;

/** How many tokens of a prompt an engine had cached, without the beginning that all prompts have in common. */
async function cachedTokens(key: string, body: object): Promise<number> {
  const answer = await bench.chat(body, { key });
  expect(answer.status).toBe(200);
  const { usage }: Body = await answer.json();
  const cached: number = usage.prompt_tokens_details.cached_tokens;
  return Math.max(0, cached - headTokens);
}

describe('the prefix cache count in an answer', () => {
  it("reveals nothing of another organization's prompts, neither by count nor by price", async () => {
    const prompt = longPrompt('apart');
    expect(await cachedTokens(one, prompt)).toBe(0);
    expect(await cachedTokens(two, prompt)).toBe(0);
    expect(await cachedTokens(one, prompt)).toBeGreaterThan(100);
    expect(await cachedTokens(two, prompt)).toBeGreaterThan(100);
  });

  it("reveals nothing of another organization's prompts when the salt is guessed", async () => {
    const prompt = { ...longPrompt('salted'), cache_salt: 'the same salt' };
    expect(await cachedTokens(one, prompt)).toBe(0);
    expect(await cachedTokens(two, prompt)).toBe(0);
    expect(await cachedTokens(one, prompt)).toBeGreaterThan(100);
  });

  it("separates an organization's own salts from each other", async () => {
    const prompt = longPrompt('own salts');
    expect(await cachedTokens(one, prompt)).toBe(0);
    expect(await cachedTokens(one, { ...prompt, cache_salt: 'a' })).toBe(0);
    expect(await cachedTokens(one, { ...prompt, cache_salt: 'b' })).toBe(0);
    expect(await cachedTokens(one, { ...prompt, cache_salt: 'a' })).toBeGreaterThan(100);
    expect(await cachedTokens(one, prompt)).toBeGreaterThan(100);
  });

  it('is shared by all organizations when the engine file shares the cache', async () => {
    const prompt = { model: 'shared', ...longPrompt('shared') };
    expect(await cachedTokens(one, prompt)).toBe(0);
    expect(await cachedTokens(two, prompt)).toBeGreaterThan(100);
  });
});

describe('the cache_salt that vLLM receives', () => {
  const salt = async (body: object, key: string, path = chatPath): Promise<unknown> => {
    expect((await bench.post(path, body, { key })).status).toBe(200);
    return seenBody().cache_salt;
  };
  const vllm = (more: object = {}): object => chatBody({ model: 'vllm', ...more });

  it('is constant for an organization, and different for each organization and each own salt', async () => {
    const own = await salt(vllm(), one);
    expect(own).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(await salt(vllm({ max_tokens: 9 }), one)).toBe(own);
    expect(await salt(vllm({ cache_salt: null }), one)).toBe(own);
    const all = [own];
    for (const given of ['a', 'ä', own]) all.push(await salt(vllm({ cache_salt: given }), one));
    all.push(await salt(vllm(), two), await salt(vllm({ cache_salt: 'a' }), two));
    expect(new Set(all).size).toBe(all.length);
    expect(all.every((text) => /^[A-Za-z0-9_-]{43}$/.test(String(text)))).toBe(true);
  });

  it('leaves all other bytes as they were sent', async () => {
    const sent =
      ' {"messages" : [{"role":"user","content":"é\\u00e9"}],\n"model":"vllm","cache_salt":  "x" ,"b":1e400} ';
    expect((await bench.post(chatPath, sent, { headers: json, key: one })).status).toBe(200);
    const body = Buffer.from(
      engine?.requests.findLast(({ head }) => head.startsWith('POST '))?.body ?? '',
      'latin1',
    ).toString('utf8');
    expect(body.replace(/"[A-Za-z0-9_-]{43}"/, '"x"')).toBe(sent);
    const without = sent.replace('"cache_salt":  "x" ,', '');
    expect((await bench.post(chatPath, without, { headers: json, key: one })).status).toBe(200);
    const salted = Buffer.from(
      engine?.requests.findLast(({ head }) => head.startsWith('POST '))?.body ?? '',
      'latin1',
    ).toString('utf8');
    expect(salted.replace(/"cache_salt":"[A-Za-z0-9_-]{43}",/, '')).toBe(without);
  });

  it('is sent with embeddings too', async () => {
    expect(await salt({ model: 'embed', input: 'x' }, one, '/v1/embeddings')).toBe(await salt(vllm(), one));
  });

  it("is the client's own when the engine file shares the cache, and for engines other than vLLM", async () => {
    for (const model of ['open', 'other']) {
      expect(await salt(chatBody({ model }), one)).toBeUndefined();
      expect(await salt(chatBody({ model, cache_salt: 'mine' }), one)).toBe('mine');
    }
  });

  it.each([[''], [5], [{}], ['x'.repeat(1025)]])('returns 400 like vLLM: %j', async (given) => {
    const wanted = { status: 400, code: 'invalid_value', param: 'cache_salt' };
    expect(await errorOf(await bench.post(chatPath, vllm({ cache_salt: given }), { key: one }))).toMatchObject(wanted);
  });
});

describe('gateways of one database', () => {
  let database: TestDatabase | null = null;
  afterAll(() => database?.drop());

  it('use the same salt for an organization, also after a restart', async () => {
    database = await createTestDatabase();
    const enginesDir = writeEngines({ vllm: externalFile('vllm', engineUrl, { lines: ['kind: vllm'] }) });
    const env = { HEADGATE_BOOTSTRAP_KEY: `sk-test-${'k'.repeat(40)}` };
    const salts: unknown[] = [];
    for (let start = 0; start < 2; start += 1) {
      const gateway = await startGateway({ enginesDir, databaseUrl: database.url, env });
      expect((await gateway.request(chatPath, { body: chatBody({ model: 'vllm' }) })).status).toBe(200);
      salts.push(seenBody().cache_salt);
      await gateway.stop();
    }
    expect(salts[0]).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(salts[1]).toBe(salts[0]);
  });
});
