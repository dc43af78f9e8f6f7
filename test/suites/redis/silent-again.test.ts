import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import type { HardBudget, HardBudgets, ProjectLimits, Spender } from '#core/admission/contract.ts';
import { dayStartMs, nextDayMs } from '#core/limits/limits.ts';
import { eventually } from '../../edge/inference/inference-gateway.ts';
import { heldOf, type Opening, usedOf, type Wanted } from './admission-bench.ts';
import { ask } from './asking.ts';
import { useFrozenRedis } from './frozen-redis.ts';
import { enoughOfTheDay } from '../../support/one-day.ts';

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
  const one = { budgetId: randomUUID(), slot: 'slot', spending, amountMicroUsd: 100n };
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

const partOnce = [
  [5, 5],
  [0, 0],
  [0, 0],
];

describe.each(bounds)(
  'a gateway gives its part once, however often Redis falls silent before it is asked: of %s',
  (_, bound) => {
    it('where its requests have ended', async () => {
      expect(await admittedEachTime(bound(), true)).toEqual(partOnce);
    });

    it('where its requests run on', async () => {
      expect(await admittedEachTime(bound(), false)).toEqual(partOnce);
    });
  },
);
