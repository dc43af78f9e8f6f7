import { callApi } from '../parts/api.ts';
import { askOnce, type Seen, type Where } from '../parts/client.ts';
import { freePort } from '#test/free-port.ts';
import { randomOf } from '#test/random.ts';
import type { Scene } from '../parts/scene.ts';
import { secondsSince, sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { askFor, conclude, jsonFor, namesOf, recover, refused, startLoad, streamFor, warm } from './steps.ts';

/** Gateways that are killed, stopped and woken, or told to end. */

const leaseSeconds = 3;
/** A gateway is taken for gone when its heartbeat is so old; holds of the dead come back then. */
const heartbeatSeconds = 15;
const env = { HEADGATE_LEASE_SECONDS: String(leaseSeconds) };
/** Slots come back by the lease, on a machine that is busy. */
const slotsSecondsMax = leaseSeconds + 3;

const gateway = (scene: Scene, index: number): Where => {
  const found = scene.where().find((where) => where.gateway === index);
  if (found === undefined) throw new Error(`gateway ${index} does not run`);
  return found;
};

const killed: Row = {
  name: 'gateway-killed',
  what: 'gateways are killed (-9) under load, one after the other, and started again (--kills)',
  run: (stage) => runKills(stage, 2),
};

const killedAlone: Row = {
  name: 'gateway-killed-alone',
  what: 'the same with a gateway without Redis',
  run: (stage) => runKills(stage, 1),
};

async function runKills(stage: Stage, count: number): Promise<void> {
  const scene = await stage.open({ gateways: count, env });
  const slots = await scene.key('10', { max_concurrency: 2 });
  await warm(scene, [slots]);
  const { workload, keys } = await startLoad(stage, scene, { clients: 8, repeating: 0.3 });
  const random = randomOf(stage.seed, 'kills');
  const [probe] = keys;
  for (let number = 0; number < stage.kills; number += 1) {
    const victim = scene.gateways[number % count];
    await sleep(500 + random.below(1000));
    await victim?.kill();
    await sleep(random.below(500));
    await victim?.start();
    if (probe !== undefined) await recover(stage, scene, probe, slotsSecondsMax);
  }
  const held = await killWithSlots(stage, scene, slots);
  await sleep(500);
  await workload.stop();
  const seen = [...workload.seen, ...held];
  stage.saw(seen);
  stage.note(`${stage.kills + 1} kills`);
  const settleSeconds = heartbeatSeconds + 15;
  await conclude(stage, scene, { keys: [...keys, slots], seen, settleSeconds });
}

/** A gateway dies with all slots of a key: they are back within the lease, on every gateway. */
async function killWithSlots(stage: Stage, scene: Scene, key: Parameters<typeof streamFor>[0]): Promise<Seen[]> {
  const last = scene.gateways.length - 1;
  const streams = [0, 1].map((number) => askOnce(gateway(scene, last), streamFor(key, `slot ${number}`, 400, 8000)));
  await sleep(700);
  await scene.gateways[last]?.kill();
  const beganMs = performance.now();
  await scene.gateways[last]?.start();
  const seen = await Promise.all(streams);
  const limitSeconds = slotsSecondsMax * stage.slack;
  const back = await within((limitSeconds + 5) * 1000, async () => {
    const asked = await askOnce(gateway(scene, 0), jsonFor(key, 'slot again', 2, 0));
    seen.push(asked);
    return asked.complete;
  });
  const seconds = secondsSince(beganMs);
  stage.must(back !== null && seconds <= limitSeconds, `slots of the dead were taken for ${seconds.toFixed(1)} s`);
  return seen;
}

const stopped: Row = {
  name: 'gateway-stopped',
  what: 'a gateway is stopped (SIGSTOP) under load until it is taken for dead, and woken',
  async run(stage) {
    const scene = await stage.open({ gateways: 2, env });
    const { workload, keys } = await startLoad(stage, scene, { clients: 6 });
    await sleep(1000);
    scene.gateways[1]?.freeze();
    await sleep(Math.max(stage.seconds, heartbeatSeconds + leaseSeconds + 2) * 1000);
    scene.gateways[1]?.thaw();
    const [probe] = keys;
    if (probe !== undefined) await recover(stage, scene, probe, 15);
    await sleep(1000);
    await workload.stop();
    stage.saw(workload.seen);
    const failed = refused(workload.seen.filter((one) => one.gateway === 0 && one.status !== 409));
    stage.must(failed.length === 0, `${failed.length} were not served by the other: ${namesOf(failed)}`);
    await conclude(stage, scene, { keys, seen: workload.seen, settleSeconds: 30 });
  },
};

/** Pays for two answers and a half. */
const tokens = 1000;
const smallUsd = '0.00105';
/** More output than that pays for: all of it is held. */
const wholeWallet = 6000;

const sleeper: Row = {
  name: 'gateway-sleeper-wallet',
  what: 'a gateway sleeps with most of a wallet on hold until another one may spend that, and wakes',
  async run(stage) {
    const scene = await stage.open({ gateways: 2, env });
    const poor = await scene.key(smallUsd);
    await warm(scene, [poor]);
    const running = askOnce(gateway(scene, 1), jsonFor(poor, 'of the sleeper', wholeWallet, 1500));
    await sleep(700);
    scene.gateways[1]?.freeze();
    const seen: Seen[] = [];
    const asked = (): Promise<Seen> => askOnce(gateway(scene, 0), jsonFor(poor, 'of the other', tokens, 20));
    const spent = await within((heartbeatSeconds + leaseSeconds + 12) * 1000 * stage.slack, async () => {
      const one = await asked();
      seen.push(one);
      if (!one.complete) await sleep(500);
      return one.complete;
    });
    stage.must(spent !== null, 'the hold of a gateway that is taken for dead never came back');
    seen.push(await asked(), await asked());
    scene.gateways[1]?.thaw();
    seen.push(await running);
    stage.saw(seen);
    await conclude(stage, scene, { keys: [poor], seen, settleSeconds: 30 });
  },
};

/** Status of `/readyz` at this moment. */
async function readiness(port: number): Promise<number> {
  return (await callApi(`http://127.0.0.1:${port}`, '/readyz', { timeoutMs: 1000 })).status;
}

function terminatedRow(name: string, what: string, isAway: boolean): Row {
  return {
    name,
    what,
    async run(stage) {
      const port = await freePort();
      const scene = await stage.open({ env: { HEADGATE_METRICS_PORT: String(port), HEADGATE_SHUTDOWN_SECONDS: '15' } });
      const [victim] = scene.gateways;
      const key = await scene.key('10');
      await warm(scene, [key]);
      const running = Array.from({ length: 8 }, (_, number) =>
        askOnce(gateway(scene, 0), streamFor(key, `stream ${number}`, 150, 3000)),
      );
      await sleep(700);
      stage.must((await readiness(port)) === 200, 'it is not ready before');
      if (isAway) scene.databaseProxy.takeAway('refused');
      const where = gateway(scene, 0);
      const ending = victim?.terminate(30_000 * stage.slack) ?? Promise.resolve(null);
      const left = await within(1000 * stage.slack, async () => (await readiness(port)) === 503);
      stage.must(left !== null, 'it is still ready a second after SIGTERM');
      const late = await askOnce(where, askFor(key, 'too late'));
      stage.must(!late.complete, 'it took a request after it was told to end');
      const seen = await Promise.all(running);
      const cut = refused(seen);
      stage.must(cut.length === 0, `${cut.length} of ${seen.length} streams did not finish: ${namesOf(cut)}`);
      const code = await ending;
      stage.must(code === 0, `it ended with ${code}`);
      await scene.databaseProxy.restore();
      await victim?.start();
      stage.saw([...seen, late]);
      await conclude(stage, scene, { keys: [key], seen: [...seen, late] });
    },
  };
}

export const gatewayRows: readonly Row[] = [
  killed,
  killedAlone,
  stopped,
  sleeper,
  terminatedRow('sigterm', 'SIGTERM while streams run', false),
  terminatedRow('sigterm-pg-away', 'SIGTERM while streams run and PostgreSQL is away', true),
];
