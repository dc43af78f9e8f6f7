import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db, isDatabaseUnavailable } from '#base/database/connect-database.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

const poolMax = 4;
const ways = ['refuse', 'reset', 'close', 'silence'] as const;
type Way = (typeof ways)[number] | 'close-secured';

interface Outage {
  readonly proxy: DatabaseProxy;
  readonly db: Db;
}

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

/** A pool of the suite's own behind a proxy of its own. */
function useOutage(tls?: { readonly key: Buffer; readonly cert: Buffer }): Outage {
  let made: Outage | null = null;
  const opened = (): Outage => {
    if (made === null) throw new Error('the pool is opened before the tests, not while they are collected');
    return made;
  };
  beforeAll(async () => {
    const proxy = await startDatabaseProxy(database.url, tls);
    const url = tls === undefined ? proxy.url : `${proxy.url}?sslmode=require`;
    made = { proxy, db: connectDb(url, { poolMax }) };
  });
  afterEach(() => opened().proxy.restore());
  afterAll(async () => {
    await opened().db.close();
    await opened().proxy.close();
  });
  return {
    get proxy() {
      return opened().proxy;
    },
    get db() {
      return opened().db;
    },
  };
}

/** The error of a statement, null when it was done. */
async function failureOf({ db }: Outage): Promise<unknown> {
  return db.sql`select 1`.then(
    () => null,
    (error: unknown) => error,
  );
}

/** How many of the pool's connections work at the same time. */
async function connectionsAtOnce({ db }: Outage): Promise<number> {
  const asked = Array.from({ length: poolMax }, () => db.sql`select pg_backend_pid() as pid, pg_sleep(0.2)`);
  return new Set((await Promise.all(asked)).map(([row]) => row?.['pid'])).size;
}

function takeAway({ proxy }: Outage, way: Way): void {
  if (way === 'refuse') proxy.refuse();
  else proxy.answerWith(way);
}

/** Asks on and on, `loops` statements at a time; the longest wait for an answer, in seconds. */
async function keepAsking(outage: Outage, { loops, untilMs }: { loops: number; untilMs: number }): Promise<number> {
  let longestMs = 0;
  const ask = async (): Promise<void> => {
    while (performance.now() < untilMs) {
      const beganMs = performance.now();
      const failure = await failureOf(outage);
      if (!isDatabaseUnavailable(failure)) throw new Error('not a failed connection', { cause: failure });
      longestMs = Math.max(longestMs, performance.now() - beganMs);
    }
  };
  await Promise.all(Array.from({ length: loops }, ask));
  return longestMs / 1000;
}

/** A transaction that has begun, and has a statement under way. */
async function beginTransaction({ db }: Outage): Promise<{ readonly failure: Promise<unknown> }> {
  const begun = Promise.withResolvers<void>();
  const transaction = db.sql.begin(async (tx) => {
    await tx`select 1`;
    begun.resolve();
    await tx`select pg_sleep(5)`;
  });
  const failure = transaction.then(
    () => null,
    (error: unknown) => error,
  );
  await begun.promise;
  return { failure };
}

interface Course {
  /** True when a transaction under way failed; another error that it throws fails the run. */
  readonly transactionFailed: boolean;
  readonly longestSeconds: number;
  readonly connectionsPerSecond: number;
  readonly failureAfterwards: unknown;
  readonly connectionsAtOnceAfterwards: number;
}

/** Takes the database away from a pool that works, asks on and on meanwhile, and gives it back. */
async function outageOf(outage: Outage, way: Way): Promise<Course> {
  await connectionsAtOnce(outage);
  const { failure } = await beginTransaction(outage);
  takeAway(outage, way);
  const takenBefore = outage.proxy.taken;
  const beganMs = performance.now();
  const longestSeconds = await keepAsking(outage, { loops: poolMax + 2, untilMs: beganMs + 2000 });
  const connectionsPerSecond = (1000 * (outage.proxy.taken - takenBefore)) / (performance.now() - beganMs);
  const transactionFailed = isDatabaseUnavailable(await failure);
  outage.proxy.restore();
  const failureAfterwards = await failureOf(outage);
  const connectionsAtOnceAfterwards = await connectionsAtOnce(outage);
  return { transactionFailed, longestSeconds, connectionsPerSecond, failureAfterwards, connectionsAtOnceAfterwards };
}

// Two rounds: each of a second at most, or of the five that a connection may take to be made.
const longestOf = (way: Way): number => (way === 'silence' ? 20 : 5);
const whole = { transactionFailed: true, failureAfterwards: null, connectionsAtOnceAfterwards: poolMax };

describe('a pool whose database is unavailable', () => {
  const outage = useOutage();
  it.each(ways)('fails in bounded time, connects rarely and loses no connection: %s', async (way) => {
    const course = await outageOf(outage, way);
    expect(course).toMatchObject(whole);
    expect(course.longestSeconds).toBeLessThan(longestOf(way));
    expect(course.connectionsPerSecond).toBeLessThan(5 * poolMax);
  });
});

describe('a pool with TLS whose database is unavailable', () => {
  const fixture = (name: string): Buffer =>
    readFileSync(new URL(`../core/engine-client/fixtures/${name}`, import.meta.url));
  const outage = useOutage({ key: fixture('test-only-key.pem'), cert: fixture('test-only-cert.pem') });
  it.each([...ways, 'close-secured'] as const)(
    'fails in bounded time, connects rarely and loses no connection: %s',
    async (way) => {
      const course = await outageOf(outage, way);
      expect(course).toMatchObject(whole);
      expect(course.longestSeconds).toBeLessThan(longestOf(way));
      expect(course.connectionsPerSecond).toBeLessThan(5 * poolMax);
    },
  );
});

/** Carries all data while a connection is made, and breaks the connection at its first query. */
async function startBreakingProxy(databaseUrl: string): Promise<{ readonly url: string; close(): void }> {
  const target = new URL(databaseUrl);
  const server = createServer((client) => {
    const behind = connect(Number(target.port), target.hostname);
    let isReady = false;
    for (const socket of [client, behind]) {
      socket.on('error', () => undefined);
      socket.on('close', () => [client, behind].forEach((each) => each.destroy()));
    }
    behind.on('data', (bytes: Buffer) => {
      isReady ||= bytes.toString('latin1').endsWith('Z\0\0\0\x05I');
      client.write(bytes);
    });
    client.on('data', (bytes: Buffer) => {
      if (isReady) client.resetAndDestroy();
      else behind.write(bytes);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  const own = new URL(databaseUrl);
  own.port = String(typeof address === 'object' && address !== null ? address.port : 0);
  return { url: own.href, close: () => void server.close() };
}

describe('a connection that is lost right after it is made', () => {
  // A query that postgres.js makes by itself would fail where nobody catches it, and fail the run.
  it('fails only the statement that it was made for', async () => {
    const proxy = await startBreakingProxy(database.url);
    const db = connectDb(proxy.url, { poolMax });
    try {
      for (let round = 0; round < 3; round += 1) {
        const asked = Array.from({ length: poolMax }, () => db.sql`select 1`);
        const outcomes = await Promise.allSettled(asked);
        expect(
          outcomes.map((outcome) => outcome.status === 'rejected' && isDatabaseUnavailable(outcome.reason)),
        ).toEqual(asked.map(() => true));
      }
    } finally {
      await db.close();
      proxy.close();
    }
  });
});
