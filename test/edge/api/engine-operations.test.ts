import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  type Body,
  chatBody,
  chatPath,
  eventually,
  externalFile,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';

/** The operations API of a whole gateway, on engines that really run. */

let gateway: TestGateway;
let enginesDir: string;

const files = {
  chat: standinFile('chat'),
  slash: standinFile('acme/chat'),
};

beforeAll(async () => {
  enginesDir = writeEngines(files);
  gateway = await startGateway({ enginesDir, env: { FAR_KEY: 'not a key' } });
});
afterAll(async () => {
  await gateway.stop();
  rmSync(enginesDir, { recursive: true, force: true });
});

async function engine(id = 'chat'): Promise<Body> {
  return (await gateway.request(`/v1/admin/engines/${encodeURIComponent(id)}`)).json();
}

async function inState(state: string, id = 'chat'): Promise<Body> {
  return eventually(async () => {
    const found = await engine(id);
    return found.state === state ? found : null;
  });
}

const order = (kind: string, id = 'chat') =>
  gateway.request(`/v1/admin/engines/${encodeURIComponent(id)}/${kind}`, { method: 'POST' });
const chat = (model = 'chat') => gateway.request(chatPath, { body: chatBody({ model }) });
const filesRead = async (): Promise<Body> =>
  ((await (await gateway.request('/v1/admin/engines')).json()) as Body).files;
const reload = () => gateway.request('/v1/admin/engines/reload', { method: 'POST' });
const writeFile = (name: string, text: string) => writeFileSync(join(enginesDir, `${name}.yaml`), text);

describe('an engine', () => {
  it('is started by a command, serves, and is restarted in a new process', async () => {
    expect((await engine()).state).toBe('stopped');
    const answer = await order('start');
    const { id, state }: Body = await answer.json();
    expect([answer.status, id, ['starting', 'ready'].includes(state)]).toEqual([202, 'chat', true]);
    const started = await inState('ready');
    expect(started.replicas).toMatchObject([{ state: 'ready', host: 'local', gpus: [] }]);
    expect(started.start_times_ms).toHaveLength(1);
    const { replica, steps, total_ms, failure }: Body = started.last_start;
    const phases = steps.map(({ phase }: Body) => phase);
    expect([replica, phases[0], phases.at(-1), failure]).toEqual([started.replicas[0].id, 'requested', 'ready', null]);
    expect(phases).toEqual(expect.arrayContaining(['creating', 'loading', 'checking']));
    const sum = steps.reduce((total: number, { duration_ms: ms }: Body) => total + (ms ?? 0), 0);
    expect([sum, steps.at(-1).duration_ms]).toEqual([total_ms, null]);
    expect((await chat()).status).toBe(200);
    await order('restart');
    await eventually(async () => {
      const { state, replicas } = await engine();
      return state === 'ready' && replicas.length === 1 && replicas[0].id !== started.replicas[0].id;
    });
    expect((await chat()).status).toBe(200);
  });

  it('stays stopped after a stop command until it is reset', async () => {
    await order('start');
    await inState('ready');
    // The answer comes when the order holds: nothing has to be waited for.
    const stopped: Body = await (await order('stop')).json();
    expect([stopped.state, stopped.held]).toEqual(['held', true]);
    await eventually(async () => (await engine()).replicas.length === 0);
    const refused = await chat();
    expect(refused.status).toBe(503);
    const reset: Body = await (await order('reset')).json();
    expect(reset.held).toBe(false);
    expect((await chat()).status).toBe(200);
  });

  it('returns its log as a list and as an event stream', async () => {
    expect((await chat('acme/chat')).status).toBe(200);
    const [{ id: replica }] = (await inState('ready', 'acme/chat')).replicas;
    const list: Body = await (await gateway.request('/v1/admin/engines/acme%2Fchat/logs?tail=3')).json();
    expect(list.data.length).toBeGreaterThan(0);
    expect(list.data.length).toBeLessThanOrEqual(3);
    expect(list.data[0]).toEqual({ replica, line: expect.any(String) });
    const leave = new AbortController();
    const path = '/v1/admin/engines/acme%2Fchat/logs?follow=1&tail=3';
    const events = await gateway.request(path, { signal: leave.signal });
    const reader = events.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const seen = async (pattern: RegExp): Promise<void> => {
      while (!pattern.test(text)) text += (await reader?.read())?.value ?? '';
    };
    await seen(new RegExp(`^data: {"replica":"${replica}","line":"`, 'm'));
    // Later events are followed, too.
    await order('restart', 'acme/chat');
    await seen(new RegExp(`^data: {"replica":"(?!${replica})`, 'm'));
    leave.abort();
  });
});

describe('hosts', () => {
  it('list the replicas that run on them', async () => {
    await order('start');
    const { replicas } = await inState('ready');
    const { data }: Body = await (await gateway.request('/v1/admin/hosts')).json();
    expect(data).toMatchObject([{ name: 'local', memory_bytes: expect.any(Number) }]);
    const [{ id: replica }] = replicas;
    expect(data[0].replicas).toContainEqual({ engine: 'chat', replica, state: 'ready', memory_bytes: null });
  });
});

describe('POST /v1/admin/engines/reload', () => {
  it('names file, line and field of a mistake, and changes nothing', async () => {
    await order('start');
    const before = await inState('ready');
    writeFile('chat', files.chat.replace('context_length: 8192', 'context_length: many'));
    writeFile('new', standinFile('new'));
    const answer = await reload();
    const { error }: Body = await answer.json();
    expect([answer.status, error.code, error.param]).toEqual([422, 'unprocessable', 'context_length']);
    expect(error.message).toMatch(/engines[^/]*\/chat\.yaml:\d+: context_length: /);
    expect((await engine()).replicas).toEqual(before.replicas);
    // Rejected files stay in the report until files are read that are accepted.
    const { read_at, refused } = await filesRead();
    expect(refused.problems.join()).toMatch(/chat\.yaml:\d+: context_length: /);
    expect(refused.at).toBeGreaterThanOrEqual(read_at);
    expect((await gateway.request('/v1/admin/engines/new')).status).toBe(404);
    expect((await chat()).status).toBe(200);
    writeFile('chat', files.chat);
    rmSync(join(enginesDir, 'new.yaml'));
    expect((await reload()).status).toBe(200);
    const mended = await filesRead();
    expect(mended).toEqual({ read_at: expect.any(Number), refused: null, left_out: [] });
    expect(mended.read_at).toBeGreaterThanOrEqual(refused.at);
  });

  it('stores no model and no price from files that cannot run here', async () => {
    const priceOf = async (id: string): Promise<Body> =>
      ((await (await gateway.request(`/v1/models/${encodeURIComponent(id)}`)).json()) as Body).pricing;
    const before = await priceOf('chat');
    writeFile('chat', files.chat.replace('input_per_million: 0.10', 'input_per_million: 7'));
    writeFile('keyed', externalFile('keyed', 'http://127.0.0.1:1', { lines: ['api_key_env: FAR_KEY'] }));
    const { error }: Body = await (await reload()).json();
    expect(error).toMatchObject({
      code: 'unprocessable',
      message: expect.stringContaining('does not contain a valid API key'),
    });
    const { sql } = gateway.db;
    expect(await sql`select id from models where id = 'keyed'`).toEqual([]);
    expect(await sql`select id from price_versions where input_per_mtok_micro_usd = 7000000`).toEqual([]);
    writeFile('chat', files.chat);
    rmSync(join(enginesDir, 'keyed.yaml'));
    expect((await reload()).status).toBe(200);
    expect(await priceOf('chat')).toEqual(before);
  });

  it('adds, changes and removes engines without a failed request', async () => {
    await order('start');
    await inState('ready');
    const answers: number[] = [];
    let asking = true;
    const load = (async () => {
      while (asking) answers.push((await chat()).status);
    })();
    writeFile('new', standinFile('new'));
    writeFile('chat', standinFile('chat', { flags: ['--max-num-seqs', '8'] }));
    rmSync(join(enginesDir, 'slash.yaml'));
    const { id } = (await engine()).replicas[0];
    const answer = await reload();
    expect([answer.status, await answer.json()]).toEqual([
      200,
      { object: 'engines.reload', added: ['new'], changed: ['chat'], removed: ['acme/chat'] },
    ]);
    expect((await chat('new')).status).toBe(200);
    expect((await chat('acme/chat')).status).toBe(400);
    await eventually(async () => {
      const { replicas } = await engine();
      return replicas.length === 1 && replicas[0].id !== id && replicas[0].state === 'ready';
    });
    asking = false;
    await load;
    expect(new Set(answers)).toEqual(new Set([200]));
    const { data }: Body = await (await gateway.request('/v1/models')).json();
    expect(data.map((model: Body) => model.id).toSorted()).toEqual(['chat', 'new']);
    expect(((await (await reload()).json()) as Body).changed).toEqual([]);
  });
});
