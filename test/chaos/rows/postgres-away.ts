import { setTimeout as sleep } from 'node:timers/promises';
import { type Seen } from '../parts/client.ts';
import type { Scene, SceneOptions } from '../parts/scene.ts';
import { waitMs } from '../report.ts';
import type { Row, Stage } from '../row.ts';
import { between, conclude, mustKnowKeys, namesOf, recover, refused, startLoad } from './steps.ts';

/** PostgreSQL away, in all the ways in which that comes about: known keys are served, and the books have it all later. */

/** A fault of PostgreSQL, and its end. */
export interface Outage {
  readonly scene?: SceneOptions;
  /** Before the load. */
  prepare?(scene: Scene, stage: Stage): Promise<void> | void;
  begin(scene: Scene): Promise<void> | void;
  end(scene: Scene): Promise<void> | void;
  /** Requests that began so soon after its beginning may take part in what happens; all others are served as always. */
  readonly graceMs?: number;
}

/** An answer may wait for the commit that is given up after 250 ms; the rest is for a busy machine. */
export const waitMsMax = 1000;
const warmMs = 1500;
/** After the end the load goes on for as long as it takes to see that all is as before. */
const afterMs = 4000;
const recoverSeconds = 15;

/** Load before, while and after; nothing of it may be rejected, held back or lost. */
export async function runOutage(stage: Stage, outage: Outage): Promise<void> {
  const scene = await stage.open(outage.scene);
  await outage.prepare?.(scene, stage);
  const { workload, keys } = await startLoad(stage, scene);
  const [probe] = keys;
  if (probe === undefined) throw new Error('there is no key to probe with');
  await sleep(warmMs);
  const beganMs = performance.now();
  await outage.begin(scene);
  await sleep(stage.seconds * 1000);
  await outage.end(scene);
  const endedMs = performance.now();
  await recover(stage, scene, probe, recoverSeconds);
  const recoveredMs = performance.now();
  await sleep(afterMs);
  await workload.stop();
  stage.saw(workload.seen);
  mustServe(stage, servedMeanwhile(stage, between(workload.seen, beganMs, endedMs), beganMs));
  const isLong = endedMs - beganMs > staleMs;
  mustServeAfter(stage, workload.seen, { recoveredMs, isLong });
  const { figures } = await conclude(stage, scene, { keys, seen: workload.seen });
  stage.must(figures.withheld === 0, `${figures.withheld} answers were made, charged and held back`);
}

/** The product's own: what is known of keys, wallets and limits serves for so long. */
const staleMs = 300_000;

/** The requests of an outage that must be served; later ones may get an answer to retry. */
function servedMeanwhile(stage: Stage, seen: readonly Seen[], beganMs: number): Seen[] {
  const isLate = ({ endedMs }: Seen): boolean => endedMs > beganMs + staleMs;
  const rude = refused(seen.filter(isLate)).filter(({ code, retryAfter }) => {
    return code !== 'billing_unavailable' || retryAfter === null;
  });
  stage.must(rude.length === 0, `${rude.length} were refused otherwise than for later: ${namesOf(rude)}`);
  return seen.filter((one) => !isLate(one));
}

/** Exceptions to the rule that every plain request is served, and soon. */
export interface Allowed {
  /** The share of all plain requests that may get 503 with Retry-After. */
  readonly later: number;
  readonly waitMs: number;
}

/** Requirements for requests that ran while PostgreSQL was unavailable. */
export function mustServe(
  stage: Stage,
  seen: readonly Seen[],
  allowed: Allowed = { later: 0, waitMs: waitMsMax },
): void {
  mustKnowKeys(stage, seen);
  // An Idempotency-Key cannot be claimed without the database: such a request may get 503 with Retry-After.
  const plain = seen.filter(({ ask }) => ask.idempotencyKey === null);
  const claims = seen.filter(({ ask }) => ask.idempotencyKey !== null);
  const unserved = refused(plain);
  const later = unserved.filter(({ code, retryAfter }) => code === 'billing_unavailable' && retryAfter !== null);
  const failed =
    later.length > allowed.later * plain.length ? unserved : unserved.filter((one) => !later.includes(one));
  stage.must(failed.length === 0, `${failed.length} of ${plain.length} were not served meanwhile: ${namesOf(failed)}`);
  if (allowed.later > 0) stage.note(`${later.length} of ${plain.length} plain requests told to come again`);
  const rude = refused(claims).filter(({ retryAfter, status }) => status !== 409 && retryAfter === null);
  stage.must(rude.length === 0, `${rude.length} with an Idempotency-Key were refused otherwise than for later`);
  const slow = plain.filter((one) => !one.hasLeft && waitMs(one) > allowed.waitMs * stage.slack);
  const longest = Math.max(0, ...slow.map(waitMs));
  stage.must(
    slow.length === 0,
    `${slow.length} answers waited for the books, ${(longest / 1000).toFixed(1)} s at most`,
  );
}

/** A client that got 503 with Retry-After is served when it retries. */
const comeAgainMs = 2000;

interface Recovery {
  readonly recoveredMs: number;
  /** No known key was served any more: every request got 503, as those with an Idempotency-Key do. */
  readonly isLong: boolean;
}

function mustServeAfter(stage: Stage, seen: readonly Seen[], { recoveredMs, isLong }: Recovery): void {
  const after = seen.filter(({ ask, beganMs }) => {
    const graceMs = ask.idempotencyKey === null && !isLong ? 0 : comeAgainMs * stage.slack;
    return beganMs > recoveredMs + graceMs;
  });
  const failed = refused(after);
  stage.must(failed.length === 0, `${failed.length} were not served afterwards: ${namesOf(failed)}`);
}

const outageRow = (name: string, what: string, outage: Outage): Row => ({
  name,
  what,
  run: (stage) => runOutage(stage, outage),
});

export const postgresAwayRows: readonly Row[] = [
  outageRow('pg-refused', 'PostgreSQL refuses connections', {
    begin: ({ databaseProxy }) => databaseProxy.takeAway('refused'),
    end: ({ databaseProxy }) => databaseProxy.restore(),
  }),
  outageRow('pg-closed', 'a load balancer without a server: connections are taken and closed', {
    begin: ({ databaseProxy }) => databaseProxy.takeAway('closed'),
    end: ({ databaseProxy }) => databaseProxy.restore(),
  }),
  outageRow('pg-silent', 'PostgreSQL is a black hole: connections stay, new ones are taken, nothing comes', {
    begin: ({ databaseProxy }) => databaseProxy.silence('all'),
    end: ({ databaseProxy }) => databaseProxy.restore(),
  }),
  outageRow('pg-answers-swallowed', 'all is written, no answer of PostgreSQL comes', {
    begin: ({ databaseProxy }) => databaseProxy.swallow('to-client'),
    async end({ databaseProxy }) {
      await databaseProxy.restore();
      databaseProxy.cut();
    },
  }),
  outageRow('pg-refused-two-gateways', 'PostgreSQL refuses connections of two gateways with Redis', {
    scene: { gateways: 2 },
    begin: ({ databaseProxy }) => databaseProxy.takeAway('refused'),
    end: ({ databaseProxy }) => databaseProxy.restore(),
  }),
];
