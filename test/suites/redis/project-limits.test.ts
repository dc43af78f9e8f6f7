import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { adminKey, type Cluster, startCluster } from '#test/redis/gateway-cluster.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Limits of a project for a model, of several gateways with one Redis, which is lost and frozen. */

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ count: 2 });
  await Promise.all([0, 1].map((which) => cluster.chat(which, adminKey).then((answer) => answer.text())));
});
afterAll(() => cluster.stop());

interface Place {
  readonly secret: string;
  readonly projectId: string;
  set(which: number, limits: object): Promise<void>;
}

/** A project with limits, in an organization of its own. */
async function openPlace(limits: object): Promise<Place> {
  const owner = await cluster.organization('10');
  const { data }: Body = await (await cluster.ask(0, '/v1/projects', { key: owner.key })).json();
  const projectId: string = data[0].id;
  const { secret } = await cluster.key({}, owner.key);
  const set = async (which: number, body: object): Promise<void> => {
    const path = `/v1/organization/projects/${projectId}/rate_limits/rl-chat`;
    expect(await statusOf(cluster.ask(which, path, { body, key: owner.key }))).toBe(200);
  };
  await set(0, limits);
  return { secret, projectId, set };
}

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
}

const short = { max_tokens: 2, ignore_eos: true };
const askOne = (which: number, { secret }: Place): Promise<number> => statusOf(cluster.chat(which, secret, short));

/** How many of so many at once are answered, of one gateway or of both in turn; nothing but 429 and 503 refuses. */
async function answered(place: Place, times: number, which?: number): Promise<number> {
  const statuses = await Promise.all(Array.from({ length: times }, (_, index) => askOne(which ?? index % 2, place)));
  expect(statuses.filter((status) => ![200, 429, 503].includes(status))).toEqual([]);
  return statuses.filter((status) => status === 200).length;
}

async function whileFrozen(run: () => Promise<void>): Promise<void> {
  const pid = cluster.redis.pid ?? 0;
  process.kill(pid, 'SIGSTOP');
  try {
    await run();
  } finally {
    process.kill(pid, 'SIGCONT');
  }
}

const untilBack = (place: Place): Promise<boolean> =>
  eventually(async () => {
    const dry = { 'x-headgate-dry-run': 'true' };
    const body = { model: 'chat', messages: [{ role: 'user', content: 'x' }], max_tokens: 1 };
    const answers = await Promise.all(
      [0, 1].map((which) => cluster.ask(which, '/v1/chat/completions', { body, headers: dry, key: place.secret })),
    );
    const said: Body[] = await Promise.all(answers.map((answer) => answer.json()));
    return said.every(({ object }) => object === 'dry_run');
  });

const returns = (): number =>
  cluster.gateways.reduce((sum, gateway) => sum + gateway.output().split('Redis outage ended').length - 1, 0);

describe('a project limit on several gateways', () => {
  it.each([['max_requests_per_1_minute'], ['max_requests_per_1_day']])(
    'admits exactly as many requests as it allows: %s',
    async (name) => {
      const total = await cluster.undisturbed(async () => answered(await openPlace({ [name]: 20 }), 60));
      expect(total).toBe(20);
    },
  );

  it('applies on every gateway once its change is answered', async () => {
    const place = await openPlace({ max_requests_per_1_day: 1 });
    expect(await answered(place, 6)).toBe(1);
    const statuses = (): Promise<number[]> => Promise.all([0, 1].map((which) => askOne(which, place)));
    await place.set(1, { max_requests_per_1_day: 1000 });
    expect(await statuses()).toEqual([200, 200]);
    await place.set(1, { max_requests_per_1_day: null, max_requests_per_1_minute: 1 });
    expect(await answered(place, 6)).toBeLessThanOrEqual(1);
    await place.set(0, { max_requests_per_1_minute: null });
    expect(await statuses()).toEqual([200, 200]);
  });

  it('is found by a gateway that was not notified of it', async () => {
    const place = await openPlace({ max_requests_per_1_day: 1000 });
    expect(await answered(place, 4)).toBe(4);
    const uuid = place.projectId.replace(/^proj_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
    await cluster.sql`update project_rate_limits set requests_per_day = 1 where project_id = ${uuid}`;
    for (const which of [0, 1]) {
      expect(await eventually(async () => (await askOne(which, place)) === 429)).toBe(true);
    }
  });

  it('for a day is never exceeded, even if Redis is flushed under load', async () => {
    const place = await openPlace({ max_requests_per_1_day: 40 });
    const flushing = (async () => {
      for (let time = 0; time < 5; time += 1) {
        await new Promise((resolve) => setTimeout(resolve, 60));
        await cluster.redis.flush();
      }
    })();
    let total = 0;
    for (let round = 0; round < 8; round += 1) total += await answered(place, 15);
    await flushing;
    await eventually(async () => {
      total += await answered(place, 4);
      return total >= 40;
    });
    expect(total + (await answered(place, 6))).toBe(40);
  });

  it.each([['max_requests_per_1_minute'], ['max_requests_per_1_day']])(
    'is divided while Redis is frozen, and requests from then count once: %s',
    async (name) => {
      const place = await openPlace({ [name]: 12 });
      let total = await answered(place, 2);
      expect(total).toBe(2);
      const before = returns();
      await whileFrozen(async () => {
        for (const which of [0, 1]) {
          const part = await answered(place, 20, which);
          expect(part).toBeGreaterThan(0);
          expect(part).toBeLessThanOrEqual(6);
          total += part;
        }
      });
      expect(total).toBeLessThanOrEqual(12);
      await eventually(async () => returns() >= before + 2);
      await untilBack(place);
      expect(total + (await answered(place, 20))).toBe(12);
    },
  );
});
