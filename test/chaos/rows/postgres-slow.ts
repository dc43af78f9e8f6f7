import type { Scene } from '../parts/scene.ts';
import { askOnce } from '../parts/client.ts';
import { sleep } from '../parts/wait.ts';
import { waitMs } from '../report.ts';
import type { Row, Stage } from '../row.ts';
import { runOutage, waitMsMax } from './postgres-away.ts';
import { askFor, between, conclude, namesOf, recover, refused, startLoad } from './steps.ts';

/** PostgreSQL that is there, and holds everybody up: slow commits, a locked row, connections that went silent. */

/** The statements that write records, under whatever name. */
export const settles = (text: string): boolean => /insert\s+into\s+usage_re(cords|quests)/i.test(text);

const slow: Row = {
  name: 'pg-slow',
  what: 'every commit of records takes two seconds',
  run: (stage) =>
    runOutage(stage, {
      begin: (scene) => void (scene.judge = ({ text }) => (settles(text) ? 2000 : 'pass')),
      end: (scene) => void (scene.judge = () => 'pass'),
    }),
};

const blackHoled: Row = {
  name: 'pg-connections-black-holed',
  what: 'connections that there are go silent and stay so; new ones work',
  run: (stage) =>
    runOutage(stage, {
      begin: ({ databaseProxy }) => databaseProxy.silence('existing'),
      end: () => undefined,
    }),
};

const locked: Row = {
  name: 'pg-wallet-locked',
  what: 'an idle transaction locks the wallet of one organization',
  async run(stage) {
    await runOutage(stage, {
      async begin(scene) {
        const release = await lockWallet(scene);
        stage.later(release);
        releases.set(scene, release);
      },
      end: async (scene) => releases.get(scene)?.(),
    });
  },
};

const releases = new WeakMap<Scene, () => Promise<void>>();

/** Locks the wallet of the organization that was opened last: one that is under load. */
async function lockWallet({ postgres: { sql } }: Scene): Promise<() => Promise<void>> {
  const session = await sql.reserve();
  await session`begin`;
  await session`select from wallets where organization_id =
    (select organization_id from wallets order by updated_at desc limit 1) for update`;
  let isOver = false;
  return async () => {
    if (isOver) return;
    isOver = true;
    await session`rollback`.catch(() => undefined);
    session.release();
  };
}

/** More comes than commits can take: rejected requests are rejected before any work. */
const overload: Row = {
  name: 'pg-overload',
  what: 'commits take 2.5 s, and answers may wait 2 s for them (HEADGATE_SETTLE_SECONDS)',
  async run(stage) {
    const scene = await stage.open({ env: { HEADGATE_SETTLE_SECONDS: '2' } });
    const { workload, keys } = await startLoad(stage, scene, { clients: 24, outputTokensMax: 8 });
    scene.judge = ({ text }) => (settles(text) ? 2500 : 'pass');
    await sleep(stage.seconds * 1000);
    scene.judge = () => 'pass';
    await workload.stop();
    stage.saw(workload.seen);
    const { figures } = await conclude(stage, scene, { keys, seen: workload.seen });
    stage.must(figures.withheld === 0, `${figures.withheld} answers were made, charged and held back`);
  },
};

/** One record that the books can never take, among others that they can. */
const poison: Row = {
  name: 'pg-poison-record',
  what: 'the books refuse one record for its own fault (22003), all others are fine',
  async run(stage) {
    const scene = await stage.open();
    const { sql } = scene.postgres;
    await sql.unsafe(`create function chaos_poison() returns trigger language plpgsql as $$ begin
      if new.client_request_id = 'poison' then raise exception using errcode = '22003', message = 'poison'; end if;
      return new; end $$`);
    await sql`create trigger chaos_poisons before insert on usage_requests for each row execute function chaos_poison()`;
    const { workload, keys } = await startLoad(stage, scene);
    const [key] = keys;
    if (key === undefined) throw new Error('there is no key');
    await sleep(1000);
    const beganMs = performance.now();
    const [where] = scene.where();
    const poisoned = where === undefined ? [] : [await askOnce(where, askFor(key, 'poison'))];
    await sleep(3000);
    await workload.stop();
    const all = [...workload.seen, ...poisoned];
    stage.saw(all);
    const failed = refused(between(workload.seen, beganMs, Infinity));
    stage.must(failed.length === 0, `${failed.length} others were not served: ${namesOf(failed)}`);
    const poisonedIds = await mustQuarantine(stage, scene);
    await sql`drop trigger chaos_poisons on usage_requests`;
    await conclude(stage, scene, { keys, seen: workload.seen, refused: poisonedIds });
  },
};

/** The record lies where an operator finds it; it is taken away from there for the comparison. @returns its id */
async function mustQuarantine(stage: Stage, scene: Scene): Promise<ReadonlySet<string>> {
  const { quarantined, usage } = await scene.books();
  if (quarantined === null) {
    stage.must(false, 'there is no quarantine for the record: it was thrown away');
    return new Set();
  }
  const isThere = quarantined.length === 1 && quarantined[0]?.includes('poison') === true;
  stage.must(isThere, `the quarantine has ${quarantined.length} records, not the one`);
  stage.must(!usage.some(({ clientRequestId }) => clientRequestId === 'poison'), 'the record was written all the same');
  const gone = await scene.postgres.sql<{ id: string }[]>`delete from usage_quarantine returning id::text as id`;
  return new Set(gone.map(({ id }) => id));
}

/** A known key is served for so long, then told to come again; it never becomes unknown. */
const pastStale: Row = {
  name: 'pg-away-past-stale',
  what: 'PostgreSQL is away for longer than HEADGATE_AUTH_STALE_SECONDS (3)',
  async run(stage) {
    const staleSeconds = 3;
    const scene = await stage.open({ env: { HEADGATE_AUTH_STALE_SECONDS: String(staleSeconds) } });
    const { workload, keys } = await startLoad(stage, scene);
    const [key] = keys;
    await sleep(1000);
    const beganMs = performance.now();
    scene.databaseProxy.takeAway('refused');
    await sleep((staleSeconds + 5) * 1000);
    const endedMs = performance.now();
    await scene.databaseProxy.restore();
    if (key !== undefined) await recover(stage, scene, key, 15);
    await workload.stop();
    stage.saw(workload.seen);
    const plain = between(workload.seen, beganMs, endedMs).filter(({ ask }) => ask.idempotencyKey === null);
    const early = refused(plain.filter((one) => one.beganMs < beganMs + (staleSeconds - 1) * 1000));
    stage.must(early.length === 0, `${early.length} were refused before that: ${namesOf(early)}`);
    const late = plain.filter((one) => one.beganMs > beganMs + (staleSeconds + 2) * 1000 && !one.hasLeft);
    const told = late.filter((one) => one.code === 'billing_unavailable' && one.retryAfter !== null);
    stage.must(told.length === late.length, `${late.length - told.length} were answered otherwise: ${namesOf(late)}`);
    const slowly = late.filter((one) => waitMs(one) > waitMsMax * stage.slack);
    stage.must(slowly.length === 0, `${slowly.length} were told so only after ${waitMsMax} ms`);
    await conclude(stage, scene, { keys, seen: workload.seen });
  },
};

/** Requests that were served meanwhile outlive the gateway that served them. */
const killedMeanwhile: Row = {
  name: 'pg-away-gateway-killed',
  what: 'PostgreSQL is away, the gateway is killed (-9) meanwhile and started again in its place',
  async run(stage) {
    const scene = await stage.open();
    const [gateway] = scene.gateways;
    const { workload, keys } = await startLoad(stage, scene);
    const [key] = keys;
    await sleep(1000);
    const beganMs = performance.now();
    scene.databaseProxy.takeAway('refused');
    await sleep((stage.seconds * 1000) / 2);
    await workload.stop();
    await gateway?.kill();
    await scene.databaseProxy.restore();
    await gateway?.start();
    if (key !== undefined) await recover(stage, scene, key, 15);
    stage.saw(workload.seen);
    const plain = between(workload.seen, beganMs, Infinity).filter(({ ask }) => ask.idempotencyKey === null);
    const failed = refused(plain);
    stage.must(failed.length === 0, `${failed.length} of ${plain.length} were not served: ${namesOf(failed)}`);
    await conclude(stage, scene, { keys, seen: workload.seen, settleSeconds: 30 });
  },
};

export const postgresSlowRows: readonly Row[] = [
  slow,
  blackHoled,
  locked,
  overload,
  poison,
  pastStale,
  killedMeanwhile,
];
