import { beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { createAccounts } from '#core/accounts/accounts.ts';
import { createAudit } from '#core/audit/audit.ts';
import { createKeys } from '#core/keys/keys.ts';
import { type Body, uuidOf } from '#test/metering/recorded-usage.ts';
import { eventually, framesOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { type SentOptions, send, type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    embed: standinFile('embed', { taskType: 'embedding' }),
    asleep: standinFile('asleep', { flags: ['--start-delay-ms', '1000'] }),
  },
}));
let admin: Visitor;

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
});

interface Chat {
  readonly call?: 'chat' | 'embeddings';
  readonly visitor?: Visitor;
  readonly headers?: SentOptions['headers'];
  readonly body?: object;
}

function chat({ call = 'chat', visitor = admin, headers = {}, body = {} }: Chat = {}): Promise<Shown> {
  const { url } = bench.gateway;
  const own = { cookie: visitor.cookie, origin: url, 'x-form-token': visitor.formToken };
  const asked = { model: 'chat', messages: [{ role: 'user', content: 'Hello' }], ...body };
  return send(`${url}/portal/playground/${call}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...own, ...headers },
    body: JSON.stringify(asked),
  });
}

interface Key {
  readonly id: string;
  readonly project_id: string;
  readonly name: string;
  readonly status: string;
}

async function playgroundKeys(): Promise<readonly Key[]> {
  const { data } = (await (await bench.gateway.request('/v1/keys?status=active')).json()) as { data: Key[] };
  return data.filter(({ name }) => name === 'Playground');
}

const errorIn = ({ text }: Shown): { code: string; message: string } =>
  (JSON.parse(text) as { error: { code: string; message: string } }).error;

const dayMs = 86_400_000;

/** The keys as a gateway has them whose clock is so far ahead. */
function keysAhead(aheadMs: number) {
  const { db } = bench.gateway;
  const [clock, log] = [{ ...systemClock, now: () => Date.now() + aheadMs }, createLog('silent')];
  const audit = createAudit({ clock });
  const accounts = createAccounts({ db, clock, log, audit });
  return createKeys({ db, clock, log, audit, accounts, keyPrefix: 'sk-hg-', maxActiveKeys: 5 });
}

describe('the playground', () => {
  it('serves only its own page in a valid session, and creates no key for others', async () => {
    const refused = await Promise.all([
      chat({ headers: { cookie: null } }),
      chat({ headers: { cookie: 'headgate-1=nonsense' } }),
      chat({ headers: { origin: 'https://evil.example' } }),
      chat({ headers: { origin: null } }),
      chat({ headers: { 'sec-fetch-site': 'cross-site' } }),
      chat({ headers: { 'x-form-token': null } }),
      chat({ headers: { 'x-form-token': 'A'.repeat(43) } }),
    ]);
    expect(refused.map(({ status }) => status)).toEqual([401, 401, 403, 403, 403, 403, 403]);
    const codes = refused.map((answer) => errorIn(answer).code);
    expect(codes).toEqual(refused.map(({ status }) => (status === 401 ? 'unauthorized' : 'insufficient_scope')));
    expect(await playgroundKeys()).toEqual([]);
  });

  it('uses one key for each user, also for concurrent requests, which are billed and recorded', async () => {
    const streamed = { stream: true, stream_options: { include_usage: true }, usage: { include: true } };
    const answers = await Promise.all([chat(), chat(), chat({ body: streamed })]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const keys = await playgroundKeys();
    expect(keys).toHaveLength(1);
    const frames = framesOf(answers[2]?.text ?? '');
    const cost: unknown = frames.findLast((frame: { usage?: { cost: number } }) => frame.usage)?.usage.cost;
    const [, , id] = answers.map(({ headers }) => String(headers['x-request-id']));
    const record = await bench.gateway.request(`/v1/usage/requests/${id}`);
    const booked = (await record.json()) as { key_id: string; cost: string; outcome: string };
    expect(booked).toMatchObject({ key_id: keys[0]?.id, outcome: 'completed' });
    expect(Number(booked.cost)).toBe(cost);
    expect(Number(booked.cost)).toBeGreaterThan(0);
    const [made] = await bench.gateway.db.sql`
      select actor_user_id, actor_key_id from audit_log where action = 'api_key.created' and target_id = ${keys[0]?.id ?? ''}`;
    expect(made).toMatchObject({ actor_key_id: null, actor_user_id: expect.stringMatching(/^[0-9a-f-]{36}$/) });
  });

  it('asks for embeddings with the same key, in a valid session only', async () => {
    const asked = { call: 'embeddings', body: { model: 'embed', input: ['One', 'Two'], messages: undefined } } as const;
    const refused = await Promise.all([
      chat({ ...asked, headers: { cookie: null } }),
      chat({ ...asked, headers: { 'x-form-token': null } }),
    ]);
    expect(refused.map(({ status }) => status)).toEqual([401, 403]);
    const { status, text, headers } = await chat(asked);
    expect([status, (JSON.parse(text) as { data: object[] }).data.length]).toEqual([200, 2]);
    const record = await bench.gateway.request(`/v1/usage/requests/${String(headers['x-request-id'])}`);
    expect(await record.json()).toMatchObject({ key_id: (await playgroundKeys())[0]?.id, outcome: 'completed' });
  });

  it("shows the API's errors, and ignores an Authorization header", async () => {
    const unknown = await chat({ body: { model: 'none' }, headers: { authorization: 'Bearer sk-hg-none' } });
    expect([unknown.status, errorIn(unknown).code]).toEqual([400, 'model_not_found']);
    expect((await chat({ headers: { authorization: 'Bearer sk-hg-none' } })).status).toBe(200);
  });

  it('uses the limits of its key', async () => {
    const [key] = await playgroundKeys();
    const limit = (requests_per_minute: number | null) =>
      bench.gateway.request(`/v1/keys/${key?.id}`, { method: 'PATCH', body: { requests_per_minute } });
    await limit(1);
    const answers = [await chat(), await chat()];
    await limit(null);
    expect(answers.map(({ status }) => status)).toContain(429);
  });

  const long = { stream: true, max_tokens: 4000, standin: { output_tokens: 4000, tpot_ms: 50 } };

  it('ends its stream when the session ends', async () => {
    const visitor = await signInVisitor(bench.gateway);
    const streaming = chat({ visitor, body: long });
    await running();
    await visitor.post('/portal/sign-out');
    const { text } = await streaming;
    expect(framesOf(text).at(-2)).toMatchObject({
      error: { code: 'unauthorized', message: expect.stringMatching(/session has ended/) },
    });
  });

  it('ends its stream when its key is revoked, and the next request creates a new key', async () => {
    const streaming = chat({ body: long });
    await running();
    const [key] = await playgroundKeys();
    await admin.post(`/portal/keys/${key?.id}/delete`);
    expect((await streaming).text).toMatch(/key was revoked/);
    expect((await chat()).status).toBe(200);
    expect((await playgroundKeys())[0]?.id).not.toBe(key?.id);
  });

  it('does not count its key against the limit, and shows it as managed by the gateway', async () => {
    const [key] = await playgroundKeys();
    await bench.gateway.request(`/v1/keys/${key?.id}`, { method: 'DELETE' });
    const { data } = (await (await bench.gateway.request('/v1/organizations')).json()) as { data: { id: string }[] };
    const path = `/v1/organizations/${data[0]?.id}`;
    await bench.gateway.request(path, { method: 'PATCH', body: { max_active_keys: 1 } });
    const answered = await chat();
    const refused = await bench.gateway.request('/v1/keys', { body: { name: 'one more' } });
    await bench.gateway.request(path, { method: 'PATCH', body: { max_active_keys: null } });
    expect([answered.status, refused.status]).toEqual([200, 409]);
    expect((await playgroundKeys())[0]).toMatchObject({ held: true });
    expect((await admin.get('/portal/keys')).text).toMatch(/Playground<\/a>[\s\S]{0,200}managed by the gateway/);
    // A name by itself makes no key one of the gateway's.
    const named = await bench.gateway.request('/v1/keys', { body: { name: 'Playground' } });
    const { id, held } = (await named.json()) as { id: string; held: boolean };
    expect(held).toBe(false);
    await chat();
    const { last_used_at: used } = (await (await bench.gateway.request(`/v1/keys/${id}`)).json()) as Body;
    expect(used).toBeNull();
    await bench.gateway.request(`/v1/keys/${id}`, { method: 'DELETE' });
  });

  it('revokes its key after 30 days without use, and no other key', async () => {
    const { sql } = bench.gateway.db;
    await chat();
    const [held] = await playgroundKeys();
    const named = await bench.gateway.request('/v1/keys', { body: { name: 'of a program' } });
    const { id: other } = (await named.json()) as Body;
    const keys = keysAhead(29 * dayMs);
    const statusOf = async (id = ''): Promise<string> =>
      ((await (await bench.gateway.request(`/v1/keys/${id}`)).json()) as Body).status;
    await keys.endUnusedHeld();
    expect(await statusOf(held?.id)).toBe('active');
    await sql`update api_keys set created_at = now() - interval '3 days', last_used_at = now() - interval '2 days' where id in (${uuidOf('key', held?.id ?? '')}::uuid, ${uuidOf('key', other)}::uuid)`;
    await keys.endUnusedHeld();
    expect([await statusOf(held?.id), await statusOf(other)]).toEqual(['revoked', 'active']);
    await bench.gateway.request(`/v1/keys/${other}`, { method: 'DELETE' });
  });

  it('offers only the models that its key may use', async () => {
    await chat();
    const [key] = await playgroundKeys();
    const scope = (models: readonly string[] | null) =>
      bench.gateway.request(`/v1/keys/${key?.id}`, { method: 'PATCH', body: { models } });
    const offered = async (): Promise<string[]> =>
      (JSON.parse((await admin.get('/portal/playground/models')).text) as { data: { id: string }[] }).data.map(
        ({ id }) => id,
      );
    expect(await offered()).toContain('asleep');
    await scope(['chat']);
    expect(await offered()).toEqual(['chat']);
    await scope(null);
  });

  it('uses the selected project, and explains when there is none', async () => {
    await chat();
    const projects = async () =>
      ((await (await bench.gateway.request('/v1/projects')).json()) as { data: { id: string; archived: boolean }[] })
        .data;
    const archive = (id: string, archived: boolean) =>
      bench.gateway.request(`/v1/projects/${id}/archive`, { method: 'POST', body: { archived } });
    const [first] = await projects();
    const made = await bench.gateway.request('/v1/projects', { body: { name: 'Second' } });
    const { id: second } = (await made.json()) as Body;
    const keyProjects = async () => (await playgroundKeys()).map(({ project_id }) => project_id);
    expect(await keyProjects()).not.toContain(second);
    await archive(first?.id ?? '', true);
    const answered = await chat();
    await archive(second, true);
    const refused = await chat();
    await archive(first?.id ?? '', false);
    expect(answered.status).toBe(200);
    expect(await keyProjects()).toContain(second);
    expect([refused.status, errorIn(refused).code]).toEqual([409, 'conflict']);
    expect(errorIn(refused).message).toMatch(/is archived.*An administrator of the organization can/);
  });

  it('lists ready models first, each with image input, price and expected start time', async () => {
    const { data } = JSON.parse((await admin.get('/portal/playground/models')).text) as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).toEqual(['chat', 'asleep']);
    const asleep = data.find(({ id }) => id === 'asleep');
    expect(asleep).toMatchObject({ status: 'cold', sees: false, price: { output_per_million: expect.any(String) } });
    expect(asleep).toMatchObject({ expectedSeconds: expect.any(Number) });
    const ready = data.find(({ id }) => id === 'chat');
    expect(ready).toMatchObject({ status: 'ready', expectedSeconds: null });
    const shown = await admin.get('/portal/playground');
    expect(shown.text).toContain('requires JavaScript');
    expect(shown.text).toMatch(/<script type="module" src="\/portal\/assets\/[^/]+\/playground\.js">/);
  });
});

/** Until the one stream has its engine. */
async function running(): Promise<void> {
  await eventually(async () => {
    const { held } = (await (await bench.gateway.request('/v1/wallet')).json()) as { held: string };
    return held !== '0';
  });
}
