import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { type Line, openLine } from '#test/tcp-line.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { signInVisitor, type Shown, type Visitor } from '#test/portal/visitor.ts';

/** Pages and forms while PostgreSQL or Redis is unavailable: nothing by half, and nobody is signed out for it. */

let database: TestDatabase;
let proxy: DatabaseProxy;
let redis: TestRedis;
let line: Line;
let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  redis = await startRedis();
  line = await openLine(portOf(redis));
  gateway = await startGateway({ databaseUrl: proxy.url, redisUrl: line.url });
  admin = await signInVisitor(gateway);
});
afterAll(async () => {
  proxy.restore();
  line.lead(portOf(redis));
  await gateway.stop();
  line.close();
  await redis.stop();
  await proxy.close();
  await database.drop();
});
beforeEach(async () => {
  proxy.restore();
  await eventually(async () => (await admin.get('/portal/keys')).status === 200);
});

const portOf = ({ url }: TestRedis): number => Number(new URL(url).port);

const pages = [
  '/',
  '/portal/keys',
  '/portal/keys/new',
  '/portal/usage',
  '/portal/wallet',
  '/portal/models',
  '/portal/playground',
  '/portal/engines',
  '/portal/stacks',
  '/portal/clusters',
  '/portal/runs',
  '/portal/costs',
  '/portal/users',
  '/portal/projects',
  '/portal/organizations',
  '/portal/organization',
  '/portal/invitations',
  '/portal/audit',
  '/portal/account',
];

const newKey = (name: string) => ({ name, scope: 'inference', expiry: 'never' });

async function keysNamed(name: string): Promise<number> {
  const listed = await gateway.request('/v1/keys?limit=100');
  const { data } = (await listed.json()) as { data: { name: string }[] };
  return data.filter((key) => key.name === name).length;
}

/** A page for people that says when to try again, names nothing behind it and signs nobody out. */
function expectAway(path: string, shown: Shown): void {
  expect([path, shown.status]).toEqual([path, 503]);
  expect([path, Number(shown.headers['retry-after'])]).toEqual([path, expect.any(Number)]);
  expect(Number(shown.headers['retry-after'])).toBeGreaterThan(0);
  expect(shown.text).toContain('<html lang="en">');
  expect(shown.text).toMatch(/Try again in (?:a second|\d+ seconds)\./);
  expect(shown.text).not.toMatch(/postgres|ECONN|SQLSTATE|127\.0\.0\.1:/i);
  expect(shown.headers['set-cookie']).toBeUndefined();
}

describe.each(['cut', 'silence'] as const)('the portal while PostgreSQL is unreachable (%s)', (how) => {
  const takeAway = (): void => (how === 'cut' ? proxy.cut() : proxy.answerWith('silence'));

  it('shows the outage with a retry time on every page, and keeps the session', async () => {
    takeAway();
    const shown = await Promise.all(pages.map(async (path) => ({ path, page: await admin.get(path) })));
    for (const { path, page } of shown) expectAway(path, page);
    proxy.restore();
    await eventually(async () => (await admin.get('/portal/keys')).status === 200);
    for (const path of pages) expect([path, (await admin.get(path)).status]).toEqual([path, 200]);
  });

  it('rejects a form, and applies it once when it is sent again', async () => {
    takeAway();
    expectAway('/portal/keys', await admin.post('/portal/keys', newKey(`made ${how}`)));
    proxy.restore();
    await eventually(async () => (await admin.get('/portal/keys')).status === 200);
    expect(await keysNamed(`made ${how}`)).toBe(0);
    expect((await admin.post('/portal/keys', newKey(`made ${how}`))).status).toBe(200);
    expect(await keysNamed(`made ${how}`)).toBe(1);
  });
});

describe('the portal while Redis is unreachable', () => {
  it('shows every page, with an unknown balance', async () => {
    line.lead(null);
    await eventually(async () => (await gateway.request('/v1/wallet')).status === 503);
    for (const path of pages) expect([path, (await admin.get(path)).status]).toEqual([path, 200]);
    for (const path of ['/', '/portal/wallet']) {
      expect((await admin.get(path)).text).toContain('The balance is unavailable');
    }
    line.lead(portOf(redis));
    await eventually(async () => (await gateway.request('/v1/wallet')).status === 200);
    for (const path of ['/', '/portal/wallet']) {
      expect((await admin.get(path)).text).not.toContain('The balance is unavailable');
    }
  });

  it('applies forms once', async () => {
    line.lead(null);
    await eventually(async () => (await gateway.request('/v1/wallet')).status === 503);
    expect((await admin.post('/portal/keys', newKey('made without Redis'))).status).toBe(200);
    line.lead(portOf(redis));
    expect(await keysNamed('made without Redis')).toBe(1);
  });
});
