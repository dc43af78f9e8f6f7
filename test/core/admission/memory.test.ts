import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Clock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createMemoryAdmission } from '#core/admission/admission.ts';
import type { Admission, AdmitRequest, Settlement } from '#core/admission/contract/types.ts';
import type { KeyLimits } from '#core/limits/limits.ts';

/** Admission of one gateway over books that the test writes, with clocks that it turns. */

const unlimited: KeyLimits = {
  requestsPerMinute: null,
  maxConcurrency: null,
  tokensPerMinute: null,
  monthlyTokenLimit: null,
};

class Bench {
  balancePicoUsd = 100_000_000n;
  readonly booked = new Map<string, Settlement>();
  state: 'there' | 'refusing' | 'silent' = 'there';
  reads = 0;
  nowMs = Date.UTC(2031, 4, 17);
  monotonicMs = 5_000_000;
  readonly admission: Admission;
  readonly ids = { organizationId: randomUUID(), keyId: randomUUID() };
  /** Runs between a question to the ledger and its answer. */
  meanwhile: () => void = () => undefined;

  constructor() {
    const clock: Clock = { now: () => this.nowMs, monotonicMs: () => this.monotonicMs };
    this.admission = createMemoryAdmission({
      loadBalance: (_organizationId, ids) =>
        this.#answer(() => ({
          balancePicoUsd: this.balancePicoUsd,
          charged: ids.filter((id) => this.booked.has(id)),
        })),
      loadTokens: (_key, _sinceMs, ids) =>
        this.#answer(() => ({
          tokens: [...this.booked.values()].reduce((sum, { tokens }) => sum + tokens, 0),
          counted: ids.filter((id) => this.booked.has(id)),
        })),
      onCredit: () => undefined,
      clock,
    });
  }

  async #answer<T>(read: () => T): Promise<T> {
    this.reads += 1;
    if (this.state === 'silent') await new Promise(() => undefined);
    if (this.state === 'refusing') throw new Error('no connection');
    const answer = read();
    this.meanwhile();
    return answer;
  }

  book(requestId: string, used: Settlement): Settlement {
    this.booked.set(requestId, used);
    this.balancePicoUsd -= used.chargedPicoUsd;
    return used;
  }

  turn(ms: number): void {
    this.nowMs += ms;
    this.monotonicMs += ms;
  }

  request(limits: Partial<KeyLimits> = {}, estimatedTokens = 10, microUsd = 10n): AdmitRequest {
    const amounts = { neededMicroUsd: microUsd, wantedMicroUsd: microUsd, estimatedTokens };
    return { ...this.ids, requestId: uuidv7(this.nowMs), limits: { ...unlimited, ...limits }, ...amounts };
  }

  async admit(request: AdmitRequest): Promise<string> {
    const result = await this.admission.admit(request);
    return result.ok ? 'ok' : result.code;
  }
}

const limits = { maxConcurrency: 1, tokensPerMinute: 1000, monthlyTokenLimit: 1000 };
const limits2 = { ...limits, maxConcurrency: 9 };
const used: Settlement = { chargedPicoUsd: 2_000_001n, tokens: 300 };

describe('admission after the history of the books went back', () => {
  it('uses the restored balance and month, with what runs and what the books have of it', async () => {
    const bench = new Bench();
    const [booked, running] = [bench.request(limits2, 100, 40n), bench.request(limits2, 100, 30n)];
    expect(await bench.admit(booked)).toBe('ok');
    expect(await bench.admit(running)).toBe('ok');
    // The books have lost a credit of 50 micro-dollars, and have charged one of the two that runs here.
    bench.balancePicoUsd -= 50_000_000n;
    bench.book(booked.requestId, used);
    await bench.admission.forgetBooks();
    // 100 less 50 that are lost, less 2 that are charged, less 70 that are held.
    expect(await bench.admission.admit(bench.request(limits2, 10, 1n))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 47_999_999n,
    });
    bench.admission.settle(booked.requestId, used);
    bench.admission.settle(running.requestId, bench.book(running.requestId, used));
    expect(await bench.admission.admit(bench.request(limits2, 10, 46n))).toMatchObject({ balancePicoUsd: 45_999_998n });
    expect(await bench.admit(bench.request(limits2, 401, 1n))).toBe('monthly_quota_exceeded');
    expect(await bench.admit(bench.request(limits2, 400, 1n))).toBe('ok');
  });

  it('reads the books again when they went back during a read', async () => {
    const bench = new Bench();
    expect(await bench.admit(bench.request({}, 10, 50n))).toBe('ok');
    await bench.admission.forgetBooks();
    bench.meanwhile = () => {
      bench.meanwhile = () => undefined;
      bench.balancePicoUsd = 60_000_000n;
      void bench.admission.forgetBooks();
    };
    expect(await bench.admit(bench.request({}, 10, 11n))).toBe('insufficient_funds');
    expect(await bench.admit(bench.request({}, 10, 10n))).toBe('ok');
  });
});

describe('a spooled request', () => {
  it('frees its slot and tokens at once, and its money when the books have it', async () => {
    const bench = new Bench();
    const request = bench.request(limits, 500, 50n);
    expect(await bench.admit(request)).toBe('ok');
    expect(await bench.admit(bench.request(limits))).toBe('concurrency_limit_exceeded');
    bench.admission.spooled(request.requestId, used);
    bench.admission.spooled(request.requestId, used);
    expect(await bench.admission.heldMicroUsd(request.organizationId)).toBe(3n);
    expect(await bench.admission.view(request)).toMatchObject({ tokens: { remaining: 700 } });
    expect(await bench.admit(bench.request(limits, 701))).toBe('monthly_quota_exceeded');
    expect(await bench.admission.admit(bench.request(limits, 10, 98n))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 100_000_000n,
      heldMicroUsd: 3n,
    });
    bench.admission.settle(request.requestId, bench.book(request.requestId, used));
    bench.admission.settle(request.requestId, used);
    expect(await bench.admission.heldMicroUsd(request.organizationId)).toBe(0n);
    expect(await bench.admission.view(request)).toMatchObject({ tokens: { remaining: 700 } });
    expect(await bench.admission.admit(bench.request(limits, 10, 98n))).toMatchObject({ balancePicoUsd: 97_999_999n });
    expect(await bench.admit(bench.request(limits, 10, 97n))).toBe('ok');
  });

  it('stays counted when balance and month are read again before the books have it', async () => {
    const bench = new Bench();
    const request = bench.request(limits, 500, 50n);
    expect(await bench.admit(request)).toBe('ok');
    bench.admission.spooled(request.requestId, used);
    // Another request of the organization ends, long after the balance was read; then a month begins.
    bench.turn(120_000);
    const other = bench.request();
    expect(await bench.admit(other)).toBe('ok');
    bench.admission.settle(other.requestId, { chargedPicoUsd: 0n, tokens: 0 });
    expect(await bench.admission.heldMicroUsd(request.organizationId)).toBe(3n);
    expect(await bench.admit(bench.request(limits, 10, 98n))).toBe('insufficient_funds');
    bench.nowMs = Date.UTC(2031, 5, 2);
    const ofJune = bench.request(limits, 500);
    expect(await bench.admit(ofJune)).toBe('ok');
    bench.admission.spooled(ofJune.requestId, used);
    bench.nowMs = Date.UTC(2031, 4, 31);
    expect(await bench.admit(bench.request({ ...limits, tokensPerMinute: null }, 701))).toBe('monthly_quota_exceeded');
    bench.nowMs = Date.UTC(2031, 5, 2);
    expect(await bench.admit(bench.request({ ...limits, tokensPerMinute: null }, 701))).toBe('monthly_quota_exceeded');
  });

  it('is settled by a gateway that replays it, and a replay of an unknown request changes nothing', async () => {
    const bench = new Bench();
    const request = bench.request(limits, 500, 50n);
    expect(await bench.admit(request)).toBe('ok');
    bench.admission.spooled(request.requestId, used);
    const { organizationId, keyId, requestId } = request;
    bench.admission.settleReplayed(organizationId, keyId, randomUUID(), used);
    bench.admission.settleReplayed(organizationId, keyId, requestId, bench.book(requestId, used));
    expect(await bench.admission.heldMicroUsd(organizationId)).toBe(0n);
    expect(await bench.admission.admit(bench.request(limits, 10, 98n))).toMatchObject({ balancePicoUsd: 97_999_999n });
  });
});

describe('the end of a month', () => {
  const endMs = Date.UTC(2031, 5, 1);

  it('during the read of the month gives a wait until that end, not until the end of the next month', async () => {
    const bench = new Bench();
    bench.nowMs = endMs - 1;
    bench.book(randomUUID(), { chargedPicoUsd: 0n, tokens: 1000 });
    bench.meanwhile = () => bench.turn(1000);
    expect(await bench.admission.admit(bench.request({ monthlyTokenLimit: 1000 }))).toMatchObject({
      code: 'monthly_quota_exceeded',
      retryAfterMs: 1,
      view: { resetAtMs: endMs },
    });
    expect(await bench.admission.admit(bench.request({ monthlyTokenLimit: 1000 }))).toMatchObject({
      code: 'monthly_quota_exceeded',
      view: { resetAtMs: Date.UTC(2031, 6, 1) },
    });
  });

  it('removes running requests from the count, since they belong to the month in which they were accepted', async () => {
    const bench = new Bench();
    bench.nowMs = endMs - 60_000;
    const limited = { monthlyTokenLimit: 1000 };
    const across = bench.request(limited, 900);
    expect(await bench.admit(across)).toBe('ok');
    expect(await bench.admit(bench.request(limited, 101))).toBe('monthly_quota_exceeded');
    bench.turn(120_000);
    const after = bench.request(limited, 600);
    expect(await bench.admit(after)).toBe('ok');
    bench.admission.settle(across.requestId, { chargedPicoUsd: 0n, tokens: 900 });
    expect(await bench.admit(bench.request(limited, 400))).toBe('ok');
    expect(await bench.admit(bench.request(limited, 1))).toBe('monthly_quota_exceeded');
  });

  it('does not shorten the wait for a limit per minute', async () => {
    const bench = new Bench();
    bench.nowMs = endMs - 5000;
    const limited = { monthlyTokenLimit: 10, requestsPerMinute: 1 };
    const first = bench.request(limited);
    expect(await bench.admit(first)).toBe('ok');
    bench.admission.settle(first.requestId, bench.book(first.requestId, { chargedPicoUsd: 0n, tokens: 10 }));
    expect(await bench.admission.admit(bench.request(limited))).toMatchObject({
      code: 'monthly_quota_exceeded',
      retryAfterMs: 60_000,
      view: { resetAtMs: endMs },
    });
  });
});

describe('a monthly limit that is set while requests run', () => {
  it('counts their reserved tokens, then their actual tokens', async () => {
    const bench = new Bench();
    const running = [bench.request({}, 500), bench.request({}, 500)];
    for (const request of running) expect(await bench.admit(request)).toBe('ok');
    const limited = { monthlyTokenLimit: 1200 };
    expect(await bench.admit(bench.request(limited, 201))).toBe('monthly_quota_exceeded');
    expect(await bench.admit(bench.request(limited, 200))).toBe('ok');
    for (const { requestId } of running)
      bench.admission.settle(requestId, bench.book(requestId, { chargedPicoUsd: 0n, tokens: 400 }));
    expect(await bench.admit(bench.request(limited, 201))).toBe('monthly_quota_exceeded');
    expect(await bench.admit(bench.request(limited, 200))).toBe('ok');
  });

  it('counts them also when the month was known before the limit was removed', async () => {
    const bench = new Bench();
    const limited = { monthlyTokenLimit: 1200 };
    const first = bench.request(limited, 100);
    expect(await bench.admit(first)).toBe('ok');
    bench.admission.settle(first.requestId, bench.book(first.requestId, { chargedPicoUsd: 0n, tokens: 100 }));
    expect(await bench.admit(bench.request({}, 1000))).toBe('ok');
    expect(await bench.admit(bench.request(limited, 101))).toBe('monthly_quota_exceeded');
    expect(await bench.admit(bench.request(limited, 100))).toBe('ok');
  });

  it('counts each of them once, booked before, during or after the read of the month', async () => {
    const bench = new Bench();
    const running = Array.from({ length: 4 }, () => bench.request({}, 100));
    for (const request of running) expect(await bench.admit(request)).toBe('ok');
    const [booked, meanwhile, later] = running.map(({ requestId }) => requestId) as [string, string, string, string];
    bench.book(booked, { chargedPicoUsd: 0n, tokens: 50 });
    bench.meanwhile = () => {
      bench.meanwhile = () => undefined;
      bench.admission.settle(meanwhile, bench.book(meanwhile, { chargedPicoUsd: 0n, tokens: 60 }));
    };
    const limited = { monthlyTokenLimit: 1000 };
    expect(await bench.admit(bench.request(limited, 0))).toBe('ok');
    bench.admission.settle(booked, { chargedPicoUsd: 0n, tokens: 50 });
    bench.admission.settle(later, bench.book(later, { chargedPicoUsd: 0n, tokens: 70 }));
    // The last one still runs.
    const left = 1000 - 50 - 60 - 70 - 100;
    expect(await bench.admit(bench.request(limited, left + 1))).toBe('monthly_quota_exceeded');
    expect(await bench.admit(bench.request(limited, left))).toBe('ok');
  });
});

describe('admission while the books are unavailable', () => {
  const counted = { monthlyTokenLimit: 1000 };

  it('uses known balances and months for five minutes, then returns billing_unavailable', async () => {
    const bench = new Bench();
    const first = bench.request(counted);
    expect(await bench.admit(first)).toBe('ok');
    bench.admission.settle(first.requestId, bench.book(first.requestId, { chargedPicoUsd: 0n, tokens: 10 }));
    bench.state = 'refusing';
    for (let seconds = 0; seconds <= 300; seconds += 60) {
      bench.turn(60_000);
      expect(await bench.admit(bench.request(counted, 991))).toBe('monthly_quota_exceeded');
      expect(await bench.admit(bench.request(counted, 10, 101n))).toBe('insufficient_funds');
      const request = bench.request(counted);
      expect(await bench.admit(request)).toBe('ok');
      bench.admission.settle(request.requestId, { chargedPicoUsd: 0n, tokens: 0 });
    }
    bench.turn(60_000);
    expect(await bench.admit(bench.request(counted))).toBe('billing_unavailable');
    bench.state = 'there';
    bench.balancePicoUsd = 5_000_000n;
    expect(await bench.admit(bench.request(counted))).toBe('insufficient_funds');
    expect(await bench.admit(bench.request(counted, 10, 5n))).toBe('ok');
  });

  it('returns billing_unavailable for an organization or key that it does not know yet', async () => {
    const bench = new Bench();
    expect(await bench.admit(bench.request())).toBe('ok');
    bench.state = 'refusing';
    const stranger = { ...bench.request(), organizationId: randomUUID() };
    expect(await bench.admit(stranger)).toBe('billing_unavailable');
    expect(await bench.admit({ ...bench.request(counted), keyId: randomUUID() })).toBe('billing_unavailable');
  });

  it('does not wait for a read without an answer, and reads again when the books are back', async () => {
    const bench = new Bench();
    const first = bench.request();
    expect(await bench.admit(first)).toBe('ok');
    bench.admission.settle(first.requestId, { chargedPicoUsd: 0n, tokens: 0 });
    bench.state = 'silent';
    bench.turn(60_000);
    const asked = bench.reads;
    const admitted = Array.from({ length: 3 }, () => bench.request());
    for (const request of admitted) expect(await bench.admit(request)).toBe('ok');
    expect(bench.reads).toBe(asked + 1);
    for (const { requestId } of admitted) bench.admission.settle(requestId, { chargedPicoUsd: 0n, tokens: 0 });
    bench.state = 'there';
    bench.balancePicoUsd = 5_000_000n;
    await expect
      .poll(async () => {
        bench.turn(1000);
        const result = await bench.admission.check(bench.request());
        return result.ok || result.code !== 'insufficient_funds' ? null : result.balancePicoUsd;
      })
      .toBe(5_000_000n);
  });
});

it('accepts requests after a credit that another gateway booked', async () => {
  const bench = new Bench();
  bench.balancePicoUsd = 0n;
  expect(await bench.admit(bench.request())).toBe('insufficient_funds');
  bench.balancePicoUsd = 100_000_000n;
  bench.turn(2000);
  expect(await bench.admit(bench.request())).toBe('ok');
});

describe('a clock jump', () => {
  const hour = 3_600_000;

  it.each([
    ['an hour ahead', hour],
    ['an hour back', -hour],
    ['a month ahead', 31 * 24 * hour],
  ])('%s neither ends nor extends a window', async (_name, byMs) => {
    const bench = new Bench();
    const minute = { requestsPerMinute: 1, tokensPerMinute: 100 };
    expect(await bench.admit(bench.request(minute, 100))).toBe('ok');
    bench.turn(20_000);
    bench.nowMs += byMs;
    const refused = await bench.admission.admit(bench.request(minute));
    expect(refused).toMatchObject({ code: 'rate_limit_exceeded', retryAfterMs: 40_000 });
    expect(refused).toMatchObject({ view: { resetAtMs: bench.nowMs + 40_000 } });
    expect(await bench.admission.view(bench.request(minute))).toMatchObject({
      tokens: { remaining: 0, resetAtMs: bench.nowMs + 40_000 },
    });
    bench.turn(39_999);
    expect(await bench.admit(bench.request(minute))).toBe('rate_limit_exceeded');
    bench.turn(1);
    expect(await bench.admit(bench.request(minute))).toBe('ok');
  });

  it('longer than the lifetime of a balance causes no earlier read of it', async () => {
    const bench = new Bench();
    const first = bench.request();
    expect(await bench.admit(first)).toBe('ok');
    bench.admission.settle(first.requestId, { chargedPicoUsd: 0n, tokens: 0 });
    const { reads } = bench;
    bench.nowMs += hour;
    expect(await bench.admit(bench.request())).toBe('ok');
    expect(bench.reads).toBe(reads);
  });
});

it('extends a hold by what is available, and by nothing below the requested minimum', async () => {
  const bench = new Bench();
  const request = bench.request({}, 10, 40n);
  expect(await bench.admit(request)).toBe('ok');
  const { admission } = bench;
  expect(await admission.extend(request.requestId, 100n, 61n)).toBe(0n);
  expect(await admission.heldMicroUsd(request.organizationId)).toBe(40n);
  expect(await admission.extend(request.requestId, 100n, 60n)).toBe(60n);
  expect(await admission.extend(request.requestId, 1n)).toBe(0n);
  admission.settle(request.requestId, bench.book(request.requestId, { chargedPicoUsd: 0n, tokens: 0 }));
  expect(await admission.heldMicroUsd(request.organizationId)).toBe(0n);
});
