import { parseId } from '#base/id.ts';
import { nodeBody } from '#test/api/cluster-support.ts';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Answer, type AskOptions, startApi, type TestApi } from '#test/api/test-api.ts';

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;

let api: TestApi | null = null;
const ask = (path: string, options: AskOptions = {}): Promise<Answer> => {
  if (api === null) throw new Error('not started');
  return api.ask(path, options);
};
const started = (): TestApi => {
  if (api === null) throw new Error('not started');
  return api;
};

/** Ids of what `creations` need; paths and bodies name them in braces. */
const ids = new Map<string, string>();
const withIds = (text: string): string => text.replaceAll(/\{(\w+)\}/g, (braced, name) => ids.get(name) ?? braced);

beforeAll(async () => {
  api = await startApi({ maxActiveKeys: 50 });
  const idOf = async (path: string, body: object): Promise<string> => (await ask(path, { body })).body.id;
  ids.set('project', await idOf('/v1/projects', { name: 'Owner' }));
  ids.set('account', await idOf(withIds(accounts), { name: 'owner' }));
  const { id } = await started().organization();
  ids.set('organization', id);
  ids.set('cluster', await idOf('/v1/clusters', { organization_id: id, name: 'owner', nodes: [nodeBody('first')] }));
  const url = '/v1/chat/completions';
  const line = { custom_id: 'a', method: 'POST', url, body: { model: 'model-a', messages: [] } };
  ids.set('file', ((await (await upload(JSON.stringify(line), 'input')).json()) as Json).id);
});

afterAll(() => api?.stop());

/** Requests to models have their own Idempotency-Key; test/core/stored-requests tests it. */
const models =
  /^\/v1\/(chat\/completions|completions|responses|responses\/input_tokens|messages|messages\/count_tokens|tokenize|detokenize|embeddings|rerank|score)$/;

/** POSTs that make nothing which a repetition would make once more. */
const createNothing = [
  models,
  // Changes of what is there: done twice they are done.
  /\/(archive|cancel|confirm|forget|end|release|retry|discard|restart|stop|start|heartbeat|allocate|amend|void|reload|report|reset)$/,
  // Creates what is missing, found by hashes and ids of the other program.
  /^\/v1\/imports$/,
  // A second import overlaps the rates of the first one, and is rejected.
  /^\/v1\/billing\/(rate-cards|conversion-rates)\/import$/,
  // A new secret or link in the place of the one before.
  /\/(rotate|reset-link|open)$/,
  /^\/v1\/organization\/projects\/\{id\}(\/(service_accounts\/\{account\}|rate_limits\/\{rate_limit\}))?$/,
  // Nothing here serves them.
  /^\/v1\/(audio|images|moderations)\b/,
  // A delivery more.
  /^\/v1\/webhooks\/\{id\}\/(test|deliveries\/\{delivery\}\/replay)$/,
];

/** POSTs with tests of their own: below, in runs.test.ts and in run-drift.test.ts. */
const testedApart =
  /^\/v1\/(wallet\/(credits|adjustments)|stacks|files|stacks\/\{name\}\/(apply|revert)|runs\/\{id\}\/(retry|destroy|drift-check))$/;
const withoutNames = (path: string): string => path.replaceAll(/\{\w+\}/g, '{}');

interface Created {
  readonly path: string;
  readonly body: object;
  readonly other: object;
  /** Status of the first answer; a repetition gets it too, unless the answer held a secret. */
  readonly status: number;
  readonly secret?: boolean;
}

const name = { name: 'once' };
const accounts = '/v1/organization/projects/{project}/service_accounts';
const cluster = { organization_id: '{organization}', nodes: [nodeBody()] };
const batch = { input_file_id: '{file}', endpoint: '/v1/chat/completions', completion_window: '24h' };
const creations: readonly Created[] = [
  { path: '/v1/keys', body: name, other: { name: 'other' }, status: 201, secret: true },
  { path: '/v1/organizations', body: name, other: { name: 'other' }, status: 201, secret: true },
  { path: '/v1/organization/admin_api_keys', body: name, other: { name: 'other' }, status: 200, secret: true },
  {
    path: '/v1/webhooks',
    body: { url: 'https://hooks.test/a', events: ['engine.failed'] },
    other: { url: 'https://hooks.test/b', events: ['engine.failed'] },
    status: 201,
    secret: true,
  },
  { path: '/v1/projects', body: { name: 'P' }, other: { name: 'Q' }, status: 201 },
  { path: '/api/v1/projects', body: { name: 'R' }, other: { name: 'S' }, status: 201 },
  { path: '/v1/organization/projects', body: { name: 'T' }, other: { name: 'U' }, status: 200 },
  {
    path: '/v1/users',
    body: { email: 'a@once.test', name: 'A', password: 'correct horse battery' },
    other: { email: 'b@once.test', name: 'B', password: 'correct horse battery' },
    status: 201,
  },
  {
    path: '/api/v1/users',
    body: { email: 'e@once.test', name: 'E', password: 'correct horse battery' },
    other: { email: 'f@once.test', name: 'F', password: 'correct horse battery' },
    status: 201,
  },
  {
    path: '/v1/invitations',
    body: { email: 'c@once.test' },
    other: { email: 'd@once.test' },
    status: 201,
    secret: true,
  },
  {
    path: '/v1/budgets',
    body: { scope: { type: 'user', id: null }, period: 'monthly', amount: '5' },
    other: { scope: { type: 'user', id: null }, period: 'daily', amount: '5' },
    status: 201,
  },
  {
    path: '/v1/billing/rate-cards',
    body: { hardware_profile: 'h100', gpu_hour: '1', currency: 'USD', effective_from: '2099-01-01' },
    other: { hardware_profile: 'a100', gpu_hour: '1', currency: 'USD', effective_from: '2099-01-01' },
    status: 201,
    secret: true,
  },
  {
    path: '/v1/billing/conversion-rates',
    body: { from: 'USD', to: 'EUR', rate: '0.9' },
    other: { from: 'USD', to: 'EUR', rate: '0.8' },
    status: 201,
    secret: true,
  },
  { path: accounts, body: name, other: { name: 'other' }, status: 200, secret: true },
  { path: `${accounts}/{account}/api_keys`, body: name, other: { name: 'other' }, status: 200, secret: true },
  {
    path: '/v1/clusters',
    body: { ...cluster, name: 'once' },
    other: { ...cluster, name: 'other' },
    status: 201,
  },
  { path: '/v1/clusters/{cluster}/nodes', body: nodeBody('once'), other: nodeBody('other'), status: 201, secret: true },
  { path: '/v1/batches', body: batch, other: { ...batch, metadata: { a: 'b' } }, status: 200 },
];

const send = (path: string, body: object, key: string, more: AskOptions = {}): Promise<Answer> =>
  ask(withIds(path), {
    ...more,
    body: JSON.parse(withIds(JSON.stringify(body))),
    headers: { ...more.headers, 'idempotency-key': key },
  });

/** Uploads a file for batches with an Idempotency-Key. */
function upload(text: string, key = 'upload'): Promise<Response> {
  const { url, admin } = started();
  const form = new FormData();
  form.append('purpose', 'batch');
  form.append('file', new File([text], 'in.jsonl'));
  const headers = { authorization: `Bearer ${admin}`, 'idempotency-key': key };
  return fetch(new URL('/v1/files', url), { method: 'POST', headers, body: form });
}

/** Resolves when a transaction waits for another one. */
async function waits({ sql }: TestApi['db']): Promise<void> {
  for (;;) {
    const [row] = await sql`select from pg_locks where not granted`;
    if (row !== undefined) return;
  }
}

/** Sends a request while the transaction of another gateway, with the same caller and key, has written its receipt. */
async function meet(end: 'commit' | 'rollback', path: string, body: object, key?: string): Promise<Answer> {
  const { db } = started();
  const held = await db.sql.reserve();
  await held`begin`;
  const name = `${path} ${end}`;
  await held`insert into change_receipts select id, sha256(${name}::text::bytea), sha256('another request'),
    gen_random_uuid(), 'proj_019ab1c2d3e47f008a1b2c3d4e5f6071', now() + interval '1 day' from api_keys`;
  const second = send(path, body, name, key === undefined ? {} : { key });
  await waits(db);
  await held.unsafe(end);
  held.release();
  return second;
}

/** The same for a project; its organization has the names then. */
async function meetProject(end: 'commit' | 'rollback'): Promise<{ answer: Answer; names: string[] }> {
  const { key } = await started().organization();
  const answer = await meet(end, '/v1/projects', { name: 'Meets' }, key);
  const { body } = await ask('/v1/projects?limit=100', { key });
  return { answer, names: body.data.map((project: Json) => project.name) };
}

/** Audited actions on the created object. */
async function createdOf(made: Answer): Promise<string[]> {
  const { body } = await ask(`/v1/audit?all_organizations=true&limit=100`);
  const [id] = /\b[a-z_]+_[0-9a-f]{32}\b/.exec(JSON.stringify(made.body.id ?? made.body)) ?? [];
  return body.data.filter((entry: Json) => entry.target_id === id).map((entry: Json) => entry.action);
}

describe('a POST request with an Idempotency-Key', () => {
  const isSecret = ({ secret }: Created): boolean => secret === true;

  it.each(creations.filter((one) => !isSecret(one)))(
    'creates one object and returns it again: $path',
    async ({ path, body, status }) => {
      const first = await send(path, body, `once ${path}`);
      const again = await send(path, body, `once ${path}`);
      expect([first.status, again.status, again.body.id]).toEqual([status, status, first.body.id]);
      expect(again.headers.get('idempotent-replayed')).toBe('true');
      expect(await createdOf(first)).toHaveLength(1);
    },
  );

  it.each(creations.filter(isSecret))(
    'creates one object and returns 409 with its id and no secret when repeated: $path',
    async ({ path, body, status }) => {
      const first = await send(path, body, `once ${path}`);
      const again = await send(path, body, `once ${path}`);
      expect([first.status, again.status]).toEqual([status, 409]);
      expect(again.body.error.message).toContain(first.body.id);
      const { secret, value, link, management_key: managementKey } = first.body;
      expect(JSON.stringify(again.body)).not.toContain(secret ?? value ?? link ?? managementKey ?? 'no secret');
      expect(await createdOf(first)).toHaveLength(1);
    },
  );

  it.each(creations)('returns 422 when the body differs: $path', async ({ path, other: sent }) => {
    const answer = await send(path, sent, `once ${path}`);
    expect([answer.status, answer.body.error.message]).toEqual([
      422,
      expect.stringContaining('was used for another request'),
    ]);
  });

  it('is documented and tested for every POST, except those whose repetition creates nothing', async () => {
    const { body } = await ask('/openapi.json');
    const posts = Object.entries<Json>(body.paths).filter(([, { post }]) => post !== undefined);
    const declares = ({ post }: Json): boolean =>
      post.parameters?.some(({ name: of }: Json) => of.toLowerCase() === 'idempotency-key') === true;
    const undecided = posts.filter(([path, operations]) => {
      return !declares(operations) && !createNothing.some((known) => known.test(path));
    });
    expect(undecided.map(([path]) => path)).toEqual([]);
    const rows = new Set(creations.map((row) => withoutNames(row.path)));
    const untested = posts.filter(([path, operations]) => {
      return (
        declares(operations) &&
        !rows.has(withoutNames(path)) &&
        ![models, testedApart].some((apart) => apart.test(path))
      );
    });
    expect(untested.map(([path]) => path)).toEqual([]);
  });

  it('is independent of other callers', async () => {
    const [mine, other] = [await started().organization(), await started().organization()];
    const [one, two] = [
      await send('/v1/projects', { name: 'Mine' }, 'k', { key: mine.key }),
      await send('/v1/projects', { name: 'Mine' }, 'k', { key: other.key }),
    ];
    expect([one.status, two.status]).toEqual([201, 201]);
    expect(one.body.id).not.toBe(two.body.id);
  });

  it('creates another object after a day', async () => {
    const first = await send('/v1/organization/projects', { name: 'Daily' }, 'daily');
    await started().db.sql`
      update change_receipts set expires_at = now() where target_id = ${first.body.id}`;
    const second = await send('/v1/organization/projects', { name: 'Daily too' }, 'daily');
    expect([second.status, second.body.id === first.body.id]).toEqual([200, false]);
  });

  it('can be sent again with the same Idempotency-Key after an error', async () => {
    expect((await send('/v1/projects', { name: '' }, 'refused')).status).toBe(400);
    expect((await send('/v1/projects', { name: 'Mended' }, 'refused')).status).toBe(201);
  });

  it('returns 409 with the id when the object is deleted', async () => {
    const budget = { scope: { type: 'user', id: null }, period: 'daily', amount: '7' };
    const { key } = await started().organization();
    const { body } = await send('/v1/budgets', budget, 'deleted', { key });
    await ask(`/v1/budgets/${body.id}`, { method: 'DELETE', key });
    const again = await send('/v1/budgets', budget, 'deleted', { key });
    expect([again.status, again.body.error.message]).toEqual([409, expect.stringContaining(body.id)]);
  });

  it('waits for the transaction on another gateway, and returns 422 when that request differs', async () => {
    const { answer, names } = await meetProject('commit');
    expect([answer.status, answer.body.error.message]).toEqual([
      422,
      expect.stringContaining('was used for another request'),
    ]);
    expect(names).not.toContain('Meets');
  });

  it('creates the object when the other gateway dies before its commit', async () => {
    const { answer, names } = await meetProject('rollback');
    expect(answer.status).toBe(201);
    expect(names).toContain('Meets');
  });

  it('creates one budget when the body names the organization, and returns it again', async () => {
    const { id } = await started().organization();
    const body = { organization_id: id, scope: { type: 'user', id: null }, period: 'monthly', amount: '5' };
    const [first, again] = [await send('/v1/budgets', body, 'of-body'), await send('/v1/budgets', body, 'of-body')];
    expect([first.status, again.status, again.body.id]).toEqual([201, 201, first.body.id]);
  });

  it('returns 422 for another rate card after one that was in effect already', async () => {
    const card = { hardware_profile: 'l40', gpu_hour: '1', currency: 'USD' };
    const { body } = await ask('/v1/billing/rate-cards', { body: card });
    const held = await send('/v1/billing/rate-cards', card, 'held');
    expect([held.status, held.body.id]).toEqual([201, body.id]);
    expect((await send('/v1/billing/rate-cards', { ...card, gpu_hour: '2' }, 'held')).status).toBe(422);
    const again = await send('/v1/billing/rate-cards', card, 'held');
    expect([again.status, again.body.error.message]).toEqual([409, expect.stringContaining(body.id)]);
  });

  it.each([
    ['/v1/wallet/credits', {}],
    ['/v1/wallet/adjustments', { reason: 'a test' }],
  ])('posts one entry, returns it again, and returns 422 for another entry: %s', async (path, more) => {
    const { id } = await started().organization();
    const entry = { organization_id: id, amount: '5', reference: 'a', ...more };
    const first = await send(path, entry, path);
    const again = await send(path, entry, path);
    expect([first.status, again.status, again.body.id]).toEqual([201, 200, first.body.id]);
    const other = await send(path, { ...entry, reference: 'b' }, path);
    expect(other.status).toBe(422);
  });

  it('returns 422 for a credit while another gateway posts a different one', async () => {
    const { id } = await started().organization();
    const answer = await meet('commit', '/v1/wallet/credits', { organization_id: id, amount: '5', reference: 'meets' });
    expect([answer.status, answer.body.error.message]).toEqual([
      422,
      expect.stringContaining('was used for another request'),
    ]);
  });
});

describe('a stack push with an Idempotency-Key', () => {
  const push = async (text: string, key: string): Promise<Json> => {
    const form = new FormData();
    form.append('name', 'pushed-once');
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': `variable "${text}" {}` }))], 'stack.zip'));
    const { url, admin } = started();
    const headers = { authorization: `Bearer ${admin}`, 'idempotency-key': key };
    const answer = await fetch(new URL('/v1/stacks', url), { method: 'POST', headers, body: form });
    return { status: answer.status, ...((await answer.json()) as object) };
  };

  it('creates one version, also when a newer version exists since', async () => {
    const first = await push('one', 'first push');
    const second = await push('two', 'second push');
    const again = await push('one', 'first push');
    expect([first, second].map(({ status, outcome }) => [status, outcome])).toEqual([
      [201, 'created'],
      [200, 'new_version'],
    ]);
    expect(again).toEqual({ ...second, outcome: 'unchanged' });
    expect(await push('two', 'second push')).toEqual({ ...second, outcome: 'unchanged' });
    expect((await push('three', 'first push')).status).toBe(422);
  });
});

describe('a file upload with an Idempotency-Key', () => {
  it('creates one file, also with another form boundary', async () => {
    const first = (await (await upload('{"a":1}\n')).json()) as Json;
    const again = await upload('{"a":1}\n');
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
    expect(await again.json()).toEqual(first);
    expect((await upload('{"a":2}\n')).status).toBe(422);
    const { body } = await ask('/v1/files');
    expect(body.data.map(({ id }: Json) => id)).toEqual([first.id, ids.get('file')]);
  });

  it('returns 413 for a file above the limit, even if the Idempotency-Key was used', async () => {
    await upload('{"a":1}\n');
    const { files } = started();
    const { fileBytesMax } = files;
    Object.assign(files, { fileBytesMax: 8 });
    const larger = await upload('{"a":1}\n{"a":2}\n');
    Object.assign(files, { fileBytesMax });
    expect(larger.status).toBe(413);
  });

  it("returns the file again when the organization's storage is full", async () => {
    const { id } = (await (await upload('{"a":1}\n')).json()) as Json;
    const { sql } = started().db;
    await sql`update files set bytes = 1000000000000000 where id = ${parseId('file', id)}`;
    const again = await upload('{"a":1}\n');
    const other = await upload('{"a":2}\n');
    await sql`update files set bytes = 8 where id = ${parseId('file', id)}`;
    expect([again.status, ((await again.json()) as Json).id, other.status]).toEqual([200, id, 422]);
  });
});
