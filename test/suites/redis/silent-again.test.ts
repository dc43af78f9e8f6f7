import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import type { HardBudget, HardBudgets, ProjectLimits, Spender } from '#core/admission/contract/types.ts';
import { dayStartMs, nextDayMs } from '#core/limits/limits.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { heldOf, type Opening, usedOf, type Wanted } from './admission-bench.ts';
import { ask } from './asking.ts';
import { useFrozenRedis } from './frozen-redis.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Redis that falls silent again and again, and says nothing of a key in between: as on a machine that is too busy. */

const frozen = useFrozenRedis();
const { freeze, thaw, openTwo } = frozen;

const plenty = 1_000_000n;
const model = 'chat';
const nowMs = Date.now();

interface Bound {
  readonly wallet?: bigint;
  readonly wanted?: Wanted;
  readonly rules?: Pick<Opening, 'budgets' | 'projectLimits'>;
}

const spender: Spender = { organizationId: randomUUID(), keyId: 'key', projectId: randomUUID(), user: null };

function budget(): Bound {
  const spending: HardBudget['spending'] = {
    type: 'api_key',
    id: 'key',
    period: 'daily',
    fromMs: dayStartMs(nowMs),
    toMs: nextDayMs(nowMs),
  };
  const one = {
    budgetId: randomUUID(),
    slot: 'slot',
    spending,
    amountMicroUsd: 100n,
    allowedPicoUsd: 0n,
    forgivenPicoUsd: 0n,
  };
  const budgets: HardBudgets = { of: () => [one] };
  return { wanted: { spender }, rules: { budgets } };
}

function ofProject(name: 'requestsPerMinute' | 'tokensPerMinute' | 'requestsPerDay', most: number): Bound {
  const limits = { requestsPerMinute: null, tokensPerMinute: null, requestsPerDay: null, [name]: most };
  const one = { slot: randomUUID(), projectId: spender.projectId, model, limits };
  const projectLimits: ProjectLimits = { of: () => one };
  return { wanted: { spender, model }, rules: { projectLimits } };
}

/** Once each of two gateways has had one request, each gives five more. */
const bounds: readonly (readonly [string, () => Bound])[] = [
  ['a month', () => ({ wanted: { limits: { monthlyTokenLimit: 120 } } })],
  ['the requests of a minute', () => ({ wanted: { limits: { requestsPerMinute: 12 } } })],
  ['the tokens of a minute', () => ({ wanted: { limits: { tokensPerMinute: 120 } } })],
  ['a wallet', () => ({ wallet: 100n })],
  ['a budget', budget],
  ['the requests of a minute that a project has', () => ofProject('requestsPerMinute', 12)],
  ['the tokens of a minute that a project has', () => ofProject('tokensPerMinute', 120)],
  ['the requests of a day that a project has', () => ofProject('requestsPerDay', 12)],
];

/** @returns how many of 20 requests each gateway admitted, each time that Redis was silent */
async function admittedEachTime({ wallet = plenty, wanted = {}, rules }: Bound, ends: boolean): Promise<number[][]> {
  const { gateways, organizationId, make } = await openTwo(wallet, wanted, undefined, rules);
  const { books } = frozen.bench;
  for (const gateway of gateways) {
    for (const { requestId } of (await ask(gateway, 1, () => make())).admitted) {
      gateway.admission.settle(requestId, usedOf(0n, 0));
    }
    await gateway.admission.renew();
  }
  const admitted: number[][] = [];
  for (let time = 0; time < 3; time += 1) {
    freeze();
    books.state = 'silent';
    const each: number[] = [];
    for (const gateway of gateways) {
      const asked = await ask(gateway, 20, () => make());
      each.push(asked.admitted.length);
      for (const request of ends ? asked.admitted : []) {
        gateway.admission.settle(request.requestId, books.book(request, usedOf(10n)));
      }
    }
    admitted.push(each);
    books.state = 'there';
    thaw();
    for (const gateway of gateways) await eventually(async () => (await heldOf(gateway, organizationId)) !== null);
  }
  return admitted;
}

/** Two gateways give their parts of 100 micro-dollars while Redis is silent, which then decides again. */
async function givenOnce(clock = systemClock) {
  const { gateways, organizationId, make } = await openTwo(100n, {}, undefined, { clock });
  const { books } = frozen.bench;
  freeze();
  const all = [];
  for (const gateway of gateways) all.push({ gateway, ...(await ask(gateway, 20, () => make())) });
  for (const { gateway, admitted } of all) {
    expect(admitted).toHaveLength(5);
    for (const request of admitted) gateway.admission.settle(request.requestId, books.book(request, usedOf(10n)));
  }
  thaw();
  for (const gateway of gateways) await eventually(async () => (await heldOf(gateway, organizationId)) !== null);
  return { gateways, organizationId, make, books };
}

it('gives a new share after five minutes, including a credit from another gateway', async () => {
  let laterMs = 0;
  const clock = { now: () => systemClock.now(), monotonicMs: () => systemClock.monotonicMs() + laterMs };
  const { gateways, organizationId, make, books } = await givenOnce(clock);
  books.credit(organizationId, 500n);
  laterMs = 301_000;
  for (const { admission } of gateways) await admission.renew();
  freeze();
  // Redis said 100 last, of which each knows that it has charged 50 itself: its part of the rest is 25.
  for (const gateway of gateways) expect((await ask(gateway, 20, () => make())).admitted).toHaveLength(2);
});

it('deducts an adjustment between two outages from its share once', async () => {
  const { gateways, organizationId, make } = await openTwo(200n, {});
  const [{ admission }] = gateways;
  freeze();
  for (const gateway of gateways) expect((await ask(gateway, 1, () => make())).admitted).toHaveLength(1);
  thaw();
  for (const gateway of gateways) await eventually(async () => (await heldOf(gateway, organizationId)) !== null);
  frozen.bench.books.credit(organizationId, -50n);
  await admission.credited(organizationId, -50_000_000n);
  freeze();
  // It has given 10 of the 100 that are its part, and 50 are debited.
  expect((await ask(gateways[0], 20, () => make())).admitted).toHaveLength(4);
});

const partOnce = [
  [5, 5],
  [0, 0],
  [0, 0],
];

describe.each(bounds)(
  "a gateway's share when Redis becomes unresponsive repeatedly without requests between: of %s",
  (_, bound) => {
    it('is given once after its requests have ended', async () => {
      expect(await admittedEachTime(bound(), true)).toEqual(partOnce);
    });

    it('is given once while its requests are running', async () => {
      expect(await admittedEachTime(bound(), false)).toEqual(partOnce);
    });
  },
);
