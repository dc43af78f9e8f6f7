import { describe, expect, it } from 'vitest';
import { type Answer, useApi } from '#test/api/test-api.ts';

/** Files: refused, kept, listed, read, forgotten. */

const bench = useApi({ filesBytesMax: 64 * 1024 * 1024 });

interface Upload {
  readonly key?: string;
  readonly purpose?: string | null;
  readonly filename?: string;
  readonly fields?: Readonly<Record<string, string>>;
}

function formOf(
  bytes: Uint8Array | string,
  { purpose = 'batch', filename = 'in.jsonl', fields = {} }: Upload,
): FormData {
  const form = new FormData();
  const part = typeof bytes === 'string' ? bytes : new Uint8Array(bytes);
  form.set('file', new File([part], filename));
  if (purpose !== null) form.set('purpose', purpose);
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return form;
}

async function sendForm(form: FormData, key = bench().admin): Promise<Answer> {
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch(new URL('/v1/files', bench().url), { method: 'POST', headers, body: form });
  return { status: response.status, headers: response.headers, body: await response.json() };
}

const upload = (bytes: Uint8Array | string, options: Upload = {}): Promise<Answer> =>
  sendForm(formOf(bytes, options), options.key);

async function contentOf(id: string, key = bench().admin): Promise<Response> {
  return fetch(new URL(`/v1/files/${id}/content`, bench().url), { headers: { authorization: `Bearer ${key}` } });
}

const inferenceKey = async (key: string): Promise<string> =>
  (await bench().ask('/v1/keys', { method: 'POST', key, body: {} })).body.secret;

const chunks = async (): Promise<number> => {
  const [row] = await bench().db.sql<{ count: string }[]>`select count(*) from file_chunks`;
  return Number(row?.count);
};

describe('a rejected file upload', () => {
  it.each([
    ['without a purpose', () => formOf('x', { purpose: null }), 400, 'purpose'],
    ['of another purpose', () => formOf('x', { purpose: 'fine-tune' }), 400, 'purpose'],
    ['with a field that is not known', () => formOf('x', { fields: { colour: 'red' } }), 400, 'colour'],
    [
      'that ends at once',
      () => formOf('x', { fields: { 'expires_after[anchor]': 'created_at', 'expires_after[seconds]': '5' } }),
      400,
      'expires_after.seconds',
    ],
    [
      'that ends after another event',
      () => formOf('x', { fields: { 'expires_after[anchor]': 'now', 'expires_after[seconds]': '3600' } }),
      400,
      'expires_after.anchor',
    ],
  ])('returns 400 for a file %s', async (_name, form, status, param) => {
    const before = await chunks();
    const answer = await sendForm(form());
    expect(answer.status).toBe(status);
    expect(answer.body.error.param).toBe(param);
    expect(await chunks()).toBe(before);
  });

  it('returns 400 for a form without a file', async () => {
    const form = new FormData();
    form.set('purpose', 'batch');
    expect(await sendForm(form)).toMatchObject({ status: 400, body: { error: { param: 'file' } } });
  });

  it('returns 415 or 400 for a body that is not a form', async () => {
    const json = await bench().ask('/v1/files', { method: 'POST', body: { purpose: 'batch' } });
    expect(json).toMatchObject({ status: 415 });
    const headers = { 'content-type': 'multipart/form-data' };
    const unbound = await bench().ask('/v1/files', { method: 'POST', body: 'x', headers });
    expect(unbound).toMatchObject({ status: 400, body: { error: { message: /boundary/ } } });
    for (const body of [
      '',
      'x',
      '--b',
      '--b\r\n',
      '--b\r\nx\r\n\r\ny',
      '--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nabc',
    ]) {
      const broken = await bench().ask('/v1/files', {
        method: 'POST',
        body,
        headers: { 'content-type': 'multipart/form-data; boundary=b' },
      });
      expect(broken.status, JSON.stringify(body)).toBe(400);
    }
  });

  it('returns 413 for a file that is too large and has no Content-Length', async () => {
    const headers = { authorization: `Bearer ${bench().admin}`, 'content-type': 'multipart/form-data; boundary=b' };
    const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n';
    const piece = Buffer.alloc(1024 * 1024, 'x');
    async function* parts() {
      yield Buffer.from(head);
      for (let n = 0; n <= 64; n += 1) yield piece;
      yield Buffer.from('\r\n--b--\r\n');
    }
    const body = ReadableStream.from(parts());
    const init = { method: 'POST', headers, body, duplex: 'half' } as RequestInit;
    const answer = await fetch(new URL('/v1/files', bench().url), init);
    expect(answer.status).toBe(413);
    expect(await chunks()).toBe(0);
  });

  it("returns 409 when the organization's storage is full", async () => {
    const { key } = await bench().organization();
    const half = Buffer.alloc(33 * 1024 * 1024, 'x');
    const first = await upload(half, { key });
    expect(first.status).toBe(200);
    const second = await upload(half, { key });
    expect(second).toMatchObject({ status: 409, body: { error: { code: 'conflict' } } });
    expect(second.headers.get('x-should-retry')).toBe('false');
    expect((await bench().ask(`/v1/files/${first.body.id}`, { method: 'DELETE', key })).status).toBe(200);
    expect((await upload(half, { key })).status).toBe(200);
  });
});

describe('a file', () => {
  it("has OpenAI's fields, and its content is returned unchanged", async () => {
    const bytes = Buffer.alloc(700_001);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = (at * 7919) % 256;
    const made = await upload(bytes, { filename: 'dir/a "b".jsonl' });
    expect(made).toMatchObject({
      status: 200,
      body: { object: 'file', bytes: 700_001, purpose: 'batch', status: 'processed', filename: 'a "b".jsonl' },
    });
    expect(made.body.expires_at - made.body.created_at).toBe(30 * 86_400);
    expect((await bench().ask(`/v1/files/${made.body.id}`)).body).toEqual(made.body);
    const content = await contentOf(made.body.id);
    expect(content.headers.get('content-length')).toBe('700001');
    expect(Buffer.from(await content.arrayBuffer()).equals(bytes)).toBe(true);
  });

  it('can be empty, one chunk long, or contain form boundaries', async () => {
    for (const bytes of [
      Buffer.alloc(0),
      Buffer.alloc(262_144, 'a'),
      Buffer.from('\r\n--\r\n------x--\r\n\r\n--'),
      Buffer.from([0, 255, 13, 10]),
    ]) {
      const made = await upload(bytes);
      expect(made.body.bytes).toBe(bytes.length);
      expect(Buffer.from(await (await contentOf(made.body.id)).arrayBuffer()).equals(bytes)).toBe(true);
    }
  });

  it('is listed newest or oldest first, in pages, by purpose', async () => {
    const { key } = await bench().organization();
    const ids: string[] = [];
    for (let n = 0; n < 5; n += 1) ids.push((await upload(`${n}`, { key })).body.id);
    const first = await bench().ask('/v1/files?limit=2', { key });
    expect(first.body).toMatchObject({ object: 'list', has_more: true, last_id: ids[3] });
    const next = await bench().ask(`/v1/files?limit=9&after=${first.body.last_id}`, { key });
    expect(next.body.data.map(({ id }: { id: string }) => id)).toEqual([ids[2], ids[1], ids[0]]);
    expect(next.body.has_more).toBe(false);
    const oldest = await bench().ask('/v1/files?order=asc&limit=1&purpose=batch', { key });
    expect(oldest.body.data[0].id).toBe(ids[0]);
    expect((await bench().ask('/v1/files?purpose=batch_output', { key })).body.data).toEqual([]);
    expect((await bench().ask('/v1/files?purpose=vision', { key })).body.data).toEqual([]);
    expect((await bench().ask('/v1/files?after=file_1', { key })).status).toBe(400);
  });

  it('is visible to its organization only, and to an inference key only if its own', async () => {
    const one = await bench().organization();
    const other = await bench().organization();
    const [mine, beside] = [await inferenceKey(one.key), await inferenceKey(one.key)];
    const { id } = (await upload('secret', { key: mine })).body;
    for (const key of [other.key, beside]) {
      for (const [path, method] of [
        [`/v1/files/${id}`, 'GET'],
        [`/v1/files/${id}/content`, 'GET'],
        [`/v1/files/${id}`, 'DELETE'],
      ] as const) {
        const answer = await bench().ask(path, { method, key });
        expect(answer).toMatchObject({
          status: 404,
          body: { error: { code: 'not_found', message: 'There is no such file.' } },
        });
      }
      expect((await bench().ask('/v1/files', { key })).body.data).toEqual([]);
    }
    expect((await bench().ask(`/v1/files/${id}`, { key: one.key })).status).toBe(200);
    expect(await (await contentOf(id, mine)).text()).toBe('secret');
  });

  it("is deleted when it expires, at the latest after the operator's maximum", async () => {
    const { key } = await bench().organization();
    const keep = (seconds: string): Upload => ({
      key,
      fields: { 'expires_after[anchor]': 'created_at', 'expires_after[seconds]': seconds },
    });
    const short = (await upload('x', keep('3600'))).body;
    expect(short.expires_at - short.created_at).toBe(3600);
    const long = (await upload('x', keep('2592000'))).body;
    bench().turnClock(3_601_000);
    expect((await bench().ask(`/v1/files/${short.id}`, { key })).status).toBe(404);
    expect((await contentOf(short.id, key)).status).toBe(404);
    await bench().files.deleteOld();
    expect((await bench().ask(`/v1/files/${long.id}`, { key })).status).toBe(200);
    bench().turnClock(30 * 86_400_000);
    await bench().files.deleteOld();
    expect(await chunks()).toBe(0);
    const [left] = await bench().db.sql<{ count: string }[]>`select count(*) from files`;
    expect(left?.count).toBe('0');
  });

  it('is hidden while half written, and deleted when its writer is dead', async () => {
    const { id: organization, key } = await bench().organization();
    const [row] = await bench().db.sql<{ id: string; project: string }[]>`
      select organization_id as id, id as project from projects where organization_id = ${organization.replace('org_', '')}::uuid limit 1`;
    const writer = await bench().files.create({
      organizationId: row?.id ?? '',
      projectId: row?.project ?? '',
      keyId: null,
      purpose: 'batch',
      keepSeconds: null,
      bytesMax: 1_000_000,
    });
    await writer.add(Buffer.alloc(600_000, 'x'));
    expect(await chunks()).toBeGreaterThan(0);
    expect((await bench().ask('/v1/files', { key })).body.data).toEqual([]);
    await bench().files.deleteOld();
    expect(await chunks()).toBeGreaterThan(0);
    bench().turnClock(601_000);
    await bench().files.deleteOld();
    expect(await chunks()).toBe(0);
    await expect(writer.add(Buffer.alloc(300_000, 'x'))).rejects.toThrow(/was discarded/);
  });
});
