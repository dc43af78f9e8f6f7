import { once } from 'node:events';
import { request } from 'node:http';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  errorOf,
  framesOf,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Effects of an organization's status and models on its inference requests. */

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    other: standinFile('other'),
    embed: standinFile('embed', { taskType: 'embedding' }),
  },
  env: { HEADGATE_MAX_ACTIVE_KEYS: '1000' },
}));

const change = async (path: string, body: object, key?: string): Promise<Body> => {
  const answer = await bench.gateway.request(path, { method: 'PATCH', body, ...(key !== undefined && { key }) });
  if (answer.status !== 200) throw new Error(await answer.text());
  return answer.json();
};
const organize = (id: string, body: object): Promise<Body> => change(`/v1/organizations/${id}`, body);

async function keyOf(key: string, fields: object = {}): Promise<{ id: string; secret: string }> {
  const limits = { requests_per_minute: null, max_concurrency: null };
  const made: Body = await (await bench.post('/v1/keys', { ...limits, ...fields }, { key })).json();
  return made;
}

const slow = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } };
const suspended = { status: 403, code: 'organization_suspended', type: 'auth_error', param: null };

describe('a suspended organization', () => {
  it('gets 403 from the next request on, and its running streams end within a second', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const app = (await keyOf(key)).secret;
    const bystander = await openOrganization(bench.gateway, '5');
    const [one, two, other] = await Promise.all([
      bench.chat(slow, { key }),
      bench.chat(slow, { key: app }),
      bench.chat({ ...slow, max_tokens: 150 }, { key: bystander.key }),
    ]);
    const texts = [one, two].map((answer) => answer.text());
    await organize(id, { status: 'suspended' });
    for (const secret of [key, app]) {
      for (const body of [{}, { stream: true }, { model: 'none' }]) {
        expect(await errorOf(await bench.chat(body, { key: secret }))).toMatchObject(suspended);
      }
      for (const path of ['/v1/models', '/v1/models/chat', '/v1/usage/requests']) {
        expect(await errorOf(await bench.gateway.request(path, { key: secret }))).toMatchObject(suspended);
      }
    }
    for (const text of await Promise.all(texts)) {
      expect(framesOf(text).at(-2)).toMatchObject({ error: { code: 'organization_suspended', type: 'auth_error' } });
      // The engine makes 50 in a second.
      expect(framesOf(text).length).toBeLessThan(150);
    }
    expect(framesOf(await other.text()).at(-1)).toBe('[DONE]');
    await organize(id, { status: 'active' });
    const again = await bench.chat({}, { key: app });
    expect(again.status).toBe(200);
    // The streams' tokens are billed, and the record has the reason of their end.
    const { reason, outcome, cost } = await bench.recordOf(two, key);
    expect([reason, outcome, Number(cost) > 0]).toEqual(['organization_suspended', 'ended', true]);
  });

  it('is closed the same way, with the code of a revoked key', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const stream = await bench.chat(slow, { key });
    const text = stream.text();
    expect((await bench.gateway.request(`/v1/organizations/${id}`, { method: 'DELETE' })).status).toBe(200);
    expect(await errorOf(await bench.chat({}, { key }))).toMatchObject({ status: 401, code: 'unauthorized' });
    expect(framesOf(await text).at(-2)).toMatchObject({ error: { code: 'unauthorized' } });
    const records: Body = await (await bench.gateway.request(`/v1/usage/requests?organization_id=${id}`)).json();
    expect(records.data).toMatchObject([{ reason: 'unauthorized', outcome: 'ended' }]);
  });
});

describe('a key limited to some models', () => {
  let owner = { id: '', key: '' };
  beforeAll(async () => {
    owner = await openOrganization(bench.gateway, '5');
  });

  const unknown = async (key: string, model: string, fields: object = {}): Promise<Body> => {
    const error = await errorOf(await bench.chat({ ...fields, model }, { key }));
    return { ...error, message: error.message.replace(model, '…') };
  };

  it('gets the same error for other models as for models that do not exist', async () => {
    const { secret } = await keyOf(owner.key, { models: ['chat'] });
    expect((await bench.chat({}, { key: secret })).status).toBe(200);
    const nothing = await unknown(secret, 'nothing');
    expect(nothing).toMatchObject({ status: 400, code: 'model_not_found', param: 'model' });
    expect(nothing.message).toContain('available models for this endpoint: chat.');
    // By its id, its name and the one at Hugging Face.
    for (const name of ['other', 'OTHER', 'The other', 'test/other']) {
      expect(await unknown(secret, name)).toEqual(nothing);
      expect(await unknown(secret, name, { stream: true })).toEqual(nothing);
    }
    const dry = await bench.chat({ model: 'other' }, { key: secret, headers: { 'x-headgate-dry-run': 'true' } });
    expect(await errorOf(dry)).toMatchObject({ status: 400, code: 'model_not_found' });
    const embedding = await bench.post('/v1/embeddings', { model: 'embed', input: 'x' }, { key: secret });
    expect(await errorOf(embedding)).toMatchObject({
      status: 400,
      message: 'The model "embed" does not exist; no available model supports this endpoint.',
    });
  });

  it('sees other models neither in the list nor by id', async () => {
    const { secret } = await keyOf(owner.key, { models: ['chat'] });
    const list: Body = await (await bench.gateway.request('/v1/models', { key: secret })).json();
    expect(list.data.map(({ id }: Body) => id)).toEqual(['chat']);
    const filtered: Body = await (
      await bench.gateway.request('/v1/models?task_type=embedding', { key: secret })
    ).json();
    expect(filtered.data).toEqual([]);
    const [there, nothing] = await Promise.all(
      ['other', 'nothing'].map(async (id) => {
        const error = await errorOf(await bench.gateway.request(`/v1/models/${id}`, { key: secret }));
        return { ...error, message: error.message.replace(id, '…') };
      }),
    );
    expect(there).toEqual(nothing);
    expect(there).toMatchObject({ status: 404, code: 'model_not_found' });
    expect((await bench.gateway.request('/v1/models/chat', { key: secret })).status).toBe(200);
  });

  it('gets no cached answer of other models, and none for an Idempotency-Key', async () => {
    const { id, secret } = await keyOf(owner.key, { cache_responses: true });
    const other = await keyOf(owner.key, { cache_responses: true, models: ['chat'] });
    const body = chatBody({ model: 'other', temperature: 0 });
    const headers = { 'idempotency-key': 'once' };
    const first = await bench.chat(body, { key: secret });
    expect([first.status, first.headers.get('x-headgate-cache')]).toEqual([200, 'miss']);
    expect((await bench.chat(body, { key: secret })).headers.get('x-headgate-cache')).toBe('hit');
    const kept = await bench.chat({ model: 'other', max_tokens: 9 }, { key: secret, headers });
    expect(kept.status).toBe(200);
    await kept.text();
    expect(await errorOf(await bench.chat(body, { key: other.secret }))).toMatchObject({ code: 'model_not_found' });
    await change(`/v1/keys/${id}`, { models: ['chat'] }, owner.key);
    expect(await errorOf(await bench.chat(body, { key: secret }))).toMatchObject({ code: 'model_not_found' });
    const replayed = await bench.chat({ model: 'other', max_tokens: 9 }, { key: secret, headers });
    expect(await errorOf(replayed)).toMatchObject({ status: 400, code: 'model_not_found' });
    expect(replayed.headers.get('idempotent-replayed')).toBeNull();
  });

  it('may use a model as soon as the lists of key and organization allow it, and no longer', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const app = await keyOf(key, { models: ['chat', 'other'] });
    const statuses = async (): Promise<number[]> => {
      const answers = [];
      for (const model of ['chat', 'other']) answers.push(await bench.chat({ model }, { key: app.secret }));
      for (const answer of answers) await answer.text();
      return answers.map(({ status }) => status);
    };
    expect(await statuses()).toEqual([200, 200]);
    await organize(id, { models: ['other'] });
    expect(await statuses()).toEqual([400, 200]);
    await change(`/v1/keys/${app.id}`, { models: null }, key);
    expect(await statuses()).toEqual([400, 200]);
    await organize(id, { models: ['The chat'] });
    expect(await statuses()).toEqual([200, 400]);
    await organize(id, { models: null });
    expect(await statuses()).toEqual([200, 200]);
  });
});

describe('a request whose body arrives slowly', () => {
  it('applies the permissions of key and organization at the end of the body', async () => {
    const owner = await openOrganization(bench.gateway, '5');
    const key = await keyOf(owner.key);
    expect((await bench.chat({}, { key: key.secret })).status).toBe(200);
    const during = async (meanwhile: () => Promise<unknown>): Promise<Body> => {
      const body = JSON.stringify(chatBody({}));
      const headers = {
        authorization: `Bearer ${key.secret}`,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        expect: '100-continue',
      };
      const asked = request(new URL('/v1/chat/completions', bench.gateway.url), { method: 'POST', headers });
      const answered = once(asked, 'response');
      asked.flushHeaders();
      // The head has been read, and who calls is known.
      await once(asked, 'continue');
      asked.write(body.slice(0, 10));
      await meanwhile();
      asked.end(body.slice(10));
      const [answer] = await answered;
      let text = '';
      for await (const part of answer.setEncoding('utf8')) text += part;
      return { status: answer.statusCode, code: JSON.parse(text).error?.code };
    };
    const served = { status: 200, code: undefined };
    expect(await during(() => organize(owner.id, { models: ['other'] }))).toEqual({
      status: 400,
      code: 'model_not_found',
    });
    expect(await during(() => organize(owner.id, { models: null }))).toEqual(served);
    expect(await during(() => change(`/v1/keys/${key.id}`, { models: ['other'] }, owner.key))).toEqual({
      status: 400,
      code: 'model_not_found',
    });
    expect(await during(() => change(`/v1/keys/${key.id}`, { models: ['chat'] }, owner.key))).toEqual(served);
  });
});
