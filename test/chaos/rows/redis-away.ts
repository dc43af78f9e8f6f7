import type { InferenceKey } from '../parts/api.ts';
import { prices } from '../parts/checker.ts';
import { askOnce, type Seen } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import { sleep } from '../parts/wait.ts';
import { waitMs } from '../report.ts';
import type { Row, Stage } from '../row.ts';
import {
  askFor,
  between,
  conclude,
  jsonFor,
  mustWriteNothingOff,
  namesOf,
  recover,
  refused,
  startLoad,
  streamFor,
  warm,
} from './steps.ts';

/** Redis away: gateways go on within limits divided by their number, decide at once, and count nothing twice. */

interface Fault {
  begin(scene: Scene): Promise<void> | void;
  end(scene: Scene): Promise<void> | void;
}

const gatewayCount = 2;
const requestsPerMinute = 20;
const slots = 2;
/** Pays for five answers of a thousand tokens. */
const poorUsd = '0.0021';
const poorPicoUsd = 2_100_000_000n;
const poorTokens = 1000;

/** 150 ms to find out that Redis does not answer; the rest is for a busy machine. */
const firstWaitMsMax = 150 + 350;
/** At once, on a busy machine. */
const nextWaitMsMax = 100;
const warmMs = 1000;
/** Less what the look itself takes. */
const minuteMs = 58_000;
const recoverSeconds = 15;

interface Limited {
  readonly rate: InferenceKey;
  readonly slots: InferenceKey;
  readonly poor: InferenceKey;
}

async function runRedisAway(stage: Stage, fault: Fault): Promise<void> {
  const scene = await stage.open({ gateways: gatewayCount, env: { HEADGATE_LEASE_SECONDS: '5' } });
  const limited: Limited = {
    rate: await scene.key('10', { requests_per_minute: requestsPerMinute }),
    slots: await scene.key('10', { max_concurrency: slots }),
    poor: await scene.key(poorUsd),
  };
  const rateSinceMs = performance.now();
  await warm(scene, Object.values(limited));
  const { workload, keys } = await startLoad(stage, scene, { clients: 4 });
  await sleep(warmMs);
  const beganMs = performance.now();
  await fault.begin(scene);
  const asked: Seen[] = [];
  await mustDecideAtOnce(stage, scene, keys, asked);
  await mustDivide(stage, scene, limited, asked);
  await sleep(Math.max(0, stage.seconds * 1000 - (performance.now() - beganMs)));
  await fault.end(scene);
  const endedMs = performance.now();
  const [probe] = keys;
  if (probe !== undefined) await recover(stage, scene, probe, recoverSeconds);
  await sleep(warmMs);
  await workload.stop();
  if (performance.now() - rateSinceMs < minuteMs) await mustHaveCounted(stage, scene, limited.rate, asked);
  else stage.note('the minute was over before it could be looked at');
  const all = [...workload.seen, ...asked];
  stage.saw(all);
  const meanwhile = between(workload.seen, beganMs, endedMs);
  const failed = refused(meanwhile);
  stage.must(
    failed.length === 0,
    `${failed.length} of ${meanwhile.length} were not served meanwhile: ${namesOf(failed)}`,
  );
  await conclude(stage, scene, { keys: [...keys, ...Object.values(limited)], seen: all, settleSeconds: 30 });
  mustWriteNothingOff(stage, (await scene.books()).usage);
}

/** Sends the first request to every gateway, then more, one after the other. */
async function mustDecideAtOnce(
  stage: Stage,
  scene: Scene,
  keys: readonly InferenceKey[],
  asked: Seen[],
): Promise<void> {
  const [key] = keys;
  if (key === undefined) return;
  await Promise.all(
    scene.where().map(async (where) => {
      const waits: number[] = [];
      for (let number = 0; number < 10; number += 1) {
        const seen = await askOnce(where, askFor(key, `decide ${where.gateway} ${number}`));
        asked.push(seen);
        waits.push(waitMs(seen));
        const isServed = seen.complete;
        if (number === 0) stage.must(isServed, `the first request is answered ${seen.status} ${seen.code}`);
      }
      const [first = 0, ...others] = waits;
      const median = others.toSorted((a, b) => a - b)[Math.floor(others.length / 2)] ?? 0;
      stage.must(first <= firstWaitMsMax * stage.slack, `the first decision took ${Math.round(first)} ms`);
      stage.must(median <= nextWaitMsMax * stage.slack, `later decisions took ${Math.round(median)} ms in the median`);
    }),
  );
}

/** Asks each gateway for more than the limits of a key allow. */
async function mustDivide(stage: Stage, scene: Scene, limited: Limited, asked: Seen[]): Promise<void> {
  const onEach = async (times: number, ask: (name: string) => Parameters<typeof askOnce>[1]): Promise<Seen[]> => {
    const asking = scene
      .where()
      .flatMap((where) =>
        Array.from({ length: times }, (_, number) => askOnce(where, ask(`${where.gateway} ${number}`))),
      );
    const seen = await Promise.all(asking);
    asked.push(...seen);
    return seen.filter(({ complete }) => complete);
  };
  const usedBefore = gatewayCount;
  const rate = await onEach(requestsPerMinute, (name) => askFor(limited.rate, `rate ${name}`));
  mustShare(stage, rate, 'requests per minute', requestsPerMinute - usedBefore);
  const running = await onEach(slots + 2, (name) => streamFor(limited.slots, `slots ${name}`, 100, 1500));
  mustShare(stage, running, 'requests at once', slots + gatewayCount);
  const paid = await onEach(6, (name) => jsonFor(limited.poor, `poor ${name}`, poorTokens, 300));
  mustShare(stage, paid, 'requests of a small wallet', Number.POSITIVE_INFINITY);
  // The last ones are cut to what is left: their number says nothing.
  const spent = paid.reduce((sum, seen) => sum + costOf(seen), 0n);
  stage.must(spent <= poorPicoUsd, `requests of a small wallet came to ${spent} pico-dollars, of ${poorPicoUsd}`);
}

const costOf = ({ inputTokens, outputTokens }: Seen): bigint =>
  BigInt(inputTokens ?? 0) * prices.input + BigInt(outputTokens ?? 0) * prices.output;

/** At least one of every gateway, and no more than there are in all. */
function mustShare(stage: Stage, complete: readonly Seen[], what: string, most: number): void {
  const each = Array.from({ length: gatewayCount }, (_, index) => complete.filter(({ gateway }) => gateway === index));
  const counts = each.map((of) => of.length);
  stage.must(
    counts.every((count) => count > 0),
    `${what}: the gateways allowed ${counts.join(' and ')}, not one each`,
  );
  stage.must(complete.length <= most, `${what}: ${complete.length} were allowed, of ${most}`);
  stage.note(`${what} ${counts.join('+')}`);
}

/** Requests that were served without Redis count in the running minute, once. */
async function mustHaveCounted(stage: Stage, scene: Scene, key: InferenceKey, asked: Seen[]): Promise<void> {
  const [where] = scene.where();
  if (where === undefined) return;
  const seen = await askOnce(where, askFor(key, 'counted'));
  asked.push(seen);
  const own = asked.filter(({ ask, complete }) => ask.secret === key.secret && complete).length;
  const expected = requestsPerMinute - gatewayCount - own;
  const remaining = seen.complete ? seen.remaining : 0;
  stage.must(remaining === expected, `${remaining} requests of the minute are left afterwards, not ${expected}`);
}

const row = (name: string, what: string, fault: Fault): Row => ({
  name,
  what,
  run: (stage) => runRedisAway(stage, fault),
});

export const redisAwayRows: readonly Row[] = [
  row('redis-frozen', 'Redis is frozen (SIGSTOP)', {
    begin: ({ redis }) => redis.freeze(),
    end: ({ redis }) => redis.thaw(),
  }),
  row('redis-refused', 'Redis refuses connections', {
    begin: ({ redisProxy }) => redisProxy.takeAway('refused'),
    end: ({ redisProxy }) => redisProxy.restore(),
  }),
  row('redis-answers-swallowed', 'Redis does what it is told, and no answer comes', {
    begin: ({ redisProxy }) => redisProxy.swallow('to-client'),
    async end({ redisProxy }) {
      await redisProxy.restore();
      redisProxy.cut();
    },
  }),
];
