import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { type ClientRequest, request } from 'node:http';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { engineFile } from '#test/programs/gateway-process.ts';
import type { Body } from '#test/inference/inference-gateway.ts';
import { serveCustomer, tell, until, useVictim } from './attacked-gateway.ts';

/**
 * An engine that answers 100 MB, as 1,200 inputs make with a model of 4,096 dimensions, under a name of its own. Asked
 * for `half` of it, it reports when all of that is sent and then goes silent, and breaks the connection on request.
 * Asked for several texts, it answers them, unless one of them is `silent`.
 */
const engineProgram = `
const { createServer } = require('node:http');
const { parentPort } = require('node:worker_threads');
const { Readable } = require('node:stream');
const numbers = Array.from({ length: 4096 }, (_, index) => Math.sin(index) / 64).join(',');
const vector = Buffer.from('{"object":"embedding","index":0,"embedding":[' + numbers + ']}');
const comma = Buffer.from(',');
const head = Buffer.from('{"id":"e","object":"list","model":"its/own-name","data":[');
const tail = Buffer.from('],"usage":{"prompt_tokens":2048,"total_tokens":2048,"completion_tokens":0}}');
const bytes = head.length + 1200 * vector.length + 1199 + tail.length;
function* vectors(count) {
  yield head;
  for (let sent = 0; sent < count; sent += 1) yield sent === 0 ? vector : Buffer.concat([comma, vector]);
}
function* whole() {
  yield* vectors(1200);
  yield tail;
}
let halves = [];
function* several(count) {
  yield head;
  for (let index = 0; index < count; index += 1) {
    yield Buffer.from((index === 0 ? '' : ',') + '{"object":"embedding","index":' + index + ',"embedding":[' + numbers + ']}');
  }
  yield Buffer.from(tail.toString().replaceAll('2048', String(count)));
}
async function half(answer) {
  halves.push(answer);
  for (const part of vectors(600)) if (!answer.write(part)) await new Promise((next) => answer.once('drain', next));
  parentPort.postMessage('half');
}
const server = createServer(async (incoming, answer) => {
  let body = '';
  for await (const part of incoming) body += part;
  answer.writeHead(200, { 'content-type': 'application/json' });
  if (incoming.method !== 'POST') answer.end('{"data":[]}');
  else if (body.includes('half')) half(answer);
  else if (body.includes('silent')) return;
  else if (JSON.parse(body).input.length > 1) Readable.from(several(JSON.parse(body).input.length)).pipe(answer);
  else Readable.from(whole()).pipe(answer);
});
parentPort.on('message', () => halves.splice(0).forEach((answer) => answer.destroy()));
server.listen(0, '127.0.0.1', () => parentPort.postMessage({ port: server.address().port, bytes }));
`;
const engine = new Worker(engineProgram, { eval: true });
const [{ port, bytes: engineBytes }] = (await once(engine, 'message')) as [{ port: number; bytes: number }];
const wholeBytes = engineBytes - 'its/own-name'.length + 'large'.length;
/** Answers of which all of the first half is with the gateway. */
let halvesSent = 0;
engine.on('message', () => (halvesSent += 1));
afterAll(async () => {
  await engine.terminate();
});
const large = `version: 1
id: large
name: Large
hugging_face_id: test/large
task_type: embedding
context_length: 8192
pricing: { input_per_million: 0.10, cached_input_per_million: 0, output_per_million: 0 }
driver: external
url: http://127.0.0.1:${port}
`;
const idleSeconds = 3;
const victim = useVictim({
  engines: { chat: engineFile('chat'), large },
  env: { HEADGATE_UPSTREAM_IDLE_SECONDS: String(idleSeconds) },
});
beforeEach(() => {
  halvesSent = 0;
});

/** Reads answers as fast as they come and keeps only their ends, in a process of its own. */
const readerProgram = `
const { request } = require('node:http');
const [url, key, count, texts] = process.argv.slice(1);
const body = JSON.stringify({ model: 'large', input: Array.from({ length: Number(texts) }, () => 'whole') });
const headers = { authorization: 'Bearer ' + key, 'content-type': 'application/json', 'content-length': body.length };
const ask = () => new Promise((resolve) => {
  const sent = request(url + '/v1/embeddings', { method: 'POST', headers, agent: false }, (answer) => {
    let bytes = 0;
    let first = '';
    let last = '';
    answer.on('data', (part) => {
      bytes += part.length;
      if (first.length < 60) first += part.toString('latin1', 0, 60);
      last = (last + part.toString('latin1', Math.max(0, part.length - 80))).slice(-80);
    });
    answer.on('close', () => resolve({ status: answer.statusCode, complete: answer.complete, bytes, first, last }));
  });
  sent.on('error', (error) => resolve({ status: 0, complete: false, bytes: 0, first: String(error), last: '' }));
  sent.end(body);
});
Promise.all(Array.from({ length: Number(count) }, ask)).then((all) => console.log(JSON.stringify(all)));
`;

interface Read {
  readonly status: number;
  readonly complete: boolean;
  readonly bytes: number;
  readonly first: string;
  readonly last: string;
}

async function readWhole(count: number, { key = victim().attacker.key, texts = 1 } = {}): Promise<Read[]> {
  const form = ['-e', readerProgram, victim().url, key, String(count), String(texts)];
  const { stdout } = await promisify(execFile)(process.execPath, form);
  return JSON.parse(stdout);
}

/** All of it, under the name that clients know. */
const whole = {
  status: 200,
  complete: true,
  bytes: wholeBytes,
  first: expect.stringContaining('{"id":"e","object":"list","model":"large","data":[{'),
  last: expect.stringMatching(/\],"usage":\{"prompt_tokens":2048,"total_tokens":2048,"completion_tokens":0\}\}$/),
};

/** A request whose answer ends in the middle, if at all. */
function askHalf(key = victim().attacker.key): { sent: ClientRequest; status: Promise<number | null> } {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const url = new URL('/v1/embeddings', victim().url);
  const { promise, resolve } = Promise.withResolvers<number | null>();
  const sent = request(url, { method: 'POST', headers, agent: false }, (answer) => {
    answer.resume();
    resolve(answer.statusCode ?? null);
  });
  sent.on('error', () => resolve(null));
  sent.end(JSON.stringify({ model: 'large', input: ['half'] }));
  return { sent, status: promise };
}

async function countRecords(tokens: number): Promise<number> {
  const page: Body = await victim().api('/v1/usage/requests?limit=100', { key: victim().attacker.managementKey });
  return page.data.filter((one: Body) => one.model === 'large' && one.status === 200 && one.input_tokens === tokens)
    .length;
}

it('answers and bills ten large answers at once, with the memory of few', async () => {
  victim().peakMiB();
  const before = victim().memoryMiB();
  const sinceMs = performance.now();
  const attack = readWhole(10);
  await serveCustomer(victim(), 'while ten answers of 100 MB are made', 100);
  const answers = await attack;
  const seconds = ((performance.now() - sinceMs) / 1000).toFixed(1);
  const [peak, held] = [victim().peakMiB(), await victim().loopHeldMs()];
  tell(`ten in ${seconds} s; memory: ${before} MiB before, at most ${peak} MiB; after the customer: ${held} ms held`);
  expect(answers).toEqual(Array.from({ length: 10 }, () => whole));
  expect(await countRecords(2048)).toBe(10);
  expect(peak - before).toBeLessThan(600);
});

it('answers and bills four large answers in parts at once, with the memory of few', async () => {
  await victim().loopHeldMs();
  victim().peakMiB();
  const before = victim().memoryMiB();
  const sinceMs = performance.now();
  const attack = readWhole(4, { texts: 1200 });
  await serveCustomer(victim(), 'while four answers of 100 MB come in parts', 100);
  const answers = await attack;
  const seconds = ((performance.now() - sinceMs) / 1000).toFixed(1);
  const [peak, held] = [victim().peakMiB(), await victim().loopHeldMs()];
  tell(`four in ${seconds} s; memory: ${before} MiB before, at most ${peak} MiB; after the customer: ${held} ms held`);
  const digits = Array.from({ length: 1200 }, (_, index) => String(index).length - 1);
  const bytes = wholeBytes + digits.reduce((sum, more) => sum + more, 0);
  const last = expect.stringMatching(
    /\],"usage":\{"prompt_tokens":1200,"total_tokens":1200,"completion_tokens":0\}\}$/,
  );
  expect(answers).toEqual(Array.from({ length: 4 }, () => ({ ...whole, bytes, last })));
  expect(await countRecords(1200)).toBe(4);
  expect(peak - before).toBeLessThan(600);
});

it('returns 400 when a part shows that the answer exceeds the size limit, and charges the computed parts', async () => {
  const { key, managementKey } = victim().attacker;
  const input = Array.from({ length: 4000 }, () => 'whole');
  const body = JSON.stringify({ model: 'large', input });
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const answer = await fetch(new URL('/v1/embeddings', victim().url), { method: 'POST', headers, body });
  const { error }: Body = await answer.json();
  expect([answer.status, error.code, error.param]).toEqual([400, 'invalid_value', 'input']);
  expect(error.message).toContain('base64');
  const id = answer.headers.get('x-request-id');
  const record: Body = await victim().api(`/v1/usage/requests/${id}`, { key: managementKey });
  expect(record).toMatchObject({ outcome: 'failed', usage_source: expect.stringMatching(/engine|last_seen/) });
  expect(record.input_tokens).toBeGreaterThan(0);
  expect(record.input_tokens).toBeLessThan(4000);
  expect(Number(record.cost)).toBeGreaterThan(0);
});

it('answers a single large answer', async () => {
  await victim().loopHeldMs();
  expect(await readWhole(1)).toEqual([whole]);
  tell(`its loop held ${await victim().loopHeldMs()} ms at most`);
});

describe('the place of a large answer', () => {
  it('goes to the next one when its client leaves, also past a waiting one that left', async () => {
    const [first, second] = [askHalf(), askHalf()];
    // One is with the gateway, the other one waits.
    await until(() => halvesSent > 0);
    const next = readWhole(1);
    second.sent.destroy();
    first.sent.destroy();
    expect(await next).toEqual([whole]);
  });

  it('goes to the next one when its engine dies', async () => {
    const first = askHalf();
    await until(() => halvesSent > 0);
    const next = readWhole(1);
    engine.postMessage('die');
    expect(await first.status).toBe(502);
    expect(await next).toEqual([whole]);
  });

  it('goes to the next one when its engine goes silent, without a timeout for those that wait', async () => {
    const halves = [askHalf(), askHalf()];
    await until(() => halvesSent > 0);
    const next = readWhole(1);
    expect(await Promise.all(halves.map(({ status }) => status))).toEqual([504, 504]);
    expect(await next).toEqual([whole]);
  });

  it('goes to the next one while its other parts are computed', async () => {
    const { key } = victim().attacker;
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const texts = (last: string): string[] => Array.from({ length: 500 }, (_, at) => (at < 499 ? 'whole' : last));
    const leaving = new AbortController();
    const ask = (last: string) => {
      const body = JSON.stringify({ model: 'large', input: texts(last) });
      return fetch(new URL('/v1/embeddings', victim().url), { method: 'POST', headers, body, signal: leaving.signal });
    };
    const slow = ask('silent');
    // Whichever comes to its turn first, the other one gets it after that.
    const next = await ask('whole');
    expect(((await next.json()) as Body).data).toHaveLength(500);
    expect(await readWhole(1)).toEqual([whole]);
    leaving.abort();
    await expect(slow).rejects.toThrow('aborted');
  });

  it('goes to the next one when its key is revoked', async () => {
    const { managementKey: key } = victim().attacker;
    const { secret, id } = await victim().api('/v1/keys', { key, body: { name: 'to be revoked' } });
    const first = askHalf(secret);
    await until(() => halvesSent > 0);
    const next = readWhole(1);
    await victim().api(`/v1/keys/${id}`, { key, method: 'DELETE' });
    expect(await first.status).toBe(401);
    expect(await next).toEqual([whole]);
  });
});
