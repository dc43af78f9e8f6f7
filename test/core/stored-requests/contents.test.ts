import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit } from '#core/audit/audit.ts';
import { createContents, type Contents, type NewContent } from '#core/stored-requests/stored-requests.ts';
import {
  errorOf,
  eventually,
  openOrganization,
  standinFile,
  useInference,
  type Body,
} from '#test/inference/inference-gateway.ts';
import { fresh, makeKey, openReuse } from '#test/cache/caching-key.ts';
import { idAt, uuidOf } from '#test/metering/recorded-usage.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_STORE_MAX_BYTES: '4096' },
}));

const requestIdOf = (answer: Response): string => answer.headers.get('x-request-id') ?? '';

function ask(requestId: string, key: string, method = 'GET'): Promise<Response> {
  return bench.gateway.request(`/v1/usage/requests/${requestId}/content`, { key, method });
}

async function contentOf(answer: Response, key: string): Promise<Body> {
  const found = await eventually(async () => {
    const content = await ask(requestIdOf(answer), key);
    return content.status === 200 ? content : null;
  });
  return found.json();
}

describe('unavailable request content', () => {
  it('returns 404 for a key without store_requests, also after it was turned off', async () => {
    const { chat, key, keyId, managementKey } = await openReuse(bench, {});
    const off = await chat(fresh());
    await off.text();
    const path = `/v1/keys/${keyId}`;
    const patch = (on: boolean): Promise<Response> =>
      bench.gateway.request(path, { key: managementKey, method: 'PATCH', body: { store_requests: on } });
    await patch(true);
    const on = await eventually(async () => {
      const answer = await chat(fresh());
      await answer.text();
      await bench.recordOf(answer, key);
      return (await ask(requestIdOf(answer), key)).status === 200 ? answer : null;
    });
    expect((await ask(requestIdOf(off), key)).status).toBe(404);
    await patch(false);
    await eventually(async () => {
      const answer = await chat(fresh());
      await answer.text();
      return (await ask(requestIdOf(answer), key)).status === 404;
    });
    expect((await ask(requestIdOf(on), key)).status).toBe(200);
  });

  it('returns 404 for another inference key, and for another organization', async () => {
    const { chat, key, managementKey } = await openReuse(bench, { store_requests: true });
    const answer = await chat(fresh());
    await contentOf(answer, key);
    const sibling = await makeKey(bench, managementKey, { store_requests: true });
    const stranger = await openOrganization(bench.gateway, null);
    for (const other of [sibling.secret, stranger.key, bench.gateway.key]) {
      for (const method of ['GET', 'DELETE']) {
        expect(await errorOf(await ask(requestIdOf(answer), other, method))).toMatchObject({
          status: 404,
          code: 'not_found',
        });
      }
    }
    expect((await ask(requestIdOf(answer), managementKey)).status).toBe(200);
  });

  it('returns 404 for a rejected request, an unknown one and an invalid id', async () => {
    const { chat, key } = await openReuse(bench, { store_requests: true }, '0.000001');
    const refused = await chat(fresh());
    expect(refused.status).toBe(402);
    for (const id of [requestIdOf(refused), uuidv7(), 'nonsense']) expect((await ask(id, key)).status).toBe(404);
  });

  it('appears neither in logs nor in the database for a key without store_requests', async () => {
    const { chat, key, keyId } = await openReuse(bench, {});
    const secret = `zebra${Math.random()}`;
    await bench.recordOf(await chat(fresh(secret)), key);
    await bench.recordOf(await chat({ ...fresh(secret), standin: { status: 500, status_message: secret } }), key);
    expect(bench.gateway.logLines.join('\n')).not.toContain(secret);
    const rows = await bench.gateway.db.sql`select 1 from request_contents where key_id = ${uuidOf('key', keyId)}`;
    expect(rows).toHaveLength(0);
  });
});

describe('the stored content', () => {
  it('is a request and its JSON answer, as they were sent', async () => {
    const { chat, key, managementKey } = await openReuse(bench, { store_requests: true });
    const body = { ...fresh('Größe 🙂'), standin: { text: 'Antwort ✓' } };
    const answer = await chat(body);
    const sent: Body = await answer.json();
    for (const reader of [key, managementKey]) {
      const content = await contentOf(answer, reader);
      expect(content).toEqual({
        object: 'usage.content',
        request: { model: 'chat', max_tokens: 8, ...body },
        response: sent,
        truncated: false,
      });
    }
  });

  it('is a stream as text, to its end mark', async () => {
    const { chat, key } = await openReuse(bench, { store_requests: true });
    const answer = await chat({ ...fresh(), stream: true });
    const text = await answer.text();
    expect(await contentOf(answer, key)).toMatchObject({ response: text, truncated: false });
  });

  it('is an error as it was sent, and the part that a client got before it left', async () => {
    const { chat, key } = await openReuse(bench, { store_requests: true });
    const failed = await chat({ ...fresh(), standin: { status: 500 } });
    const error: Body = await failed.json();
    expect(await contentOf(failed, key)).toMatchObject({ response: error });
    const broken = await chat({ ...fresh(), stream: true, standin: { error_after: 3 } });
    const frames = await broken.text();
    expect(await contentOf(broken, key)).toMatchObject({ response: frames });
    const leaving = new AbortController();
    const long = { ...fresh(), stream: true, max_tokens: 400, standin: { output_tokens: 400, tpot_ms: 20 } };
    const left = await chat(long, { signal: leaving.signal });
    const { value } = (await left.body?.getReader().read()) ?? {};
    leaving.abort();
    const content = await contentOf(left, key);
    expect(content.response.startsWith(Buffer.from(value ?? []).toString())).toBe(true);
    expect(content.response).not.toContain('[DONE]');
  });

  it('includes answers from the cache', async () => {
    const { chat, key } = await openReuse(bench, { store_requests: true, cache_responses: true });
    const body = fresh();
    const first: Body = await (await chat(body)).json();
    const hit = await chat(body);
    expect(hit.headers.get('x-headgate-cache')).toBe('hit');
    expect((await contentOf(hit, key)).response).toEqual(first);
  });

  it('is the beginning of a body that is too long, marked as truncated', async () => {
    const { chat, key } = await openReuse(bench, { store_requests: true });
    const text = 'é'.repeat(5000);
    const answer = await chat({ ...fresh(text), stream: true, max_tokens: 100, standin: { output_tokens: 100 } });
    const sent = await answer.text();
    const content = await contentOf(answer, key);
    expect(content.truncated).toBe(true);
    expect(Buffer.byteLength(content.request)).toBeLessThanOrEqual(4096);
    expect(Buffer.byteLength(content.request)).toBeGreaterThan(4090);
    expect(content.request.startsWith('{"model":"chat"')).toBe(true);
    expect(sent.startsWith(content.response)).toBe(true);
    expect(Buffer.byteLength(content.response)).toBeGreaterThan(4090);
  });

  it('is compressed', async () => {
    const { chat, key } = await openReuse(bench, { store_requests: true });
    const answer = await chat(fresh('word '.repeat(500)));
    await contentOf(answer, key);
    const [row] = await bench.gateway.db
      .sql`select length(request)::int as bytes from request_contents where request_id = ${requestIdOf(answer)}`;
    expect(row?.['bytes']).toBeLessThan(500);
  });

  it('is deleted on request, with an audit entry, and its usage record stays', async () => {
    const { chat, key, managementKey } = await openReuse(bench, { store_requests: true });
    for (const by of [key, managementKey]) {
      const answer = await chat(fresh());
      await contentOf(answer, key);
      const id = requestIdOf(answer);
      const deleted = await ask(id, by, 'DELETE');
      expect(await deleted.json()).toEqual({ id, object: 'usage.content', deleted: true });
      expect((await ask(id, key)).status).toBe(404);
      expect((await ask(id, by, 'DELETE')).status).toBe(404);
      const rows = await bench.gateway.db.sql`select action from audit_log where target_id = ${id}`;
      expect(rows.map((row) => row['action'])).toEqual(['usage_content.deleted']);
      expect((await bench.record(id, key)).outcome).toBe('completed');
    }
  });
});

describe('the content store', () => {
  const day = 86_400_000;

  /** Organizations whose turn it was to read. */
  const asked: string[] = [];

  function open(ageMaxMs: number): Contents {
    const clock = { now: () => Date.now(), monotonicMs: () => performance.now() };
    const { db } = bench.gateway;
    return createContents({
      db,
      clock,
      log: createLog('silent'),
      audit: createAudit({ clock }),
      ageMaxMs,
      bodyBytesMax: 1024,
      during(organizationId, run) {
        asked.push(organizationId);
        return run(db);
      },
    });
  }

  const contentAt = (timeMs: number, organizationId: string): NewContent => ({
    requestId: idAt(timeMs),
    organizationId,
    keyId: uuidv7(),
    request: '{}',
    response: '{}',
    responseTruncated: false,
  });

  it('reads through the connections and queue slots of reports', async () => {
    const contents = open(30 * day);
    const organizationId = uuidv7();
    const kept = contentAt(Date.now(), organizationId);
    contents.add(kept);
    const ref = { organizationId, keyIds: null, requestId: kept.requestId };
    expect(await contents.read(ref)).toMatchObject({ request: '{}' });
    expect(asked).toEqual([organizationId]);
  });

  it('returns nothing older than the retention, and deletes it in any amount', async () => {
    const contents = open(30 * day);
    const organizationId = uuidv7();
    const now = Date.now();
    const old = contentAt(now - 31 * day, organizationId);
    const young = contentAt(now - 29 * day, organizationId);
    for (const content of [old, young]) contents.add(content);
    await contents.close(20_000);
    expect(await contents.read({ organizationId, keyIds: null, requestId: old.requestId })).toBeNull();
    const more = Array.from({ length: 1200 }, (_, index) => idAt(now - 31 * day - index - 1));
    await bench.gateway.db.sql`
      insert into request_contents (request_id, organization_id, key_id, request, response, request_truncated, response_truncated)
      select id, ${organizationId}, ${organizationId}, 'x', 'x', false, false from unnest(${`{${more.join()}}`}::uuid[]) as id`;
    await contents.deleteOld();
    const rows = await bench.gateway.db
      .sql`select request_id from request_contents where organization_id = ${organizationId}`;
    expect(rows.map((row) => row['request_id'])).toEqual([young.requestId]);
  });

  it('returns content at once, although it writes in the background', async () => {
    const contents = open(30 * day);
    const content = contentAt(Date.now(), uuidv7());
    contents.add(content);
    const { organizationId, requestId } = content;
    expect(await contents.read({ organizationId, keyIds: null, requestId })).toMatchObject({ request: '{}' });
  });
});
