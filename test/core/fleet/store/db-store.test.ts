import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { type Fence, FenceLostError } from '#core/fleet/drivers/fence.ts';
import type { CoordinationStore, GoodSpec, PublishedEngine } from '#core/fleet/store/coordination-store.ts';
import { createDbStore, type DbStoreOptions } from '#core/fleet/store/db-store.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

const until = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 300_000, interval: 10 });

let database: TestDatabase;
let db: Db;
let scope: string;
let live: Set<string>;
const open: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
beforeEach(() => {
  scope = `machine:${randomUUID()}`;
  live = new Set();
});
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

interface TestBoard {
  readonly id: string;
  readonly store: CoordinationStore;
  readonly changes: () => number;
}

async function join(over: Partial<DbStoreOptions> = {}): Promise<TestBoard> {
  const id = randomUUID();
  live.add(id);
  const log = createLog('silent');
  const liveGateways = () => Promise.resolve(live);
  const store = createDbStore({ db, scope, gatewayId: id, liveGateways, clock: systemClock, log, ...over });
  let changes = 0;
  store.onChange(() => (changes += 1));
  open.push(() => store.close());
  await store.start();
  return { id, store, changes: () => changes };
}

async function leaderOf({ store }: TestBoard): Promise<Fence> {
  await until(() => expect(store.leadership.current()).not.toBeNull());
  const fence = store.leadership.current();
  if (fence === null) throw new Error('it does not lead');
  return fence;
}

/** Takes the lead from whoever has it, as if that gateway were known to be dead. */
async function succeed(former: TestBoard): Promise<TestBoard & { fence: Fence }> {
  live.delete(former.id);
  const next = await join();
  return { ...next, fence: await leaderOf(next) };
}

function engine(over: Partial<PublishedEngine> = {}): PublishedEngine {
  return {
    engineId: 'acme/chat:7b',
    specHash: 'a1',
    phase: 'ready',
    sinceMs: 1_700_000_000_000,
    cause: null,
    retryAtMs: null,
    failedStarts: 0,
    replicas: [
      {
        id: 'r1',
        specHash: 'a1',
        state: 'ready',
        host: 'local',
        gpuIds: ['GPU-1'],
        progress: null,
        sinceMs: 1_700_000_000_000,
      },
    ],
    startTimesMs: [812, 790],
    rollout: null,
    ...over,
  };
}

const busy = { waiting: 2, idleMs: null, leases: { r1: 3 } };

describe('published state', () => {
  it('is rejected under a fence that is no longer valid', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    await first.store.publish(fence, [engine()]);
    const { store, fence: newer } = await succeed(first);
    await expect(first.store.publish(fence, [engine({ phase: 'stopped' })])).rejects.toThrow(FenceLostError);
    expect(await store.read()).toMatchObject({ version: 1n, epoch: fence.epoch, engines: [{ phase: 'ready' }] });
    expect(await store.publish(newer, [engine({ phase: 'held' })])).toBe(2n);
    await expect(first.store.publish(fence, [])).rejects.toThrow(FenceLostError);
    expect(await first.store.read()).toMatchObject({ version: 2n, epoch: newer.epoch, engines: [{ phase: 'held' }] });
  });

  it('is rejected after the lease was released', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    await first.store.leadership.close();
    await expect(first.store.publish(fence, [engine()])).rejects.toThrow(FenceLostError);
    expect(await first.store.read()).toBeNull();
  });

  it('reads back unchanged except for NUL and broken characters', async () => {
    const { store } = await join();
    const fence = store.leadership.current();
    if (fence === null) throw new Error('it does not lead');
    expect(await store.read()).toBeNull();
    const cause = { kind: 'crashed', publicText: 'a\0b"\\u0000 \u{1F600} \ud800' } as const;
    await store.publish(fence, [engine({ cause, rollout: { specHash: 'b2', state: 'refused', text: 'no' } })]);
    const published = await store.read();
    expect(published?.engines).toEqual([
      engine({
        cause: { kind: 'crashed', publicText: 'ab"\\u0000 \u{1F600} \ufffd' },
        rollout: { specHash: 'b2', state: 'refused', text: 'no' },
      }),
    ]);
    await store.publish(fence, []);
    expect(await store.read()).toEqual({ version: 2n, epoch: fence.epoch, engines: [] });
  });

  it('reaches the other gateways without polling', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const [second, third] = [await join(), await join()];
    await leader.store.publish(fence, [engine()]);
    await until(() => expect([second.changes(), third.changes()]).toEqual([1, 1]));
    expect((await third.store.read())?.version).toBe(1n);
  });

  it('grows by one version per write when many writes run at once', async () => {
    const { store } = await join();
    const fence = store.leadership.current();
    if (fence === null) throw new Error('it does not lead');
    const phases = ['stopped', 'starting', 'ready'] as const;
    const versions = await Promise.all(phases.map((phase) => store.publish(fence, [engine({ phase })])));
    expect(new Set(versions)).toEqual(new Set([1n, 2n, 3n]));
    expect((await store.read())?.version).toBe(3n);
  });
});

describe('demands', () => {
  it('reach the leader from all gateways, each in its latest form', async () => {
    const leader = await join();
    await leaderOf(leader);
    const other = await join();
    await leader.store.report({ seenVersion: 0n, engines: {} });
    await other.store.report({ seenVersion: 1n, engines: { chat: { waiting: 0, idleMs: 12, leases: {} } } });
    await other.store.report({ seenVersion: 2n, engines: { chat: busy } });
    const demands = await leader.store.demands();
    expect(new Map(demands.map(({ gatewayId, ...demand }) => [gatewayId, demand]))).toEqual(
      new Map([
        [leader.id, { seenVersion: 0n, engines: {} }],
        [other.id, { seenVersion: 2n, engines: { chat: busy } }],
      ]),
    );
    await until(() => expect(leader.changes()).toBeGreaterThan(0));
  });

  it('disappear at once when a gateway closes, and after a while when it dies', async () => {
    const leader = await join({ times: { expiresAfterMs: 1500 } });
    await leaderOf(leader);
    const [closed, died] = [await join(), await join()];
    await closed.store.report({ seenVersion: 1n, engines: { chat: busy } });
    await died.store.report({ seenVersion: 1n, engines: { chat: busy } });
    expect(await leader.store.demands()).toHaveLength(2);
    await closed.store.close();
    expect((await leader.store.demands()).map(({ gatewayId }) => gatewayId)).toEqual([died.id]);
    await until(async () => expect(await leader.store.demands()).toEqual([]));
  });

  it('are deleted in the end when their gateway is dead', async () => {
    const died = await join();
    await died.store.report({ seenVersion: 1n, engines: {} });
    await db.sql`update fleet_demands set updated_at = now() - interval '1 hour' where gateway_id = ${died.id}`;
    await join();
    await until(async () => {
      expect(await db.sql`select 1 from fleet_demands where gateway_id = ${died.id}`).toHaveLength(0);
    });
  });
});

describe('commands', () => {
  it('are not returned under a fence that is no longer valid', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    const { store, fence: newer } = await succeed(first);
    (await store.command('chat', 'stop')).committed();
    expect(await first.store.takeCommands(fence)).toEqual([]);
    expect(await store.takeCommands(newer)).toMatchObject([{ engineId: 'chat', kind: 'stop' }]);
  });

  it('are returned once, oldest first, only the newest per engine', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const other = await join();
    const ids: string[] = [];
    for (const [{ store }, engineId, kind] of [
      [other, 'chat', 'start'],
      [other, 'embed', 'restart'],
      [leader, 'chat', 'stop'],
    ] as const) {
      const { id, committed } = await store.command(engineId, kind);
      ids.push(id);
      committed();
    }
    expect(ids).toEqual(ids.toSorted((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1)));
    const taken = await Promise.all(Array.from({ length: 4 }, () => leader.store.takeCommands(fence)));
    expect(taken.flat()).toEqual([
      { id: ids[1], engineId: 'embed', kind: 'restart' },
      { id: ids[2], engineId: 'chat', kind: 'stop' },
    ]);
    expect(await leader.store.takeCommands(fence)).toEqual([]);
  });

  it('appear after the commit of their transaction, and never after a rollback', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const failed = db.orm.transaction(async (tx) => {
      await leader.store.command('chat', 'stop', tx);
      throw new Error('the audit log is full');
    });
    await expect(failed).rejects.toThrow('the audit log is full');
    const { id, committed } = await db.orm.transaction(async (tx) => {
      const noted = await leader.store.command('chat', 'start', tx);
      expect(await leader.store.takeCommands(fence)).toEqual([]);
      return noted;
    });
    const before = leader.changes();
    committed();
    await until(() => expect(leader.changes()).toBeGreaterThan(before));
    expect(await leader.store.takeCommands(fence)).toEqual([{ id, engineId: 'chat', kind: 'start' }]);
  });

  it('wake the leader, and do not reach another scope', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const other = await join();
    scope = 'shared of another test';
    const elsewhere = await join();
    (await other.store.command('chat', 'reset')).committed();
    await until(() => expect(leader.changes()).toBeGreaterThan(0));
    expect(await elsewhere.store.takeCommands(await leaderOf(elsewhere))).toEqual([]);
    expect(await leader.store.takeCommands(fence)).toHaveLength(1);
  });
});

const spec = (over: Partial<GoodSpec> = {}): GoodSpec => {
  return { engineId: 'chat', specHash: 'a1', definition: '{"b":"\\u0000","a":1}', revision: 0n, ...over };
};

describe('a stored good spec', () => {
  it('is neither written nor deleted under a fence that is no longer valid', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    expect(await first.store.keepGoodSpec(fence, spec())).toBe(1n);
    const { store, fence: newer } = await succeed(first);
    expect(await first.store.keepGoodSpec(fence, spec({ specHash: 'b2', revision: 1n }))).toBeNull();
    expect(await first.store.keepGoodSpec(fence, spec({ engineId: 'embed' }))).toBeNull();
    expect(await first.store.dropGoodSpec(fence, spec({ revision: 1n }))).toBe(false);
    expect(await store.goodSpecs()).toEqual([spec({ revision: 1n })]);
    expect(await store.keepGoodSpec(newer, spec({ specHash: 'b2', revision: 1n }))).toBe(2n);
    await store.leadership.close();
    expect(await store.keepGoodSpec(newer, spec({ specHash: 'c3', revision: 2n }))).toBeNull();
    expect(await store.goodSpecs()).toEqual([spec({ specHash: 'b2', revision: 2n })]);
  });

  it('is not overwritten by a late write with an older revision', async () => {
    const { store, ...leader } = await join();
    const fence = await leaderOf({ store, ...leader });
    await store.keepGoodSpec(fence, spec());
    await store.keepGoodSpec(fence, spec({ specHash: 'b2', revision: 1n }));
    expect(await store.keepGoodSpec(fence, spec({ specHash: 'late', revision: 1n }))).toBeNull();
    expect(await store.keepGoodSpec(fence, spec({ specHash: 'late' }))).toBeNull();
    expect(await store.dropGoodSpec(fence, spec({ revision: 1n }))).toBe(false);
    expect(await store.goodSpecs()).toEqual([spec({ specHash: 'b2', revision: 2n })]);
  });

  it('reads back exactly for the next leader of its own scope until it is deleted', async () => {
    const first = await join();
    await first.store.keepGoodSpec(await leaderOf(first), spec());
    const { store, fence } = await succeed(first);
    expect(await store.goodSpecs()).toEqual([spec({ revision: 1n })]);
    const home = scope;
    scope = `${home} of another test`;
    const elsewhere = await join();
    expect(await elsewhere.store.goodSpecs()).toEqual([]);
    expect(await elsewhere.store.dropGoodSpec(await leaderOf(elsewhere), spec({ revision: 1n }))).toBe(false);
    expect(await store.dropGoodSpec(fence, spec({ revision: 1n }))).toBe(true);
    expect(await store.goodSpecs()).toEqual([]);
  });
});

describe('the store without PostgreSQL', () => {
  it('rejects every call, throws nothing else, and recovers afterwards', async () => {
    const proxy = await startDatabaseProxy(database.url);
    const through = connectDb(proxy.url, { poolMax: 2 });
    open.push(async () => {
      await through.close();
      await proxy.close();
    });
    const { store, changes } = await join({ db: through });
    const fence = store.leadership.current();
    if (fence === null) throw new Error('it does not lead');
    await store.publish(fence, [engine()]);
    proxy.cut();
    const asked = await Promise.allSettled([
      store.read(),
      store.report({ seenVersion: 1n, engines: {} }),
      store.demands(),
      store.command('chat', 'start'),
      store.takeCommands(fence),
      store.publish(fence, []),
      store.goodSpecs(),
      store.keepGoodSpec(fence, spec()),
      store.dropGoodSpec(fence, spec()),
    ]);
    expect(asked.map(({ status }) => status)).toEqual(Array.from({ length: 9 }, () => 'rejected'));
    expect(changes()).toBe(0);
    proxy.restore();
    await until(async () => expect(await store.read()).toMatchObject({ version: 1n }));
    await until(() => expect(store.leadership.current()).not.toBeNull());
  });

  it('closes', async () => {
    const proxy = await startDatabaseProxy(database.url);
    const through = connectDb(proxy.url, { poolMax: 2 });
    const { store } = await join({ db: through });
    proxy.cut();
    await store.close();
    expect(store.leadership.current()).toBeNull();
    await through.close();
    await proxy.close();
  });
});
