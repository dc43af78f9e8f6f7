import OpenAI, { APIError } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { type DatabaseProxy, startDatabaseProxy } from '#test/database-proxy.ts';
import { startApi, type TestApi } from '#test/api/test-api.ts';

const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: 'model-a', messages: [] } };

describe('a request whose COMMIT response is lost', () => {
  let [database, proxy, api]: [TestDatabase | null, DatabaseProxy | null, TestApi | null] = [null, null, null];
  const parts = (): { api: TestApi; proxy: DatabaseProxy } => {
    if (api === null || proxy === null) throw new Error('not started');
    return { api, proxy };
  };
  const clientOf = async (): Promise<OpenAI> => {
    const { key } = await parts().api.organization();
    return new OpenAI({ apiKey: key, baseURL: `${parts().api.url}/v1` });
  };
  const upload = (client: OpenAI) =>
    client.files.create({ file: new File([`${JSON.stringify(line)}\n`], 'in.jsonl'), purpose: 'batch' });
  const batchOf = (input_file_id: string) =>
    ({ input_file_id, endpoint: '/v1/chat/completions', completion_window: '24h' }) as const;

  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await startDatabaseProxy(database.url);
    api = await startApi({ databaseUrl: proxy.url });
  });

  afterEach(() => proxy?.restore());

  afterAll(async () => {
    await api?.stop();
    await proxy?.close();
    await database?.drop();
  });

  it('returns the one committed batch from POST /v1/batches', async () => {
    const { proxy } = parts();
    const client = await clientOf();
    const { id } = await upload(client);
    const lostBefore = proxy.lost;
    proxy.loseCommit();
    const made = await client.batches.create(batchOf(id));
    expect(proxy.lost).toBe(lostBefore + 1);
    expect((await client.batches.list()).data.map((batch) => batch.id)).toEqual([made.id]);
  });

  // A file is begun, written and completed, in a transaction each.
  it.each([0, 1, 2])(
    'returns the one file from POST /v1/files when the response of transaction %i is lost',
    async (skip) => {
      const { proxy } = parts();
      const client = await clientOf();
      const lostBefore = proxy.lost;
      proxy.loseCommit({ skip });
      const made = await upload(client);
      expect(proxy.lost).toBe(lostBefore + 1);
      expect((await client.files.list()).data.map((file) => file.id)).toEqual([made.id]);
    },
  );

  it('returns a working secret from POST /v1/keys', async () => {
    const { api, proxy } = parts();
    const { key } = await api.organization();
    const lostBefore = proxy.lost;
    proxy.loseCommit();
    const made = await api.ask('/v1/keys', { key, body: { name: 'app', scope: 'management' } });
    expect([made.status, proxy.lost]).toEqual([201, lostBefore + 1]);
    const { body } = await api.ask('/v1/keys', { key: made.body.secret });
    expect(body.data.map((found: { id: string }) => found.id)).toContain(made.body.id);
  });

  it('returns 503 with the same message on every route for a read while the database is unreachable', async () => {
    const { api, proxy } = parts();
    const { key } = await api.organization();
    await api.ask('/v1/keys', { key });
    proxy.cut();
    const paths = ['/v1/runs/run_019ab1c2d3e47f008a1b2c3d4e5f6071', '/v1/batches', '/v1/projects'];
    const answers = await Promise.all(paths.map((path) => api.ask(path, { key })));
    const message = 'The database is unreachable. Try again.';
    expect(answers.map(({ status, body }) => [status, body.error.code, body.error.message])).toEqual([
      [503, 'UNAVAILABLE', message],
      [503, 'database_unavailable', message],
      [503, 'UNAVAILABLE', message],
    ]);
  });

  it('returns 503 outcome_unknown, which SDKs do not retry, when the database stays unreachable', async () => {
    const { proxy } = parts();
    const client = await clientOf();
    const { id } = await upload(client);
    proxy.loseCommit({ thenCut: true });
    const failure = await client.batches.create(batchOf(id)).catch((error: unknown) => error);
    proxy.restore();
    expect(failure).toBeInstanceOf(APIError);
    expect(failure).toMatchObject({ status: 503, code: 'outcome_unknown' });
    expect((failure as APIError).headers?.get('x-should-retry')).toBe('false');
    expect((failure as APIError).message).toMatch(/outcome is unknown.*Idempotency-Key/);
    expect((await client.batches.list()).data).toHaveLength(1);
  });
});
