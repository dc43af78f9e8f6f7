import { describe, expect, it } from 'vitest';
import type { AdmitRequest } from '#core/admission/contract/types.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { heldOf, requestOf, type TestGateway, usedOf } from './admission-bench.ts';
import { isBack, wordOf } from './asking.ts';
import { useFrozenRedis } from './frozen-redis.ts';
import { openLine } from '#test/tcp-line.ts';

/** Gateways that decided in Redis' place, once it is back. */

const frozen = useFrozenRedis();
const { freeze, thaw, openTwo } = frozen;
const [always, never] = [() => true, () => false];

describe('the return of Redis', () => {
  it('keeps each gateway on its share while the other is silent, and on Redis once that one has ended', async () => {
    const { gateways, organizationId, make } = await openTwo(100n, { limits: { requestsPerMinute: 100 } });
    const [first, second] = gateways;
    freeze();
    expect(wordOf(await first.admission.admit(make()))).toBe('ok');
    second.answers = false;
    thaw();
    for (let time = 0; time < 30; time += 1) {
      expect(first.admission.check(make())).toMatchObject({ ok: true });
      // The holds of the other one are not known either.
      await expect(first.admission.heldMicroUsd(organizationId)).rejects.toMatchObject({ code: 'billing_unavailable' });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    second.lives = false;
    await isBack(first, make());
    expect(await first.admission.admit(make({ microUsd: 90n }))).toMatchObject({ ok: true });
  });

  it('for one gateway before the other overspends nothing', async () => {
    const line = await openLine(Number(new URL(frozen.redis.url).port));
    const gateways = [await frozen.bench.open({ url: line.url }), await frozen.bench.open()] as const;
    const [cut, other] = gateways;
    const organizationId = frozen.bench.books.open(100n);
    const make = (microUsd: bigint): AdmitRequest => requestOf(organizationId, { keyId: 'key', microUsd });
    for (const { admission } of gateways) expect(await admission.check(make(1n))).toMatchObject({ ok: true });
    line.lead(null);
    expect(await cut.admission.admit(make(30n))).toMatchObject({ ok: true });
    await frozen.redis.flush();
    expect(wordOf(await other.admission.admit(make(70n)))).toBe('billing_unavailable');
    line.lead(Number(new URL(frozen.redis.url).port));
    // As soon as it has said what it holds, Redis gives all the rest.
    await eventually(async () => wordOf(await other.admission.admit(make(70n))) === 'ok');
    expect(wordOf(await cut.admission.admit(make(20n)))).not.toBe('ok');
    line.close();
  });

  it('for one gateway that has only just reported its holds overspends nothing', async () => {
    const line = await openLine(Number(new URL(frozen.redis.url).port));
    const gateways = [await frozen.bench.open({ url: line.url }), await frozen.bench.open()] as const;
    const [cut, other] = gateways;
    const organizationId = frozen.bench.books.open(100n);
    const make = (microUsd: bigint): AdmitRequest => requestOf(organizationId, { keyId: 'key', microUsd });
    for (const { admission } of gateways) expect(await admission.check(make(1n))).toMatchObject({ ok: true });
    line.lead(null);
    expect(await cut.admission.admit(make(30n))).toMatchObject({ ok: true });
    line.lead(Number(new URL(frozen.redis.url).port));
    // It reaches Redis again before it has seen Redis answer.
    while (!(await cut.admission.register(organizationId).then(always, never))) await new Promise(setImmediate);
    expect(await other.admission.admit(make(70n))).toMatchObject({ ok: true });
    expect(wordOf(await cut.admission.admit(make(20n)))).not.toBe('ok');
    line.close();
  });

  it('for one gateway makes another one wait until it has noticed the return', async () => {
    const { gateways, make } = await openTwo(100n, { limits: { requestsPerMinute: 100 } });
    const [first, late] = gateways;
    freeze();
    for (const { admission } of gateways) expect(await admission.admit(make())).toMatchObject({ ok: true });
    late.hears = false;
    thaw();
    await isBack(first, make());
    expect(await first.admission.admit(make({ microUsd: 80n }))).toMatchObject({ ok: true });
    expect(wordOf(await late.admission.admit(make()))).toBe('billing_unavailable');
    late.hears = true;
    await eventually(async () => wordOf(await late.admission.admit(make())) === 'insufficient_funds');
  });

  it('for one gateway makes another one wait that loses Redis for a moment', async () => {
    const port = Number(new URL(frozen.redis.url).port);
    const line = await openLine(port);
    const gateways = [await frozen.bench.open({ url: line.url }), await frozen.bench.open()] as const;
    const [late, first] = gateways;
    const organizationId = frozen.bench.books.open(100n);
    const make = (microUsd: bigint): AdmitRequest =>
      requestOf(organizationId, { keyId: 'key', microUsd, limits: { requestsPerMinute: 100 } });
    for (const { admission } of gateways) expect(await admission.check(make(1n))).toMatchObject({ ok: true });
    freeze();
    for (const { admission } of gateways) expect(await admission.admit(make(10n))).toMatchObject({ ok: true });
    late.hears = false;
    thaw();
    await isBack(first, make(1n));
    expect(await first.admission.admit(make(80n))).toMatchObject({ ok: true });
    expect(wordOf(await late.admission.admit(make(10n)))).toBe('billing_unavailable');
    line.lead(null);
    while (late.store.answers) await new Promise(setImmediate);
    const asked = late.admission.admit(make(10n));
    line.lead(port);
    expect(wordOf(await asked)).toBe('billing_unavailable');
    line.close();
  });

  it('counts in the month what a dead gateway had charged meanwhile', async () => {
    const limits = { monthlyTokenLimit: 1000, requestsPerMinute: 100 };
    const { gateways, make } = await openTwo(1000n, { limits });
    const [killed, left] = gateways;
    const first = make({ tokens: 400 });
    expect(wordOf(await killed.admission.admit(first))).toBe('ok');
    killed.admission.settle(first.requestId, frozen.bench.books.book(first, usedOf(1n, 400)));
    freeze();
    const alone = make({ tokens: 300 });
    expect(wordOf(await killed.admission.admit(alone))).toBe('ok');
    frozen.bench.books.book(alone, usedOf(1n, 300));
    // Nobody ever sends Redis its last messages.
    [killed.answers, killed.lives] = [false, false];
    killed.store.close();
    expect(wordOf(await left.admission.admit(make({ tokens: 1 })))).toBe('ok');
    thaw();
    await isBack(left, make({ tokens: 1 }));
    // Known keys are served on while the ledger does not answer in time.
    const said = async (tokens: number): Promise<string> => wordOf(await left.admission.check(make({ tokens })));
    await eventually(async () => (await said(301)) === 'monthly_quota_exceeded');
    expect(await said(290)).toBe('ok');
  });

  it('under load loses nothing and spends nothing twice', async () => {
    const { gateways, organizationId, make } = await openTwo(3000n, { limits: { requestsPerMinute: 10_000 } });
    let admitted = 0;
    let isOver = false;
    const callers = Array.from({ length: 8 }, async (_, index) => {
      const gateway = gateways[index % 2] as TestGateway;
      while (!isOver) {
        const request = make({ microUsd: 10n });
        const result = await gateway.admission.admit(request);
        await new Promise((resolve) => setTimeout(resolve, 1 + (index % 4)));
        if (!result.ok) continue;
        admitted += 1;
        gateway.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(1n)));
      }
    });
    for (let time = 0; time < 4; time += 1) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      freeze();
      await new Promise((resolve) => setTimeout(resolve, 200 + 100 * time));
      thaw();
    }
    await new Promise((resolve) => setTimeout(resolve, 500));
    isOver = true;
    await Promise.all(callers);
    await isBack(gateways[0], make());
    await isBack(gateways[1], make());
    await eventually(async () => (await heldOf(gateways[0], organizationId)) === 0n);
    const left = 3000n - BigInt(admitted);
    expect(frozen.bench.books.balance(organizationId)).toBe((left > 0n ? left : 0n) * 1_000_000n);
    const result = await gateways[1].admission.check(make({ microUsd: 3001n }));
    expect(result).toMatchObject({ balancePicoUsd: frozen.bench.books.balance(organizationId), heldMicroUsd: 0n });
    expect(await gateways[1].admission.view(make())).toMatchObject({ requests: { remaining: 10_000 - admitted } });
  });
});
