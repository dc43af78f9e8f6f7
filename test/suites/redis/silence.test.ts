import { beforeEach, describe, expect, it } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { heldOf, requestOf, usedOf } from './admission-bench.ts';
import { ask, count, isBack, wordOf } from './asking.ts';
import { useFrozenRedis } from './frozen-redis.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Gateways that decide in Redis' place while it is silent, and what Redis knows when it is back. */

const frozen = useFrozenRedis();
const { freeze, thaw, openTwo } = frozen;

describe('admission while Redis is frozen', () => {
  it('divides limits among the gateways, at least one request each, and counts earlier use', async () => {
    const { gateways, make } = await openTwo(1000n, { limits: { requestsPerMinute: 10 } });
    expect(count((await ask(gateways[0], 2, () => make())).said)).toBe(2);
    const single = { keyId: 'single', limits: { maxConcurrency: 1 } };
    for (const { admission } of gateways) await admission.check(make(single));
    freeze();
    // The first has seen that 8 are left, the second that 10 are.
    expect(count((await ask(gateways[0], 10, () => make())).said)).toBe(4);
    expect((await ask(gateways[1], 10, () => make())).said).toEqual([
      ...Array<string>(5).fill('ok'),
      ...Array<string>(5).fill('rate_limit_exceeded'),
    ]);
    for (const gateway of gateways) {
      expect((await ask(gateway, 2, () => make(single))).said).toEqual(['ok', 'concurrency_limit_exceeded']);
    }
    // Nothing is waited for any more, and headers speak of the whole limit.
    const said = gateways[0].admission.admit(make());
    expect(said).toMatchObject({ code: 'rate_limit_exceeded', limits: { requests: { limit: 10, remaining: 0 } } });
  });

  it('allows one request above a full concurrency limit of another gateway', async () => {
    const { gateways, make } = await openTwo(1000n, { limits: { maxConcurrency: 4 } });
    const [busy, other] = gateways;
    expect(count((await ask(busy, 4, () => make())).said)).toBe(4);
    expect(wordOf(await other.admission.check(make()))).toBe('concurrency_limit_exceeded');
    freeze();
    expect((await ask(busy, 1, () => make())).said).toEqual(['concurrency_limit_exceeded']);
    expect((await ask(other, 2, () => make())).said).toEqual(['ok', 'concurrency_limit_exceeded']);
  });

  it('registers requests from the freeze and later ones once after it', async () => {
    const { gateways, organizationId, make } = await openTwo(1000n, { limits: { requestsPerMinute: 100 } });
    const [first, second] = gateways;
    freeze();
    const admitted = [];
    for (const gateway of gateways) {
      const asked = await Promise.all(
        Array.from({ length: 10 }, async () => {
          const request = make();
          return { request, gateway, result: await gateway.admission.admit(request) };
        }),
      );
      admitted.push(...asked);
    }
    expect(admitted.every(({ result }) => result.ok)).toBe(true);
    // Half of them end before Redis is back.
    for (const { request, gateway } of admitted.filter((_, index) => index % 2 === 0)) {
      gateway.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(4n)));
    }
    thaw();
    await isBack(first, make());
    // Whichever is back first: the other one has told what it has before.
    expect(await first.admission.admit(make({ microUsd: 1000n - 40n - 100n + 1n }))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 960_000_000n,
      heldMicroUsd: 100n,
    });
    expect(await second.admission.view(make())).toMatchObject({ requests: { remaining: 80 } });
    for (const { request, gateway } of admitted.filter((_, index) => index % 2 === 1)) {
      gateway.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(4n)));
    }
    await eventually(async () => (await heldOf(first, organizationId)) === 0n);
    expect(await second.admission.admit(make({ microUsd: 921n }))).toMatchObject({ balancePicoUsd: 920_000_000n });
    expect(await second.admission.view(make())).toMatchObject({ requests: { remaining: 80 } });
  });

  it('divides wallets, never spends more than the balance, and never spends it twice', async () => {
    const { gateways, organizationId, make } = await openTwo(100n, {});
    const running = make({ microUsd: 20n });
    expect(await gateways[0].admission.admit(running)).toMatchObject({ ok: true });
    freeze();
    // The current holds of a gateway are part of its share, whether the other one has heard of them or not.
    for (const { admission } of gateways) expect(await admission.check(make())).toMatchObject({ ok: true });
    for (let round = 0; round < 3; round += 1) {
      for (const [index, gateway] of gateways.entries()) {
        const { admitted } = await ask(gateway, 10, () => make({ microUsd: 10n }));
        expect(admitted).toHaveLength(round === 0 ? ([3, 5][index] ?? 0) : 0);
        for (const request of admitted) {
          gateway.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(10n)));
        }
      }
    }
    expect(frozen.bench.books.balance(organizationId)).toBe(20_000_000n);
    // Only this gateway's part is used up: that is no word about the wallet.
    expect(await gateways[0].admission.admit(make())).toEqual({ ok: false, code: 'billing_unavailable' });
    expect(await gateways[0].admission.admit(make({ microUsd: 81n }))).toMatchObject({ code: 'insufficient_funds' });
    gateways[0].admission.settle(running.requestId, frozen.bench.books.book(running, usedOf(5n)));
    thaw();
    await eventually(async () => {
      const result = await gateways[1].admission.check(make({ microUsd: 16n }));
      return !result.ok && result.code === 'insufficient_funds' && result.balancePicoUsd === 15_000_000n;
    });
    expect(await gateways[1].admission.admit(make({ microUsd: 15n }))).toMatchObject({ ok: true });
  });

  it('never spends more than the ledger allows, even if earlier charges are unreported', async () => {
    const { gateways, organizationId, make } = await openTwo(100n, {});
    const [busy, other] = gateways;
    const { admitted } = await ask(busy, 6, () => make());
    for (const request of admitted)
      busy.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(10n)));
    freeze();
    for (const gateway of gateways) expect((await ask(gateway, 5, () => make())).admitted).toHaveLength(2);
    expect(frozen.bench.books.balance(organizationId)).toBe(40_000_000n);
    expect(wordOf(await other.admission.check(make()))).toBe('billing_unavailable');
  });

  it("counts another gateway's hold as charged while the ledger is slow", async () => {
    const { gateways, organizationId, make } = await openTwo(100n, {});
    const [busy, other] = gateways;
    const request = make({ microUsd: 40n });
    expect(await busy.admission.admit(request)).toMatchObject({ ok: true });
    expect(await other.admission.check(make())).toMatchObject({ ok: true });
    busy.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(40n)));
    // With each renewal they learn how many they are.
    for (const { admission } of gateways) await admission.renew();
    freeze();
    frozen.bench.books.state = 'silent';
    for (const gateway of gateways) expect((await ask(gateway, 6, () => make())).admitted).toHaveLength(3);
    expect(frozen.bench.books.balance(organizationId)).toBe(60_000_000n);
  });

  it('gives a new gateway its share while the ledger is slow', async () => {
    const { organizationId, gateways, make } = await openTwo(100n, {});
    for (const { admission } of gateways) await admission.renew();
    const third = await frozen.bench.open();
    expect(await third.admission.check(make())).toMatchObject({ ok: true });
    freeze();
    frozen.bench.books.state = 'silent';
    for (const gateway of [...gateways, third]) {
      expect((await ask(gateway, 6, () => make({ microUsd: 11n }))).admitted).toHaveLength(3);
    }
    expect(frozen.bench.books.balance(organizationId)).toBe(100_000_000n);
  });

  it('uses a late response of the ledger from then on', async () => {
    const { gateways, make } = await openTwo(100n, {});
    const [busy, other] = gateways;
    const { admitted } = await ask(busy, 6, () => make());
    for (const request of admitted)
      busy.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(10n)));
    await other.admission.renew();
    freeze();
    frozen.bench.books.state = 'slow';
    // The other has heard of only 100.
    expect(await other.admission.check(make({ microUsd: 50n }))).toMatchObject({ ok: true });
    await eventually(async () => wordOf(await other.admission.check(make({ microUsd: 21n }))) !== 'ok');
    expect((await ask(other, 5, () => make())).admitted).toHaveLength(2);
  });

  it('never admits more of a month than the ledger says is left', async () => {
    const { gateways, make } = await openTwo(1000n, { limits: { monthlyTokenLimit: 100 }, tokens: 10 });
    const [busy] = gateways;
    const { admitted } = await ask(busy, 6, () => make());
    for (const request of admitted)
      busy.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(1n, 10)));
    freeze();
    // The other has heard that nothing was used.
    for (const gateway of gateways) expect((await ask(gateway, 5, () => make())).admitted).toHaveLength(2);
  });

  it('uses a late monthly sum of the ledger from then on', async () => {
    const { gateways, make } = await openTwo(1000n, { limits: { monthlyTokenLimit: 100 }, tokens: 10 });
    const [busy, other] = gateways;
    const { admitted } = await ask(busy, 6, () => make());
    for (const request of admitted)
      busy.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(1n, 10)));
    await other.admission.renew();
    freeze();
    frozen.bench.books.state = 'slow';
    expect(await other.admission.check(make({ tokens: 50 }))).toMatchObject({ ok: true });
    await eventually(async () => wordOf(await other.admission.check(make({ tokens: 21 }))) !== 'ok');
    expect((await ask(other, 5, () => make())).admitted).toHaveLength(2);
  });

  it('notices a credit, and divides it', async () => {
    const { gateways, organizationId, make } = await openTwo(10n, {});
    freeze();
    expect(wordOf(await gateways[0].admission.admit(make({ microUsd: 50n })))).toBe('insufficient_funds');
    frozen.bench.books.credit(organizationId, 100n);
    await eventually(async () => wordOf(await gateways[0].admission.check(make({ microUsd: 55n }))) === 'ok');
    expect(wordOf(await gateways[0].admission.check(make({ microUsd: 56n })))).toBe('billing_unavailable');
    expect((await ask(gateways[0], 3, () => make({ microUsd: 55n }))).said).toEqual([
      'ok',
      'billing_unavailable',
      'billing_unavailable',
    ]);
  });

  it('divides a credit separately, without giving earlier shares again', async () => {
    const { gateways, organizationId, make } = await openTwo(100n, {});
    const [first, second] = gateways;
    freeze();
    const requests = [make({ microUsd: 50n }), make({ microUsd: 50n })] as const;
    for (const [index, request] of requests.entries()) {
      expect(await gateways[index]?.admission.admit(request)).toMatchObject({ ok: true });
    }
    first.admission.settle(requests[0].requestId, frozen.bench.books.book(requests[0], usedOf(50n)));
    frozen.bench.books.credit(organizationId, 20n);
    void first.admission.credited(organizationId, 20_000_000n);
    expect(wordOf(await first.admission.admit(make({ microUsd: 11n })))).toBe('billing_unavailable');
    expect(wordOf(await first.admission.admit(make({ microUsd: 10n })))).toBe('ok');
    expect(wordOf(await second.admission.admit(make({ microUsd: 1n })))).toBe('billing_unavailable');
    second.admission.settle(requests[1].requestId, frozen.bench.books.book(requests[1], usedOf(0n)));
    expect(wordOf(await second.admission.admit(make({ microUsd: 50n })))).toBe('ok');
  });

  it("extends a stream within this gateway's share, and reports it to Redis afterwards", async () => {
    const { gateways, organizationId, make } = await openTwo(100n, {});
    const stream = make({ microUsd: 20n });
    expect(await gateways[0].admission.admit(stream)).toMatchObject({ ok: true });
    freeze();
    expect(await gateways[0].admission.extend(stream.requestId, 20n)).toBe(20n);
    expect(await gateways[0].admission.extend(stream.requestId, 20n, 11n)).toBeNull();
    expect(await gateways[0].admission.extend(stream.requestId, 20n, 10n)).toBe(10n);
    thaw();
    await eventually(async () => (await heldOf(gateways[1], organizationId)) === 50n);
    await eventually(async () => (await gateways[0].admission.extend(stream.requestId, 1n)) === 1n);
    gateways[0].admission.settle(stream.requestId, frozen.bench.books.book(stream, usedOf(45n)));
    await eventually(async () => (await heldOf(gateways[1], organizationId)) === 0n);
    expect(await gateways[1].admission.admit(make({ microUsd: 56n }))).toMatchObject({ balancePicoUsd: 55_000_000n });
  });

  it('divides the rest of a month, and counts each token once in the end', async () => {
    const limits = { monthlyTokenLimit: 100, tokensPerMinute: 1000 };
    const { gateways, make } = await openTwo(1000n, { limits, tokens: 10 });
    freeze();
    const admitted = [];
    const asked = [];
    for (const gateway of gateways) {
      const { said, admitted: running } = await ask(gateway, 8, () => make());
      expect(count(said)).toBe(5);
      // Not the month is over, but this gateway's part of it.
      expect(count(said, 'billing_unavailable')).toBe(3);
      asked.push({ gateway, all: running });
    }
    for (const { gateway, all } of asked) {
      const [ended, ...running] = all;
      if (ended !== undefined) gateway.admission.settle(ended.requestId, frozen.bench.books.book(ended, usedOf(1n, 4)));
      admitted.push(...running.map((request) => ({ gateway, request })));
    }
    thaw();
    await eventually(async () => (await gateways[0].admission.view(make())).tokens !== null);
    await eventually(async () => wordOf(await gateways[0].admission.check(make({ tokens: 12 }))) === 'ok');
    expect(await gateways[1].admission.check(make({ tokens: 13 }))).toMatchObject({
      code: 'monthly_quota_exceeded',
      view: { remaining: 12 },
    });
    for (const { gateway, request } of admitted) {
      gateway.admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(1n, 5)));
    }
    await eventually(async () => wordOf(await gateways[0].admission.check(make({ tokens: 52 }))) === 'ok');
    expect(wordOf(await gateways[0].admission.check(make({ tokens: 53 })))).toBe('monthly_quota_exceeded');
    expect(await gateways[0].admission.view(make())).toMatchObject({ tokens: { remaining: 1000 - 48 } });
  });

  it('takes expired concurrency slots again before it admits requests', async () => {
    const { gateways, make } = await openTwo(1000n, { limits: { maxConcurrency: 2 } }, 900);
    const streams = [make(), make()];
    for (const [index, stream] of streams.entries()) {
      expect(await gateways[index]?.admission.admit(stream)).toMatchObject({ ok: true });
    }
    freeze();
    await new Promise((resolve) => setTimeout(resolve, 2000));
    thaw();
    for (let time = 0; time < 20; time += 1) {
      for (const gateway of gateways) {
        expect(wordOf(await gateway.admission.admit(make()))).toBe('concurrency_limit_exceeded');
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    for (const [index, stream] of streams.entries()) {
      gateways[index]?.admission.settle(stream.requestId, usedOf(0n));
    }
    await eventually(async () => wordOf(await gateways[0].admission.check(make())) === 'ok');
  });

  it('keeps a spooled cost spent afterwards', async () => {
    const { gateways, organizationId, make } = await openTwo(100n, { limits: { maxConcurrency: 2 } });
    freeze();
    const request = make({ microUsd: 40n });
    expect(await gateways[0].admission.admit(request)).toMatchObject({ ok: true });
    gateways[0].admission.spooled(request.requestId, usedOf(30n));
    expect(await gateways[0].admission.admit(make({ microUsd: 21n }))).toEqual({
      ok: false,
      code: 'billing_unavailable',
    });
    thaw();
    await eventually(async () => (await heldOf(gateways[1], organizationId)) === 30n);
    await eventually(async () => wordOf(await gateways[1].admission.check(make({ microUsd: 70n }))) === 'ok');
    expect(wordOf(await gateways[1].admission.check(make({ microUsd: 71n })))).toBe('insufficient_funds');
    gateways[0].admission.settle(request.requestId, frozen.bench.books.book(request, usedOf(30n)));
    await eventually(async () => (await heldOf(gateways[1], organizationId)) === 0n);
    expect(await gateways[1].admission.admit(make({ microUsd: 71n }))).toMatchObject({ balancePicoUsd: 70_000_000n });
  });
});

describe('a caller unknown to this gateway, without Redis', () => {
  it('is read from the database, and rejected when the database does not respond either', async () => {
    const gateway = await frozen.bench.open();
    const [known, unknown] = [frozen.bench.books.open(100n), frozen.bench.books.open(100n)];
    const key = { keyId: 'known' };
    expect(await gateway.admission.check(requestOf(known, key))).toMatchObject({ ok: true });
    frozen.bench.books.revoke('revoked');
    await frozen.redis.stop();
    expect(wordOf(await gateway.admission.admit(requestOf(known, { keyId: 'revoked' })))).toBe('unauthorized');
    expect(wordOf(await gateway.admission.admit(requestOf(unknown, { microUsd: 101n })))).toBe('insufficient_funds');
    expect(wordOf(await gateway.admission.admit(requestOf(unknown, { microUsd: 100n })))).toBe('ok');
    frozen.bench.books.state = 'refusing';
    expect(wordOf(await gateway.admission.admit(requestOf(frozen.bench.books.open(100n))))).toBe('billing_unavailable');
    expect(wordOf(await gateway.admission.admit(requestOf(known, { ...key, microUsd: 101n })))).toBe(
      'insufficient_funds',
    );
    expect(wordOf(await gateway.admission.admit(requestOf(known, { ...key, microUsd: 100n })))).toBe('ok');
  });
});
