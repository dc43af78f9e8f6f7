import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.stop());

it('returns outcome_unknown for a change without a body when PostgreSQL does not respond', async () => {
  const made = (await (await gateway.request('/v1/projects', { body: { name: 'Old' } })).json()) as { id: string };
  const sql = postgres(gateway.databaseUrl, { max: 1, onnotice: () => undefined });
  const held = await sql.reserve();
  await held`begin`;
  await held`lock table projects, audit_log in access exclusive mode`;
  try {
    const paths = [`/v1/projects/${made.id}/archive`, '/v1/admin/engines/reload'];
    const answers = await Promise.all(paths.map((path) => gateway.request(path, { method: 'POST' })));
    expect(answers.map(({ status }) => status)).toEqual([503, 503]);
    for (const answer of answers) {
      expect(answer.headers.get('x-should-retry')).toBe('false');
      expect(await answer.json()).toMatchObject({
        error: { message: expect.stringContaining('The outcome is unknown') },
      });
    }
  } finally {
    await held`commit`;
    held.release();
    await sql.end();
  }
});

it('returns OUTCOME_UNKNOWN for a change that waits for a lock and is committed later', async () => {
  const sql = postgres(gateway.databaseUrl, { max: 1, onnotice: () => undefined });
  const held = await sql.reserve();
  await held`begin`;
  await held`lock table projects in access exclusive mode`;
  const body = { name: 'Waiting' };
  const answer = await gateway.request('/v1/projects', { body });
  expect(answer.status).toBe(503);
  expect(answer.headers.get('x-should-retry')).toBe('false');
  expect(await answer.json()).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });
  await held`commit`;
  held.release();
  await sql.end();
  // The request that ran on may have made it meanwhile.
  expect([200, 201, 409]).toContain((await gateway.request('/v1/projects', { body })).status);
});
