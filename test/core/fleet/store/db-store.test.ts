import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/db.ts';
import { createLog } from '#base/log.ts';
import { type Fence, FenceLostError } from '#core/fleet/drivers/driver.ts';
import type { FleetBoard, GoodSpec, PublishedEngine } from '#core/fleet/store/coordination-store.ts';
import { createDbBoard, type DbBoardOptions } from '#core/fleet/store/db-store.ts';
import { startDatabaseProxy } from '../../../support/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '../../../support/database.ts';

const until = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 120_000, interval: 10 });

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
  readonly board: FleetBoard;
  readonly changes: () => number;
}

async function join(over: Partial<DbBoardOptions> = {}): Promise<TestBoard> {
  const id = randomUUID();
  live.add(id);
  const log = createLog('silent');
  const liveGateways = () => Promise.resolve(live);
  const board = createDbBoard({ db, scope, gatewayId: id, liveGateways, clock: systemClock, log, ...over });
  let changes = 0;
  board.onChange(() => (changes += 1));
  open.push(() => board.close());
  await board.start();
  return { id, board, changes: () => changes };
}

async function leaderOf({ board }: TestBoard): Promise<Fence> {
  await until(() => expect(board.leadership.current()).not.toBeNull());
  const fence = board.leadership.current();
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

describe('what is published', () => {
  it('is refused under a fence that does not hold', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    await first.board.publish(fence, [engine()]);
    const { board, fence: newer } = await succeed(first);
    await expect(first.board.publish(fence, [engine({ phase: 'stopped' })])).rejects.toThrow(FenceLostError);
    expect(await board.read()).toMatchObject({ version: 1n, epoch: fence.epoch, engines: [{ phase: 'ready' }] });
    expect(await board.publish(newer, [engine({ phase: 'held' })])).toBe(2n);
    await expect(first.board.publish(fence, [])).rejects.toThrow(FenceLostError);
    expect(await first.board.read()).toMatchObject({ version: 2n, epoch: newer.epoch, engines: [{ phase: 'held' }] });
  });

  it('is refused once the lease was given back', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    await first.board.leadership.close();
    await expect(first.board.publish(fence, [engine()])).rejects.toThrow(FenceLostError);
    expect(await first.board.read()).toBeNull();
  });

  it('comes back as it was, NUL and broken characters apart', async () => {
    const { board } = await join();
    const fence = board.leadership.current();
    if (fence === null) throw new Error('it does not lead');
    expect(await board.read()).toBeNull();
    const cause = { kind: 'crashed', publicText: 'a\0b"\\u0000 \u{1F600} \ud800' } as const;
    await board.publish(fence, [engine({ cause, rollout: { specHash: 'b2', state: 'refused', text: 'no' } })]);
    const published = await board.read();
    expect(published?.engines).toEqual([
      engine({
        cause: { kind: 'crashed', publicText: 'ab"\\u0000 \u{1F600} \ufffd' },
        rollout: { specHash: 'b2', state: 'refused', text: 'no' },
      }),
    ]);
    await board.publish(fence, []);
    expect(await board.read()).toEqual({ version: 2n, epoch: fence.epoch, engines: [] });
  });

  it('reaches the other gateways without their asking', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const [second, third] = [await join(), await join()];
    await leader.board.publish(fence, [engine()]);
    await until(() => expect([second.changes(), third.changes()]).toEqual([1, 1]));
    expect((await third.board.read())?.version).toBe(1n);
  });

  it('grows by one version with each of many writes at once', async () => {
    const { board } = await join();
    const fence = board.leadership.current();
    if (fence === null) throw new Error('it does not lead');
    const phases = ['stopped', 'starting', 'ready'] as const;
    const versions = await Promise.all(phases.map((phase) => board.publish(fence, [engine({ phase })])));
    expect(new Set(versions)).toEqual(new Set([1n, 2n, 3n]));
    expect((await board.read())?.version).toBe(3n);
  });
});

describe('demands', () => {
  it('of all gateways are known to the leader, each as it was told last', async () => {
    const leader = await join();
    await leaderOf(leader);
    const other = await join();
    await leader.board.report({ seenVersion: 0n, engines: {} });
    await other.board.report({ seenVersion: 1n, engines: { chat: { waiting: 0, idleMs: 12, leases: {} } } });
    await other.board.report({ seenVersion: 2n, engines: { chat: busy } });
    const demands = await leader.board.demands();
    expect(new Map(demands.map(({ gatewayId, ...demand }) => [gatewayId, demand]))).toEqual(
      new Map([
        [leader.id, { seenVersion: 0n, engines: {} }],
        [other.id, { seenVersion: 2n, engines: { chat: busy } }],
      ]),
    );
    await until(() => expect(leader.changes()).toBeGreaterThan(0));
  });

  it('of a gateway that closed are gone at once, of one that died after a while', async () => {
    const leader = await join({ times: { goneAfterMs: 1500 } });
    await leaderOf(leader);
    const [closed, died] = [await join(), await join()];
    await closed.board.report({ seenVersion: 1n, engines: { chat: busy } });
    await died.board.report({ seenVersion: 1n, engines: { chat: busy } });
    expect(await leader.board.demands()).toHaveLength(2);
    await closed.board.close();
    expect((await leader.board.demands()).map(({ gatewayId }) => gatewayId)).toEqual([died.id]);
    await until(async () => expect(await leader.board.demands()).toEqual([]));
  });

  it('of gateways that died are swept away in the end', async () => {
    const died = await join();
    await died.board.report({ seenVersion: 1n, engines: {} });
    await db.sql`update fleet_demands set updated_at = now() - interval '1 hour' where gateway_id = ${died.id}`;
    await join();
    await until(async () => {
      expect(await db.sql`select 1 from fleet_demands where gateway_id = ${died.id}`).toHaveLength(0);
    });
  });
});

describe('orders', () => {
  it('are not taken under a fence that does not hold', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    const { board, fence: newer } = await succeed(first);
    (await board.order('chat', 'stop')).committed();
    expect(await first.board.takeOrders(fence)).toEqual([]);
    expect(await board.takeOrders(newer)).toMatchObject([{ engineId: 'chat', kind: 'stop' }]);
  });

  it('are taken once, oldest first, the newest for each engine', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const other = await join();
    const ids: string[] = [];
    for (const [{ board }, engineId, kind] of [
      [other, 'chat', 'start'],
      [other, 'embed', 'restart'],
      [leader, 'chat', 'stop'],
    ] as const) {
      const { id, committed } = await board.order(engineId, kind);
      ids.push(id);
      committed();
    }
    expect(ids).toEqual(ids.toSorted((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1)));
    const taken = await Promise.all(Array.from({ length: 4 }, () => leader.board.takeOrders(fence)));
    expect(taken.flat()).toEqual([
      { id: ids[1], engineId: 'embed', kind: 'restart' },
      { id: ids[2], engineId: 'chat', kind: 'stop' },
    ]);
    expect(await leader.board.takeOrders(fence)).toEqual([]);
  });

  it('of a transaction are there once it is committed, and never where it is not', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const failed = db.orm.transaction(async (tx) => {
      await leader.board.order('chat', 'stop', tx);
      throw new Error('the audit log is full');
    });
    await expect(failed).rejects.toThrow('the audit log is full');
    const { id, committed } = await db.orm.transaction(async (tx) => {
      const noted = await leader.board.order('chat', 'start', tx);
      expect(await leader.board.takeOrders(fence)).toEqual([]);
      return noted;
    });
    const before = leader.changes();
    committed();
    await until(() => expect(leader.changes()).toBeGreaterThan(before));
    expect(await leader.board.takeOrders(fence)).toEqual([{ id, engineId: 'chat', kind: 'start' }]);
  });

  it('wake the leader, and do not reach another scope', async () => {
    const leader = await join();
    const fence = await leaderOf(leader);
    const other = await join();
    scope = 'shared of another test';
    const elsewhere = await join();
    (await other.board.order('chat', 'reset')).committed();
    await until(() => expect(leader.changes()).toBeGreaterThan(0));
    expect(await elsewhere.board.takeOrders(await leaderOf(elsewhere))).toEqual([]);
    expect(await leader.board.takeOrders(fence)).toHaveLength(1);
  });
});

const spec = (over: Partial<GoodSpec> = {}): GoodSpec => {
  return { engineId: 'chat', specHash: 'a1', definition: '{"b":"\\u0000","a":1}', revision: 0n, ...over };
};

describe('a spec that passed its checks', () => {
  it('is neither kept nor dropped under a fence that does not hold', async () => {
    const first = await join();
    const fence = await leaderOf(first);
    expect(await first.board.keepGoodSpec(fence, spec())).toBe(1n);
    const { board, fence: newer } = await succeed(first);
    expect(await first.board.keepGoodSpec(fence, spec({ specHash: 'b2', revision: 1n }))).toBeNull();
    expect(await first.board.keepGoodSpec(fence, spec({ engineId: 'embed' }))).toBeNull();
    expect(await first.board.dropGoodSpec(fence, spec({ revision: 1n }))).toBe(false);
    expect(await board.goodSpecs()).toEqual([spec({ revision: 1n })]);
    expect(await board.keepGoodSpec(newer, spec({ specHash: 'b2', revision: 1n }))).toBe(2n);
    await board.leadership.close();
    expect(await board.keepGoodSpec(newer, spec({ specHash: 'c3', revision: 2n }))).toBeNull();
    expect(await board.goodSpecs()).toEqual([spec({ specHash: 'b2', revision: 2n })]);
  });

  it('is not undone by a write that was given up for lost and lands later', async () => {
    const { board, ...leader } = await join();
    const fence = await leaderOf({ board, ...leader });
    await board.keepGoodSpec(fence, spec());
    await board.keepGoodSpec(fence, spec({ specHash: 'b2', revision: 1n }));
    expect(await board.keepGoodSpec(fence, spec({ specHash: 'late', revision: 1n }))).toBeNull();
    expect(await board.keepGoodSpec(fence, spec({ specHash: 'late' }))).toBeNull();
    expect(await board.dropGoodSpec(fence, spec({ revision: 1n }))).toBe(false);
    expect(await board.goodSpecs()).toEqual([spec({ specHash: 'b2', revision: 2n })]);
  });

  it('is kept to the letter for whoever leads next, of its own scope alone, until it is dropped', async () => {
    const first = await join();
    await first.board.keepGoodSpec(await leaderOf(first), spec());
    const { board, fence } = await succeed(first);
    expect(await board.goodSpecs()).toEqual([spec({ revision: 1n })]);
    const home = scope;
    scope = `${home} of another test`;
    const elsewhere = await join();
    expect(await elsewhere.board.goodSpecs()).toEqual([]);
    expect(await elsewhere.board.dropGoodSpec(await leaderOf(elsewhere), spec({ revision: 1n }))).toBe(false);
    expect(await board.dropGoodSpec(fence, spec({ revision: 1n }))).toBe(true);
    expect(await board.goodSpecs()).toEqual([]);
  });
});

describe('while Postgres is away', () => {
  it('everything that is asked rejects, nothing else throws, and afterwards it goes on', async () => {
    const proxy = await startDatabaseProxy(database.url);
    const through = connectDb(proxy.url, { poolMax: 2 });
    open.push(async () => {
      await through.close();
      await proxy.close();
    });
    const { board, changes } = await join({ db: through });
    const fence = board.leadership.current();
    if (fence === null) throw new Error('it does not lead');
    await board.publish(fence, [engine()]);
    proxy.cut();
    const asked = await Promise.allSettled([
      board.read(),
      board.report({ seenVersion: 1n, engines: {} }),
      board.demands(),
      board.order('chat', 'start'),
      board.takeOrders(fence),
      board.publish(fence, []),
      board.goodSpecs(),
      board.keepGoodSpec(fence, spec()),
      board.dropGoodSpec(fence, spec()),
    ]);
    expect(asked.map(({ status }) => status)).toEqual(Array.from({ length: 9 }, () => 'rejected'));
    expect(changes()).toBe(0);
    proxy.restore();
    await until(async () => expect(await board.read()).toMatchObject({ version: 1n }));
    await until(() => expect(board.leadership.current()).not.toBeNull());
  });

  it('a board can be closed', async () => {
    const proxy = await startDatabaseProxy(database.url);
    const through = connectDb(proxy.url, { poolMax: 2 });
    const { board } = await join({ db: through });
    proxy.cut();
    await board.close();
    expect(board.leadership.current()).toBeNull();
    await through.close();
    await proxy.close();
  });
});
