import { directions } from '../proxy/fault-proxy.ts';
import { sleep } from '../parts/wait.ts';
import type { Row } from '../row.ts';
import { mustServe } from './postgres-away.ts';
import { conclude, namesOf, recover, refused, startLoad } from './steps.ts';

/** Networks that deliver late and in another order, and that break connections again and again. */

const jitter: Row = {
  name: 'network-jitter',
  what: 'what PostgreSQL and Redis hear and say is late by up to 30 ms; connections overtake one another',
  async run(stage) {
    const scene = await stage.open({ gateways: 2 });
    const { workload, keys } = await startLoad(stage, scene);
    for (const proxy of [scene.databaseProxy, scene.redisProxy]) {
      for (const direction of directions) proxy.delay(direction, { ms: 1, jitterMs: 30 });
    }
    await sleep(stage.seconds * 1000);
    for (const proxy of [scene.databaseProxy, scene.redisProxy]) await proxy.restore();
    await workload.stop();
    stage.saw(workload.seen);
    const failed = refused(workload.seen);
    stage.must(failed.length === 0, `${failed.length} were not served: ${namesOf(failed)}`);
    await conclude(stage, scene, { keys, seen: workload.seen });
  },
};

/**
 * Where Redis has to forget a balance, since something was charged that it had not heard of, only PostgreSQL can say it,
 * and connections to that break as well: what cannot be read in two tries is 503 with Retry-After and costs nothing. An
 * answer's end may meet several breaks.
 */
const allowed = { later: 1 / 50, waitMs: 2000 };

const breaking: Row = {
  name: 'network-breaks',
  what: 'all connections to PostgreSQL and Redis are broken every 400 ms',
  async run(stage) {
    const scene = await stage.open({ gateways: 2 });
    const { workload, keys } = await startLoad(stage, scene);
    const untilMs = performance.now() + stage.seconds * 1000;
    while (performance.now() < untilMs) {
      await sleep(400);
      scene.databaseProxy.cut();
      scene.redisProxy.cut();
    }
    const [probe] = keys;
    if (probe !== undefined) await recover(stage, scene, probe, 15);
    await workload.stop();
    stage.saw(workload.seen);
    mustServe(stage, workload.seen, allowed);
    const { figures } = await conclude(stage, scene, { keys, seen: workload.seen });
    stage.must(figures.withheld === 0, `${figures.withheld} answers were made, charged and held back`);
  },
};

export const networkRows: readonly Row[] = [jitter, breaking];
