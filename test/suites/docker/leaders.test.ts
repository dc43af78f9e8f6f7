import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterEach, describe, expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { liftLimits } from '#test/gateway.ts';
import { startRedis } from '#test/redis.ts';
import { adminKey, startGatewayProcess, type GatewayProcess } from '#test/redis/gateway-cluster.ts';
import { createCaller, figure, lostOf, until, type Answer, type Caller } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

/** The longest that engines may be without a leader. */
const successionMs = 15_000;
const floor = createFloor();
const steady = { stream: true, standin: { output_tokens: 20, tpot_ms: 20, finish: 'stop' } };
const long = { stream: true, standin: { output_tokens: 200, tpot_ms: 100, finish: 'stop' } };
const made = (id: string): number => floor.events(id).filter(({ action }) => action === 'create').length;
/** The most containers of an engine that ran at once. */
function mostAtOnce(id: string): number {
  let running = 0;
  return Math.max(
    ...floor.events(id).map(({ action }) => (running += action === 'start' ? 1 : action === 'die' ? -1 : 0)),
  );
}
const happened = (id: string): string[] => floor.events(id).map(({ action }) => action);

interface Member extends Caller {
  readonly process: GatewayProcess;
}

interface House {
  readonly sql: postgres.Sql;
  readonly members: readonly Member[];
  /** One more gateway. */
  readonly join: () => Promise<Member>;
  /** The leader of the containers, among the members that are not left out. */
  readonly leader: (without?: Member) => Promise<Member>;
}

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** Gateways as processes of their own, with one PostgreSQL, one Redis and one Docker engine among them. */
async function openHouse(count: number, engines: Readonly<Record<string, string>>): Promise<House> {
  const database = await createTestDatabase();
  const redis = await startRedis();
  const sql = postgres(database.url, { max: 2, onnotice: () => undefined });
  const members: Member[] = [];
  const folders: string[] = [];
  closing.push(async () => {
    await Promise.all(members.map(({ process }) => process.end('SIGKILL')));
    await sql.end();
    await database.drop();
    await redis.stop();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });
  const common = {
    PORT: '0',
    DATABASE_URL: database.url,
    REDIS_URL: redis.url,
    LOG_LEVEL: 'info',
    HEADGATE_ENGINES_DIR: floor.folder(engines),
    HEADGATE_BOOTSTRAP_KEY: adminKey,
    HEADGATE_DATABASE_POOL: '4',
  };
  const join_ = async (): Promise<Member> => {
    const dataDir = mkdtempSync(join(tmpdir(), 'hg-docker-'));
    folders.push(dataDir);
    const process = await startGatewayProcess({ ...common, HEADGATE_DATA_DIR: dataDir });
    if (members.length === 0) await liftLimits(process.url, adminKey);
    const member = { ...createCaller(process.url, adminKey), process };
    members.push(member);
    return member;
  };
  for (let index = 0; index < count; index += 1) await join_();
  const leads = ({ process }: Member): boolean => {
    const words = [
      ...process.output().matchAll(/"scope":"containers".*?this gateway is (?:now|(no longer)) the leader/g),
    ];
    return words.length > 0 && words.at(-1)?.[1] === undefined;
  };
  return {
    sql,
    members,
    join: join_,
    leader: (without) => until('somebody leads', () => members.find((one) => one !== without && leads(one))),
  };
}

/** Ids of requests whose records say that they were completed. */
async function completed(sql: postgres.Sql): Promise<Set<string>> {
  const rows = await sql<{ id: string }[]>`select id::text from usage_records where outcome = 'completed'`;
  return new Set(rows.map(({ id }) => id));
}

/** Nobody got a whole answer that is not in the books. */
async function expectBooked(sql: postgres.Sql, answers: readonly Answer[]): Promise<void> {
  const booked = await completed(sql);
  expect(answers.filter(({ ok, requestId }) => ok && !booked.has(requestId)).map(({ requestId }) => requestId)).toEqual(
    [],
  );
}

describe('a gateway killed with -9 under load', () => {
  it('is replaced by one that adopts its container, and every complete answer is billed', async (test) => {
    const { sql, join: another, members } = await openHouse(1, { adopted: dockerFile('adopted') });
    const [first] = members;
    if (first === undefined) throw new Error('there is no gateway');
    const running = first.load('adopted', 8, steady);
    await running.more(16);
    const [before] = await floor.containers('adopted');
    await first.process.end('SIGKILL');
    const answers = await running.stop();
    const next = await another();
    const beganMs = performance.now();
    const warm = await next.chat('adopted', steady);
    expect(lostOf([warm])).toEqual([]);
    await figure(
      test,
      'adoption: ms from the first request of the next gateway to its end',
      performance.now() - beganMs,
    );
    expect(await floor.containers('adopted')).toMatchObject([{ Id: before?.Id, State: 'running' }]);
    expect(made('adopted')).toBe(1);
    await expectBooked(sql, [...answers, warm]);
    const { balance } = await next.admin('GET', '/v1/wallet');
    const [row] = await sql<{ cost: string }[]>`select coalesce(sum(cost), 0)::text as cost from usage_records`;
    expect(Number(balance) + Number(row?.cost) / 1e12).toBeCloseTo(10, 9);
    await figure(
      test,
      'gateway killed, 8 workers',
      `${lostOf(answers).length} requests cut off, all whole answers booked`,
    );
  });
});

describe('the leader of three gateways', () => {
  it('is replaced after kill -9: streams on the others continue, and cold starts work again', async (test) => {
    const { sql, members, leader } = await openHouse(3, { kept: dockerFile('kept'), later: dockerFile('later') });
    const dead = await leader();
    const others = members.filter((one) => one !== dead);
    expect(lostOf([await dead.chat('kept')])).toEqual([]);
    const [before] = await floor.containers('kept');
    const streams = others.flatMap((one) => [1, 2, 3].map(() => one.begin('kept', long)));
    await Promise.all(streams.map(({ begun }) => begun));
    const killedMs = performance.now();
    await dead.process.end('SIGKILL');
    const running = others.map((one) => one.load('kept', 2, steady));
    const next = await leader(dead);
    const tookMs = performance.now() - killedMs;
    await figure(test, 'leader killed: ms until another leads', tookMs);
    expect(tookMs).toBeLessThan(successionMs);
    const cold = await Promise.all(others.map((one) => one.chat('later', steady)));
    expect(lostOf(cold)).toEqual([]);
    expect(made('later')).toBe(1);
    const answers = (await Promise.all(running.map((one) => one.stop()))).flat();
    const streamed = await Promise.all(streams.map(({ ended }) => ended));
    expect(lostOf([...answers, ...streamed])).toEqual([]);
    expect(await floor.containers('kept')).toMatchObject([{ Id: before?.Id, State: 'running' }]);
    expect(made('kept')).toBe(1);
    expect((await next.engine('kept')).state).toBe('ready');
    await expectBooked(sql, [...answers, ...streamed, ...cold]);
  });

  it('changes nothing after it was frozen and thawed', async (test) => {
    const brief = { idle_seconds: 4 };
    const { members, leader } = await openHouse(3, {
      held: dockerFile('held', { fields: brief }),
      fresh: dockerFile('fresh'),
      ended: dockerFile('ended'),
    });
    const frozen = await leader();
    const others = members.filter((one) => one !== frozen);
    const [left] = others;
    if (left === undefined) throw new Error('there is one gateway alone');
    // Frozen it does not see that the others have requests, and thinks idle what is not.
    const running = others.map((one) => one.load('held', 2, steady));
    expect(lostOf([await frozen.chat('held'), await frozen.chat('ended')])).toEqual([]);
    await Promise.all(running.map((one) => one.more(1)));
    const [held] = await floor.containers('held');
    const frozenMs = performance.now();
    process.kill(frozen.process.pid, 'SIGSTOP');
    // Its own client waits at it, and asks for an engine that another one will start meanwhile.
    const waiting = frozen.chat('fresh', steady);
    const next = await leader(frozen);
    await figure(test, 'leader frozen: ms until another leads', performance.now() - frozenMs);
    expect(lostOf([await left.chat('fresh', steady)])).toEqual([]);
    await left.admin('POST', '/v1/admin/engines/ended/stop');
    await until('it is stopped', async () => (await floor.containers('ended')).length === 0);
    await until('Docker has told of that', () => happened('ended').at(-1) === 'destroy');
    const before = ['held', 'fresh', 'ended'].map((id) => happened(id));
    process.kill(frozen.process.pid, 'SIGCONT');
    expect(lostOf([await waiting])).toEqual([]);
    await until('it knows', () =>
      /"scope":"containers".*this gateway is no longer the leader/.test(frozen.process.output()),
    );
    await until('it sees what the others see', async () => (await frozen.engine('ended')).held === true);
    await Promise.all(running.map((one) => one.more(20)));
    expect(lostOf((await Promise.all(running.map((one) => one.stop()))).flat())).toEqual([]);
    expect(['held', 'fresh', 'ended'].map((id) => happened(id))).toEqual(before);
    const [fresh] = await floor.containers('fresh');
    const epochs = [held, fresh].map((one) => Number(one?.Labels['headgate.epoch']));
    expect(epochs[1]).toBe((epochs[0] ?? NaN) + 1);
    expect(made('fresh')).toBe(1);
    expect(await next.engine('fresh')).toMatchObject({ state: 'ready' });
  });

  it.for([
    { signal: 'SIGKILL' as const, id: 'orphan', what: 'killed' },
    { signal: 'SIGSTOP' as const, id: 'halfway', what: 'frozen and thawed' },
  ])('leaves a working container after it is $what between create and start', async ({ signal, id }) => {
    const { members, leader } = await openHouse(2, { [id]: dockerFile(id) });
    const lost = await leader();
    const other = members.find((one) => one !== lost);
    if (other === undefined) throw new Error('there is one gateway alone');
    const callers = [other];
    const waiting = other.chat(id, steady);
    await until('a container is made', () => made(id) === 1);
    process.kill(lost.process.pid, signal);
    await leader(lost);
    expect(lostOf([await waiting])).toEqual([]);
    if (signal === 'SIGSTOP') {
      process.kill(lost.process.pid, 'SIGCONT');
      await until('it knows', () =>
        /"scope":"containers".*this gateway is no longer the leader/.test(lost.process.output()),
      );
      callers.push(lost);
    }
    expect(lostOf(await Promise.all(callers.map((one) => one.chat(id, steady))))).toEqual([]);
    expect(mostAtOnce(id)).toBe(1);
    await until('no other container', async () => (await floor.containers(id)).length === 1);
    expect(await floor.containers(id)).toMatchObject([{ State: 'running' }]);
    expect(await other.engine(id)).toMatchObject({ state: 'ready' });
  });
});
