import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { createDbStore, createFleet, type Fleet } from '#core/fleet/fleet.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { Machines } from '../simulated-machines.ts';
import { mustAcquire, newFolder } from '#test/fleet/test-fleet.ts';

const until = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 300_000, interval: 20 });

let database: TestDatabase;
let db: Db;
let scope: string;
let live: Set<string>;
let machines: Machines;
const ends: (() => Promise<void>)[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
beforeEach(() => {
  scope = `containers of ${randomUUID()}`;
  live = new Set();
  machines = new Machines([gpuHost('h', 1)]);
  ends.push(() => machines.close());
});
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

interface Gateway {
  readonly fleet: Fleet;
  readonly logLines: readonly string[];
  /** Its lease is anybody's from now on. */
  readonly die: () => void;
}

/** A gateway on the store of this test, with room for one replica. */
async function gateway(...engines: EngineDefinition[]): Promise<Gateway> {
  const folder = newFolder();
  const id = randomUUID();
  live.add(id);
  const logLines: string[] = [];
  const log = createLog('info', { write: (line: string) => void logLines.push(line) });
  const common = { clock: systemClock, log };
  const store = createDbStore({ db, scope, gatewayId: id, liveGateways: () => Promise.resolve(live), ...common });
  const fleet = createFleet({
    engines,
    dataDir: join(folder, 'data'),
    workingDirectory: folder,
    env: {},
    drivers: { docker: machines.driver() },
    stores: { shared: store },
    policy: { backoffFirstMs: 20 },
    ...common,
  });
  await fleet.start();
  ends.push(async () => {
    await fleet.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { fleet, logLines, die: () => live.delete(id) };
}

type Driver = Parameters<typeof containerDefinition>[1];
const chat = (version: number, over: Driver = {}) =>
  containerDefinition('chat', { image: `acme/engine:${version}`, idleMs: 100, upMinMs: 0, drainMs: 2000, ...over });

/** The image that answers a request. */
async function answerer(fleet: Fleet): Promise<string | undefined> {
  const lease = await mustAcquire(fleet, 'chat');
  const hash = machines.replicas.get(lease.replica.id)?.observed.specHash;
  lease.release();
  return hash;
}

const idle = () => until(() => expect(machines.replicas.size).toBe(0));
const rolloutOf = (fleet: Fleet) => fleet.list()[0]?.rollout?.state;
const kept = () => db.sql<{ hash: string; definition: string }[]>`
  select spec_hash as hash, definition::text from fleet_good_specs where scope = ${scope}`;

async function refused(): Promise<Gateway> {
  const first = await gateway(chat(1));
  expect(await answerer(first.fleet)).toBe('chat acme/engine:1');
  machines.broken.add('chat acme/engine:2');
  first.fleet.prepare([chat(2)])();
  await answerer(first.fleet);
  await until(() => expect(rolloutOf(first.fleet)).toBe('refused'));
  await until(async () => expect(await kept()).toHaveLength(1));
  return first;
}

describe('the stored good definition of an engine', () => {
  it.each([
    ['has another hash than it had', `spec_hash = 'of another version'`],
    ['is not a definition', `definition = '{"id":"chat"}'`],
    ['is another engine’s', `definition = replace(definition::text, '"id":"chat"', '"id":"other"')::json`],
  ])('is ignored and logged when it %s', async (_, change) => {
    const first = await gateway(chat(1));
    await answerer(first.fleet);
    await until(async () => expect(await kept()).toHaveLength(1));
    await idle();
    await first.fleet.close();
    await db.sql.unsafe(`update fleet_good_specs set ${change} where scope = '${scope}'`);
    machines.broken.add('chat acme/engine:2');
    const { fleet, logLines } = await gateway(chat(2));
    expect(logLines.filter((line) => line.includes('can no longer be started'))).toHaveLength(1);
    expect(await fleet.acquire('chat', {})).toMatchObject({ ok: false, refusal: { code: 'start_failed' } });
    expect(rolloutOf(fleet)).toBeUndefined();
  });

  it('is not stored before it passes its checks', async () => {
    machines.broken.add('chat acme/engine:1');
    const { fleet } = await gateway(chat(1));
    expect((await fleet.acquire('chat', {})).ok).toBe(false);
    await idle();
    expect(await kept()).toEqual([]);
    fleet.prepare([chat(3)])();
    await until(async () => expect((await fleet.acquire('chat', {})).ok).toBe(true));
    await until(async () => expect(await kept()).toMatchObject([{ hash: 'chat acme/engine:3' }]));
  });

  it('delays no request while it cannot be written, and is written later', async () => {
    const { fleet, logLines } = await gateway(chat(1));
    const free = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const lock = db.sql.begin(async (sql) => {
      await sql`lock table fleet_good_specs in access exclusive mode`;
      locked.resolve();
      await free.promise;
    });
    await locked.promise;
    for (let round = 0; round < 2; round += 1) {
      await answerer(fleet);
      await idle();
    }
    await until(() => expect(logLines.join('')).toContain('that passed their checks could not be stored'));
    expect(await answerer(fleet)).toBe('chat acme/engine:1');
    free.resolve();
    await lock;
    await until(async () => expect(await kept()).toMatchObject([{ hash: 'chat acme/engine:1' }]));
  });

  it('is deleted when its file is deleted and no replica runs', async () => {
    const { fleet } = await gateway(chat(1), containerDefinition('other', { image: 'acme/other:1' }));
    const lease = await mustAcquire(fleet, 'chat');
    await until(async () => expect(await kept()).toHaveLength(1));
    fleet.prepare([containerDefinition('other', { image: 'acme/other:1' })])();
    await until(() => expect(fleet.list().map(({ engineId }) => engineId)).toEqual(['other']));
    expect(await kept()).toHaveLength(1);
    lease.release();
    await until(async () => expect(await kept()).toEqual([]));
  });
});

describe('a refused rollout whose old replica stopped for being idle', () => {
  it('starts the old definition for the next request after the leader died', async () => {
    const first = await refused();
    const { fleet } = await gateway(chat(2));
    first.die();
    await until(() => expect(fleet.leads().find(({ scope: name }) => name === 'shared')?.leads).toBe(true));
    await idle();
    const starts = machines.starts.length;
    expect(await answerer(fleet)).toBe('chat acme/engine:1');
    expect(machines.starts).toHaveLength(starts + 1);
    expect(rolloutOf(fleet)).toBe('refused');
  });

  it('starts the old definition for the next request after a gateway restart', async () => {
    const first = await refused();
    await first.fleet.close();
    const { fleet } = await gateway(chat(2));
    await idle();
    const starts = machines.starts.length;
    expect(await answerer(fleet)).toBe('chat acme/engine:1');
    expect(machines.starts).toHaveLength(starts + 1);
    fleet.prepare([chat(3)])();
    await until(async () => expect(await answerer(fleet)).toBe('chat acme/engine:3'));
    await until(async () => expect(await kept()).toMatchObject([{ hash: 'chat acme/engine:3' }]));
  });
});

describe('a file that changed while no gateway ran', () => {
  it('is rejected when it fails, and the first request gets the former definition', async () => {
    const first = await gateway(chat(1));
    await answerer(first.fleet);
    await until(async () => expect(await kept()).toHaveLength(1));
    await idle();
    await first.fleet.close();
    machines.broken.add('chat acme/engine:2');
    const { fleet } = await gateway(chat(2));
    expect(await answerer(fleet)).toBe('chat acme/engine:1');
    expect(rolloutOf(fleet)).toBe('refused');
    expect(machines.starts).toHaveLength(3);
  });
});

describe('the replacement of a refused file', () => {
  it('does not run the canaries of the refused file', async () => {
    const contains = 'what no engine says';
    const canary = { route: 'chat/completions', body: { messages: [] }, contains } as const;
    const { fleet } = await gateway(chat(1));
    await answerer(fleet);
    fleet.prepare([chat(2, { canaries: [canary] })])();
    await until(() => expect(rolloutOf(fleet)).toBe('refused'));
    expect(await answerer(fleet)).toBe('chat acme/engine:1');
  });
});
