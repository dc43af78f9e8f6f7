import { type Ask, askOnce, type Seen, type Where } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import { inTime, sleep } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { conclude, jsonFor, warm } from './steps.ts';

/** An Idempotency-Key is run once and billed once, whatever happens to PostgreSQL and to gateways meanwhile. */

const leaseSeconds = 2;
const repeatsMax = 40;
/** With a database that says nothing there is an answer all the same. */
const answerSecondsMax = 10;

const gateway = (scene: Scene, index: number): Where => {
  const found = scene.where().find((where) => where.gateway === index);
  if (found === undefined) throw new Error(`gateway ${index} does not run`);
  return found;
};

/** Asks for it again until there is an answer. */
async function repeat(scene: Scene, index: number, ask: Ask): Promise<Seen[]> {
  const seen: Seen[] = [];
  for (let number = 0; number < repeatsMax; number += 1) {
    const one = await askOnce(gateway(scene, index), ask);
    seen.push(one);
    if (one.complete) break;
    await sleep(300);
  }
  return seen;
}

async function finish(
  stage: Stage,
  scene: Scene,
  seen: readonly Seen[],
  key: Parameters<typeof jsonFor>[0],
): Promise<void> {
  stage.saw(seen);
  stage.must(seen.at(-1)?.complete === true, `it is never answered: ${seen.at(-1)?.status} ${seen.at(-1)?.code}`);
  await conclude(stage, scene, { keys: [key], seen, settleSeconds: 30 });
}

const awayWhileKept: Row = {
  name: 'idempotency-pg-away',
  what: 'PostgreSQL is away for 1.8 s when the answer under an Idempotency-Key is kept and booked',
  async run(stage) {
    const scene = await stage.open();
    const key = await scene.key('10');
    await warm(scene, [key]);
    const ask = { ...jsonFor(key, 'kept', 20, 1000), idempotencyKey: 'kept' };
    const first = askOnce(gateway(scene, 0), ask);
    await sleep(700);
    scene.databaseProxy.takeAway('refused');
    await sleep(1800);
    await scene.databaseProxy.restore();
    const seen = [await first, ...(await repeat(scene, 0, ask))];
    await finish(stage, scene, seen, key);
  },
};

const leaseLapses: Row = {
  name: 'idempotency-lease-lapses',
  what: 'PostgreSQL is away for longer than a lease; another gateway is asked for what still runs on the first',
  async run(stage) {
    const scene = await stage.open({ gateways: 2, env: { HEADGATE_LEASE_SECONDS: String(leaseSeconds) } });
    const key = await scene.key('10');
    await warm(scene, [key]);
    const awayMs = (leaseSeconds + 2) * 1000;
    const ask = { ...jsonFor(key, 'lapsed', 20, awayMs + 3000), idempotencyKey: 'lapsed' };
    const first = askOnce(gateway(scene, 0), ask);
    await sleep(700);
    scene.databaseProxy.takeAway('refused');
    await sleep(awayMs);
    await scene.databaseProxy.restore();
    const seen = await repeat(scene, 1, ask);
    await finish(stage, scene, [await first, ...seen], key);
  },
};

const silent: Row = {
  name: 'idempotency-pg-silent',
  what: 'a request with an Idempotency-Key while PostgreSQL says nothing',
  async run(stage) {
    const scene = await stage.open();
    const key = await scene.key('10');
    await warm(scene, [key]);
    scene.databaseProxy.silence('all');
    const ask = { ...jsonFor(key, 'silent', 20, 0), idempotencyKey: 'silent' };
    const asking = askOnce(gateway(scene, 0), ask);
    const answered = await inTime(answerSecondsMax * 1000 * stage.slack, asking);
    stage.must(answered !== null, `there is no answer after ${answerSecondsMax} s`);
    await scene.databaseProxy.restore();
    await finish(stage, scene, [await asking, ...(await repeat(scene, 0, ask))], key);
  },
};

const sleeper: Row = {
  name: 'idempotency-sleeper',
  what: 'the gateway that runs it is stopped for longer than its lease, another one runs it, the first wakes',
  async run(stage) {
    const scene = await stage.open({ gateways: 2, env: { HEADGATE_LEASE_SECONDS: String(leaseSeconds) } });
    const key = await scene.key('10');
    await warm(scene, [key]);
    const ask = { ...jsonFor(key, 'slept', 20, 1500), idempotencyKey: 'slept' };
    const first = askOnce(gateway(scene, 1), ask);
    await sleep(700);
    scene.gateways[1]?.freeze();
    await sleep((leaseSeconds + 16) * 1000);
    const seen = await repeat(scene, 0, ask);
    scene.gateways[1]?.thaw();
    await finish(stage, scene, [await first, ...seen], key);
  },
};

export const idempotencyRows: readonly Row[] = [awayWhileKept, leaseLapses, silent, sleeper];
