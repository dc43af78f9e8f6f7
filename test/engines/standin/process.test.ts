import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { eventually, framesOf, type StandIn, startStandIn } from '#test/standin/engine.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const MESSAGES = [{ role: 'user', content: 'Write a long story about a river.' }];
const SLOW = { tpot_ms: 20, output_tokens: 2000 };
const CHAT = '/v1/chat/completions';

const started: StandIn[] = [];
async function start(...given: Parameters<typeof startStandIn>): Promise<StandIn> {
  const engine = await startStandIn(...given);
  started.push(engine);
  return engine;
}
afterEach(async () => {
  await Promise.all(started.splice(0).map((engine) => engine.stop()));
});

function fault(name: string): string {
  const file = join(import.meta.dirname, 'recordings', 'faults', `${name}.json`);
  const { reads } = JSON.parse(readFileSync(file, 'utf8')) as { reads: [number, string][] };
  return reads.map(([, text]) => text).join('');
}

function connects(path: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on('connect', () => {
      socket.destroy();
      resolve('connected');
    });
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
  });
}

describe('the command line', () => {
  it('exits with code 2 for an unknown flag', async () => {
    const engine = await start(['--no-such-flag'], { ready: false });
    expect(await engine.exited).toBe(2);
    expect(engine.log()).toContain('error: unrecognized arguments: --no-such-flag');
  });

  it('exits with code 2 for a value that is not a number', async () => {
    const engine = await start(['--max-num-seqs', 'many'], { ready: false });
    expect(await engine.exited).toBe(2);
  });

  it('names the stand-in in its help and its log', async () => {
    const help = await start(['--help'], { ready: false });
    expect(await help.exited).toBe(0);
    expect(help.log()).toContain('NO MODEL');
    const version = await start(['--version'], { ready: false });
    await version.exited;
    expect(version.log()).toContain('stand-in');
    const engine = await start([]);
    expect(engine.log()).toContain('STAND-IN');
  });

  it('accepts flags of vLLM that have no effect', async () => {
    const engine = await start(['serve', 'some/model', '--gpu-memory-utilization=0.9', '--enforce-eager', '-tp', '2']);
    const { text } = await engine.send({ method: 'GET', path: '/v1/models' });
    expect(text).toContain('"id":"some/model"');
  });
});

describe('the start', () => {
  it.each([
    ['oom', 'CUDA out of memory'],
    ['bad-model', 'is not a local folder'],
    ['error', 'Engine core initialization failed'],
  ])('fails as requested (%s) with code 1', async (kind, words) => {
    const engine = await start(['--fail-start', kind], { ready: false });
    expect(await engine.exited).toBe(1);
    expect(engine.log()).toContain(words);
  });

  it('creates its socket at once and refuses connections until it is ready', async () => {
    const engine = await start(['--start-delay-ms', '8000'], { ready: false });
    await eventually(() => Promise.resolve(existsSync(engine.socketPath)), Boolean);
    expect(await connects(engine.socketPath)).toBe('ECONNREFUSED');
    await engine.logged('Application startup complete.');
    expect((await engine.send({ method: 'GET', path: '/health' })).status).toBe(200);
  });

  it('fails when the socket file already exists', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'standin-'));
    const socketPath = join(folder, 'engine.sock');
    const first = await start([], { socketPath });
    first.child.kill('SIGTERM');
    expect(await first.exited).toBe(0);
    expect(existsSync(socketPath)).toBe(true);
    const second = await start([], { socketPath, ready: false });
    expect(await second.exited).toBe(1);
    expect(second.log()).toContain('Address already in use');
    rmSync(folder, { recursive: true, force: true });
  });

  it('listens on a free port for port 0', async () => {
    const engine = await start(['--host', '127.0.0.1', '--port', '0'], { tcp: true });
    const url = /Starting vLLM server on (http:\/\/\S+)/.exec(engine.log())?.[1] ?? '';
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });
});

describe('the end', () => {
  it('ends streams with an error frame and JSON with 500 on SIGTERM, and exits 0', async () => {
    const engine = await start(['--enable-force-include-usage']);
    const stream = await engine.open({
      path: CHAT,
      headers: JSON_TYPE,
      body: { messages: MESSAGES, stream: true, standin: SLOW },
    });
    const json = engine.send({ path: CHAT, headers: JSON_TYPE, body: { messages: MESSAGES, standin: SLOW } });
    await stream.until((text) => text.includes('"completion_tokens":3'));
    await eventually(
      () => engine.counter('vllm:num_requests_running'),
      (count) => count === 2,
    );
    engine.child.kill('SIGTERM');
    const { text, complete } = await stream.done;
    const recorded = fault('sigterm-at-once-stream');
    expect(complete).toBe(true);
    expect(text.slice(text.indexOf('data: {"error"'))).toBe(recorded.slice(recorded.indexOf('data: {"error"')));
    const answer = await json;
    expect([answer.status, answer.text]).toEqual([500, fault('sigterm-at-once-json')]);
    expect(await engine.exited).toBe(0);
    expect(await connects(engine.socketPath)).toBe('ECONNREFUSED');
  });

  it('cuts streams without a terminator and rejects new requests with --shutdown-timeout', async () => {
    const engine = await start(['--shutdown-timeout', '1']);
    const body = { messages: MESSAGES, stream: true, standin: SLOW };
    const stream = await engine.open({ path: CHAT, headers: JSON_TYPE, body });
    await stream.until((text) => text.includes('content'));
    engine.child.kill('SIGTERM');
    await engine.logged('Draining');
    const late = await engine.send({ path: CHAT, headers: JSON_TYPE, body });
    expect([late.status, late.text]).toEqual([500, fault('sigterm-drain-late-stream')]);
    const { text, complete } = await stream.done;
    expect(complete).toBe(false);
    expect(text).not.toContain('[DONE]');
    expect(await engine.exited).toBe(0);
  });

  it('ignores SIGTERM with --ignore-sigterm', async () => {
    const engine = await start(['--ignore-sigterm']);
    engine.child.kill('SIGTERM');
    expect((await engine.send({ method: 'GET', path: '/health' })).status).toBe(200);
    expect(engine.child.exitCode).toBeNull();
  });

  it('comes after --exit-after-ms with the code of --exit-code', async () => {
    const engine = await start(['--exit-after-ms', '50', '--exit-code', '0']);
    expect(await engine.exited).toBe(0);
  });
});

it('makes requests wait while the engine sleeps, until it wakes', async () => {
  const engine = await start([], { env: { VLLM_SERVER_DEV_MODE: '1' } });
  await engine.send({ path: '/sleep?level=1' });
  expect((await engine.send({ method: 'GET', path: '/is_sleeping' })).text).toBe('{"is_sleeping":true}');
  const open = engine.open({
    path: CHAT,
    headers: JSON_TYPE,
    body: { messages: MESSAGES, stream: true, max_tokens: 2 },
  });
  await eventually(
    () => engine.counter('vllm:num_requests_waiting'),
    (count) => count === 1,
  );
  await engine.send({ path: '/wake_up' });
  expect(framesOf((await (await open).done).text).at(-1)).toBe('[DONE]');
});

it('wakes part by part, and runs requests when all parts are awake', async () => {
  const engine = await start([], { env: { VLLM_SERVER_DEV_MODE: '1' } });
  const isSleeping = async (): Promise<string> => (await engine.send({ method: 'GET', path: '/is_sleeping' })).text;
  await engine.send({ path: '/sleep?level=2' });
  for (const tag of ['weights', 'weights', 'nothing']) await engine.send({ path: `/wake_up?tags=${tag}` });
  expect(await isSleeping()).toBe('{"is_sleeping":true}');
  const call = { path: '/collective_rpc', headers: JSON_TYPE };
  expect((await engine.send({ ...call, body: {} })).status).toBe(400);
  expect((await engine.send({ ...call, body: { method: 'reload_weights' } })).text).toBe('{"results":[null]}');
  await engine.send({ path: '/wake_up?tags=kv_cache' });
  expect(await isSleeping()).toBe('{"is_sleeping":false}');
});

it('requires its key only under /v1', async () => {
  const engine = await start([], { env: { VLLM_API_KEY: 'secret' } });
  const refused = await engine.send({ method: 'GET', path: '/v1/models' });
  expect([refused.status, refused.text]).toEqual([401, '{"error":"Unauthorized"}']);
  expect(
    (await engine.send({ method: 'GET', path: '/v1/models', headers: { authorization: 'Bearer secret' } })).status,
  ).toBe(200);
  expect((await engine.send({ method: 'GET', path: '/metrics' })).status).toBe(200);
});
