import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseConfig } from '#base/config/read-config.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  type Body,
  errorOf,
  externalFile,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { eventsOf } from './messages-client.ts';

/** Responses that the gateway stores. The gateway starts again, with another data folder, before they are continued. */

const path = '/v1/responses';
const apiKey = `hg_${'k'.repeat(43)}`;
const env = { HEADGATE_BOOTSTRAP_KEY: apiKey, HEADGATE_PLATFORM_KEY: Buffer.alloc(32, 7).toString('base64') };
let database: TestDatabase;
let first: TestGateway;
let client: OpenAI;

beforeAll(async () => {
  database = await createTestDatabase();
  await start();
});
afterAll(async () => {
  await first.stop();
  await database.drop();
});

async function start(): Promise<void> {
  const enginesDir = writeEngines({ chat: standinFile('chat') });
  first = await startGateway({ enginesDir, env, databaseUrl: database.url });
  client = new OpenAI({ baseURL: `${first.url}/v1`, apiKey, maxRetries: 0 });
}

const post = (body: object, options: object = {}, gateway = first): Promise<Response> =>
  gateway.request(path, { body: { model: 'chat', max_output_tokens: 6, ...body }, ...options });
const create = (fields: object) =>
  client.responses.create({ model: 'chat', max_output_tokens: 6, ...fields, stream: false } as never) as Promise<Body>;

describe('the openai SDK', () => {
  it('continues a response after a restart, and pays for the whole conversation', async () => {
    const one = await create({ input: 'My name is Ada.', instructions: 'Be kind.' });
    await first.stop();
    await start();
    const two: Body = await client.responses.create({
      model: 'chat',
      max_output_tokens: 6,
      input: [{ role: 'user', content: 'What is my name?' }],
      previous_response_id: one.id,
    });
    const streamed = client.responses.stream({
      model: 'chat',
      max_output_tokens: 6,
      input: 'Again?',
      previous_response_id: two.id,
    });
    const three = await streamed.finalResponse();
    expect([one, two, three]).toMatchObject([
      { store: true, previous_response_id: null },
      { store: true, previous_response_id: one.id },
      { store: true, previous_response_id: two.id },
    ]);
    const asked = (content: string): object => ({ role: 'user', content });
    const input = [asked('My name is Ada.'), ...one.output, asked('What is my name?'), ...two.output, asked('Again?')];
    const counted = await client.responses.inputTokens.count({
      model: 'chat',
      input: 'Again?',
      previous_response_id: two.id,
    });
    const whole = await create({ input, store: false });
    expect(counted).toEqual({ object: 'response.input_tokens', input_tokens: whole.usage.input_tokens });
    expect(three.usage?.input_tokens).toBe(whole.usage.input_tokens);
    const record = await first.request(`/v1/usage/requests/${three.id.slice('resp_'.length)}`);
    expect(await record.json()).toMatchObject({ outcome: 'completed', input_tokens: whole.usage.input_tokens });
    expect(await client.responses.retrieve(three.id)).toMatchObject({ id: three.id, output_text: three.output_text });
  });

  it('lists input items, deletes a response, and cancels none', async () => {
    const input = ['a', 'b', 'c'].map((content) => ({ role: 'user', content }));
    const { id } = await create({ input });
    const items = [];
    for await (const item of client.responses.inputItems.list(id, { limit: 2, order: 'asc' })) items.push(item);
    expect(items).toMatchObject(
      ['a', 'b', 'c'].map((text) => ({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] })),
    );
    await expect(client.responses.cancel(id)).rejects.toMatchObject({ status: 400 });
    const next = await create({ input: 'd', previous_response_id: id });
    await client.responses.delete(id);
    await expect(client.responses.retrieve(id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    // The deleted response is named, whichever response of the conversation is continued.
    for (const previous of [id, next.id]) {
      await expect(create({ input: 'e', previous_response_id: previous })).rejects.toMatchObject({
        status: 400,
        code: 'previous_response_not_found',
        param: 'previous_response_id',
        message: expect.stringContaining(id),
      });
    }
    expect(await client.responses.retrieve(next.id)).toMatchObject({ previous_response_id: id });
  });
});

it("works through the AI SDK's own provider, which refers to stored items", async () => {
  const sent: unknown[] = [];
  const recorded: typeof fetch = (url, options) => {
    sent.push(options?.body);
    return fetch(url, options);
  };
  const model = createOpenAI({ baseURL: `${first.url}/v1`, apiKey: first.key, fetch: recorded })('chat');
  const one = await generateText({ model, prompt: 'Hi', maxOutputTokens: 6 });
  const messages = [
    { role: 'user' as const, content: 'Hi' },
    ...one.response.messages,
    { role: 'user' as const, content: 'And?' },
  ];
  const two = await generateText({ model, messages, maxOutputTokens: 6 });
  expect(sent.at(-1)).toContain('item_reference');
  const whole = { ...messages[1], content: one.text };
  const plain = await create({ input: [messages[0], whole, messages[2]], store: false });
  expect(two.usage.inputTokens).toBe(plain.usage.input_tokens);
});

describe('input items', () => {
  it('have different ids, so that pages end', async () => {
    const { output } = await create({ input: 'a' });
    const named = { type: 'item_reference', id: output[0].id };
    const { id } = await create({ input: [named, named, { role: 'user', content: 'b' }] });
    const ids: string[] = [];
    for await (const item of client.responses.inputItems.list(id, { limit: 1, order: 'asc' })) {
      ids.push(item.id ?? '');
      if (ids.length > 3) break;
    }
    expect([ids.length, new Set(ids).size, ids[0]]).toEqual([3, 3, named.id]);
  });

  it('may name any text', async () => {
    for (const id of ['\0', '\ud800', 'x'.repeat(200), '']) {
      const refused = await errorOf(await post({ input: [{ type: 'item_reference', id }] }));
      expect(refused).toMatchObject({ status: 404, code: 'not_found', param: 'input' });
    }
  });

  it('may follow items that only other engines read', async () => {
    const bodies: Body[] = [];
    const server = createServer((incoming, response) => {
      void readText(incoming).then((text) => {
        if (incoming.url !== path) return void response.writeHead(404).end();
        bodies.push(JSON.parse(text));
        const content = [{ type: 'output_text', text: 'hello', annotations: [] }];
        const output = [{ id: `msg_${bodies.length}`, type: 'message', role: 'assistant', content }];
        const usage = { input_tokens: 5, output_tokens: 1, total_tokens: 6 };
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(
          JSON.stringify({ id: 'x', object: 'response', model: 'other', status: 'completed', output, usage }),
        );
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const enginesDir = writeEngines({ other: externalFile('other', `http://127.0.0.1:${port}`) });
    const gateway = await startGateway({ enginesDir });
    try {
      const one: Body = await (await post({ model: 'other', input: 'a' }, {}, gateway)).json();
      const call = { type: 'local_shell_call', id: 'lsh_1', call_id: 'c', status: 'completed', action: {} };
      const input = [call, { type: 'item_reference', id: one.output[0].id }];
      expect((await post({ model: 'other', input }, {}, gateway)).status).toBe(200);
      expect(bodies.at(-1).input).toEqual([call, one.output[0]]);
    } finally {
      await gateway.stop();
      server.close();
    }
  });
});

it('counts the memory of a conversation once', async () => {
  const enginesDir = writeEngines({ chat: standinFile('chat') });
  const bytes = '65536';
  const small = await startGateway({
    enginesDir,
    env: { HEADGATE_MAX_BODY_BYTES: bytes, HEADGATE_MAX_BODIES_BYTES: bytes },
  });
  try {
    const asked = (pad: number) => [{ role: 'user', content: 'x', pad: 'x'.repeat(pad) }];
    const one: Body = await (await post({ input: asked(20_000) }, {}, small)).json();
    const two = await post({ input: asked(30_000), previous_response_id: one.id }, {}, small);
    expect(two.status).toBe(200);
    const three = await post(
      { input: asked(30_000), previous_response_id: ((await two.json()) as Body).id },
      {},
      small,
    );
    expect(await errorOf(three)).toMatchObject({ status: 413, code: 'request_too_large' });
  } finally {
    await small.stop();
  }
});

it('does not wait for a database that says nothing', async () => {
  const own = await createTestDatabase();
  const proxy = await startDatabaseProxy(own.url);
  const enginesDir = writeEngines({ chat: standinFile('chat') });
  const gateway = await startGateway({ enginesDir, env, databaseUrl: proxy.url });
  try {
    const { id, output } = (await (await post({ input: 'x' }, {}, gateway)).json()) as Body;
    const release = proxy.holdAllAnswers();
    const answers = await Promise.all([
      post({ input: 'y', previous_response_id: id }, {}, gateway),
      post({ input: [{ type: 'item_reference', id: output[0].id }] }, {}, gateway),
      gateway.request(`${path}/${id}`),
      gateway.request(`${path}/${id}`, { method: 'DELETE' }),
    ]);
    release();
    expect(answers.map(({ status }) => status)).toEqual([503, 503, 503, 503]);
  } finally {
    await gateway.stop();
    await proxy.close();
    await own.drop();
  }
});

describe('a stored response', () => {
  it('does not exist with store: false, and errors name the field', async () => {
    const kept: Body = await (await post({ input: 'x', store: false })).json();
    expect(kept).toMatchObject({ store: false });
    expect(await errorOf(await first.request(`${path}/${kept.id}`))).toMatchObject({ status: 404, code: 'not_found' });
    expect(await errorOf(await post({ input: 'x', previous_response_id: kept.id }))).toMatchObject({
      code: 'previous_response_not_found',
    });
    expect(await errorOf(await post({ input: [{ type: 'item_reference', id: 'msg_none' }] }))).toMatchObject({
      status: 404,
      param: 'input',
    });
    expect(await errorOf(await post({ input: 'x', background: true }))).toMatchObject({
      param: 'background',
      message: expect.stringContaining('/v1/batches'),
    });
  });

  it('is found by no other organization', async () => {
    const { key } = await openOrganization(first, '1');
    const { id, output } = await create({ input: 'secret' });
    const answers = [
      await first.request(`${path}/${id}`, { key }),
      await first.request(`${path}/${id}/input_items`, { key }),
      await first.request(`${path}/${id}`, { key, method: 'DELETE' }),
      await post({ input: [{ type: 'item_reference', id: output[0].id }] }, { key }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
    const continued = await errorOf(await post({ input: 'x', previous_response_id: id }, { key }));
    expect(continued).toMatchObject({ status: 400, code: 'previous_response_not_found' });
  });

  it('belongs to the project that its request worked in', async () => {
    const send = async (at: string, body: object): Promise<Body> => (await first.request(at, { body })).json();
    const keys: Body = await (await first.request('/v1/keys')).json();
    const home: string = keys.data[0].project_id;
    const { id } = await create({ input: 'secret' });
    const other = await send('/v1/projects', { name: 'other' });
    const { secret: key } = await send('/v1/keys', { name: 'inference', project_id: other.id, scope: 'inference' });
    const use = async (response: string, headers: Record<string, string>) => {
      const read = await first.request(`${path}/${response}`, { key, headers });
      const continued = await post({ input: 'x', previous_response_id: response }, { key, headers });
      return [read.status, continued.status];
    };
    expect(await use(id, {})).toEqual([404, 400]);
    expect((await first.request(`${path}/${id}`, { key, method: 'DELETE' })).status).toBe(404);
    // A key of an administrator may work in another project, if it says so.
    expect(await use(id, { 'x-project-id': home })).toEqual([200, 200]);
    const { id: own } = (await (await post({ input: 'y' }, { key })).json()) as Body;
    expect(await use(own, {})).toEqual([200, 200]);
    expect(await use(own, { 'x-project-id': home })).toEqual([404, 400]);
    // A management key manages all projects.
    expect((await first.request(`${path}/${own}`)).status).toBe(200);
  });

  it('is stored only with its charge', async () => {
    const { sql } = first.db;
    const stored = async () => Number((await sql`select count(*) from stored_responses`)[0]?.['count']);
    const before = await stored();
    await sql`create function reject() returns trigger language plpgsql as
      $$ begin raise exception 'rejected' using errcode = 'check_violation'; end $$`;
    await sql`create trigger rejects before insert on usage_requests for each row execute function reject()`;
    try {
      expect((await post({ input: 'not recorded' })).status).toBe(503);
      expect(await stored()).toBe(before);
    } finally {
      await sql`drop trigger rejects on usage_requests`;
    }
    expect((await post({ input: 'recorded' })).status).toBe(200);
    expect(await stored()).toBe(before + 1);
  });

  it('is encrypted in the database', async () => {
    const { id } = await create({ input: 'confidential-words' });
    const [row] = await first.db.sql`
      select encode(input, 'escape') || encode(response, 'escape') as text, sealed
      from stored_responses r join response_keys k on k.id = r.data_key_id where r.id = ${id.slice(5)}`;
    expect(row?.['text']).not.toMatch(/confidential|output_text|assistant/);
    // A row that is moved to another response does not open.
    const { id: victim } = await create({ input: 'y' });
    await first.db.sql`
      update stored_responses set response = (select response from stored_responses where id = ${id.slice(5)})
      where id = ${victim.slice(5)}`;
    expect((await first.request(`${path}/${victim}`)).status).toBe(503);
  });

  it('expires, and stays while its conversation goes on', async () => {
    const one = await create({ input: 'x' });
    const age = (id: string, days: number) =>
      first.db
        .sql`update stored_responses set expires_at = now() + make_interval(days => ${days}) where id = ${id.slice(5)}`;
    await age(one.id, 2);
    await create({ input: 'y', previous_response_id: one.id });
    const [row] = await first.db.sql`
      select expires_at > now() + interval '29 days' as postponed from stored_responses where id = ${one.id.slice(5)}`;
    expect(row).toEqual({ postponed: true });
    await age(one.id, -1);
    await expect(client.responses.retrieve(one.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(create({ input: 'z', previous_response_id: one.id })).rejects.toMatchObject({
      code: 'previous_response_not_found',
    });
  });

  it('is that of its own request when the answer comes from the cache, and of the first with an Idempotency-Key', async () => {
    const made: Body = await (
      await first.request('/v1/keys', { body: { name: 'cached', cache_responses: true } })
    ).json();
    const ask = async (fields: object, headers: Record<string, string> = {}): Promise<Body> => {
      const answer = await post({ input: 'cached', ...fields }, { key: made.secret, headers });
      return { hit: answer.headers.get('x-headgate-cache'), ...eventsIn(await answer.text()) };
    };
    const one = await ask({});
    const two = await ask({});
    const three = await ask({ stream: true });
    expect([two.hit, three.hit]).toEqual(['hit', 'hit']);
    expect(new Set([one.id, two.id, three.id]).size).toBe(3);
    for (const { id } of [one, two, three]) expect((await first.request(`${path}/${id}`)).status).toBe(200);
    const once = { 'idempotency-key': 'stored' };
    const [run, again] = [await ask({ input: 'once' }, once), await ask({ input: 'once' }, once)];
    expect(again.id).toBe(run.id);
  });
});

/** The response in an answer of either form. */
function eventsIn(text: string): Body {
  return text.startsWith('{') ? JSON.parse(text) : eventsOf(text).at(-1).response;
}

it('is not stored where HEADGATE_RESPONSE_DAYS is 0', async () => {
  expect(() => parseConfig({ HEADGATE_RESPONSE_DAYS: '-1' })).toThrow('HEADGATE_RESPONSE_DAYS');
  const enginesDir = writeEngines({ chat: standinFile('chat') });
  const off = await startGateway({ enginesDir, env: { HEADGATE_RESPONSE_DAYS: '0' } });
  try {
    const answer = await post({ input: 'x' }, {}, off);
    expect(answer.status).toBe(200);
    const { id } = (await answer.json()) as Body;
    expect((await off.request(`${path}/${id}`)).status).toBe(404);
    for (const fields of [
      { input: 'x', store: true },
      { input: 'x', previous_response_id: id },
      { input: [{ type: 'item_reference', id: 'msg_1' }] },
    ]) {
      expect(await errorOf(await post(fields, {}, off))).toMatchObject({
        status: 400,
        code: 'unsupported_parameter',
        message: expect.stringContaining('HEADGATE_RESPONSE_DAYS'),
      });
    }
  } finally {
    await off.stop();
  }
});
