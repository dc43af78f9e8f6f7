import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import type { NewRateCard } from '#core/costs/costs.ts';
import { at, price, useCosts } from '#test/costs/support.ts';

const hour = 3_600_000;

describe('rate cards', () => {
  const bench = useCosts();
  const input: NewRateCard = {
    hardwareProfile: 'h100-8x',
    currency: 'USD',
    nodeHour: price('32.5'),
    gpuHour: null,
    fromMs: null,
    toMs: null,
    retroactive: false,
  };
  const list = async (more: object = {}) => {
    const request = { hardwareProfile: null, currency: null, atMs: null, page: 1, limit: 10, ...more };
    return bench.costs.listRateCards(request);
  };

  it('are rejected with a begin in the past unless retroactive is true', async () => {
    const past = { ...input, fromMs: at('2026-01-01') };
    expect(await bench.costs.rateCards.add(past, bench.by)).toMatchObject({ kind: 'in_the_past' });
    expect((await list()).total).toBe(0);
    expect(await bench.costs.rateCards.add({ ...past, retroactive: true }, bench.by)).toMatchObject({
      kind: 'created',
      rate: { fromMs: at('2026-01-01'), toMs: null, nodeHour: price('32.5'), gpuHour: null },
    });
  });

  it('are rejected when they overlap another card, which the result names', async () => {
    const card = await bench.card({ nodeHour: '1', from: '2026-01-01', to: '2026-06-01' });
    const result = await bench.costs.rateCards.add({ ...input, fromMs: at('2026-05-01'), retroactive: true }, bench.by);
    expect(result).toEqual({ kind: 'overlap', with: card });
    expect((await list()).total).toBe(1);
  });

  it('throw a RangeError without a price', async () => {
    await expect(bench.costs.rateCards.add({ ...input, nodeHour: null }, bench.by)).rejects.toThrow(RangeError);
  });

  it('are never edited or deleted in the database, only ended', async () => {
    const { id } = await bench.card({ nodeHour: '1' });
    const { sql } = bench.db;
    const never = 'rate_cards is never edited, only ended';
    await expect(sql`update rate_cards set node_hour = 2 where id = ${id}`).rejects.toThrow(never);
    await expect(sql`update rate_cards set effective_from = now() where id = ${id}`).rejects.toThrow(never);
    await expect(sql`delete from rate_cards where id = ${id}`).rejects.toThrow(never);
    await sql`update rate_cards set effective_to = '2027-01-01Z' where id = ${id}`;
    await expect(sql`update rate_cards set effective_to = '2028-01-01Z' where id = ${id}`).rejects.toThrow(never);
    await expect(sql`update rate_cards set effective_to = null where id = ${id}`).rejects.toThrow(never);
  });

  it('cannot overlap in the database', async () => {
    await bench.card({ nodeHour: '1' });
    const insert = (profile: string, currency: string) => bench.db.sql`
      insert into rate_cards (id, hardware_profile, currency, node_hour, effective_from, created_at)
      values (${uuidv7()}, ${profile}, ${currency}, 1, '2026-05-01Z', now())`;
    await expect(insert('h100-8x', 'USD')).rejects.toMatchObject({ code: '23P01' });
    await insert('h100-8x', 'EUR');
    await insert('H100-8x', 'USD');
  });

  it('end when the next card begins, and both changes are in the audit log', async () => {
    const first = await bench.costs.rateCards.add(input, bench.by);
    if (first.kind !== 'created') throw new Error(first.kind);
    const next = { ...input, nodeHour: null, gpuHour: price('4.0000000001'), fromMs: first.rate.fromMs + hour };
    const second = await bench.costs.rateCards.add(next, bench.by);
    expect(second).toMatchObject({
      kind: 'created',
      rate: { fromMs: first.rate.fromMs + hour, toMs: null, gpuHour: 40_000_000_001n },
      ended: { id: first.rate.id, toMs: first.rate.fromMs + hour },
    });
    expect((await list()).rates.map(({ toMs }) => toMs)).toEqual([null, first.rate.fromMs + hour]);
    const audited = await bench.db.sql`
      select action, target_id, before, after from audit_log where organization_id = ${bench.by.organizationId}
      and after->>'node_hour' is distinct from '1' order by id desc limit 2`;
    expect([...audited].reverse()).toMatchObject([
      { action: 'rate_card.ended', before: { effective_to: null }, after: { node_hour: '32.5' } },
      {
        action: 'rate_card.created',
        before: null,
        after: { hardware_profile: 'h100-8x', currency: 'USD', node_hour: null, gpu_hour: '4.0000000001' },
      },
    ]);
  });

  it('end now or later, never later than before, and in the past only with retroactive: true', async () => {
    const card = await bench.card({ nodeHour: '1' });
    const end = (atMs: number | null, retroactive = false, id = card.id) =>
      bench.costs.rateCards.end(id, { atMs, retroactive }, bench.by);
    expect(await end(null, false, uuidv7())).toEqual({ kind: 'not_found' });
    expect(await end(at('2026-01-01'))).toMatchObject({ kind: 'in_the_past' });
    const later = Date.now() + 48 * hour;
    expect(await end(later)).toMatchObject({ kind: 'ended', rate: { toMs: later } });
    expect(await end(later + hour)).toMatchObject({ kind: 'already_ended', rate: { toMs: later } });
    expect(await end(later - hour)).toMatchObject({ kind: 'ended', rate: { toMs: later - hour } });
    expect(await end(at('2026-01-01'), true)).toMatchObject({ kind: 'ended', rate: { toMs: at('2026-01-01') } });
  });

  it('are created once when six are added at once for the same time', async () => {
    const fromMs = Date.now() + hour;
    const results = await Promise.all(
      Array.from({ length: 6 }, () => bench.costs.rateCards.add({ ...input, fromMs }, bench.by)),
    );
    expect(results.map(({ kind }) => kind).toSorted()).toEqual(['created', ...Array<string>(5).fill('overlap')]);
  });

  it('are listed by profile, currency and time, page by page, latest first', async () => {
    await bench.card({ nodeHour: '1', from: '2025-01-01', to: '2026-01-01' });
    await bench.card({ nodeHour: '2', from: '2026-01-01' });
    await bench.card({ nodeHour: '3', currency: 'EUR', from: '2025-06-01' });
    await bench.card({ nodeHour: '4', profile: 'a100', from: '2024-01-01' });
    const prices = async (more: object) => (await list(more)).rates.map(({ nodeHour }) => nodeHour);
    expect(await prices({})).toEqual(['2', '3', '1', '4'].map(price));
    expect(await prices({ hardwareProfile: 'h100-8x', currency: 'USD' })).toEqual(['2', '1'].map(price));
    expect(await prices({ atMs: at('2025-12-31') })).toEqual(['3', '1', '4'].map(price));
    expect(await prices({ atMs: at('2026-01-01') })).toEqual(['2', '3', '4'].map(price));
    expect(await list({ page: 2, limit: 3 })).toMatchObject({ total: 4, rates: [{ nodeHour: price('4') }] });
  });
});

describe('conversion rates', () => {
  const bench = useCosts();

  it('throw a RangeError for a rate of zero and for a currency into itself', async () => {
    const dates = { fromMs: null, toMs: null, retroactive: false };
    const add = (from: string, to: string, rate: bigint) =>
      bench.costs.conversionRates.add({ from, to, rate, ...dates }, bench.by);
    await expect(add('USD', 'EUR', 0n)).rejects.toThrow(RangeError);
    await expect(add('USD', 'USD', 1n)).rejects.toThrow(RangeError);
  });

  it('are dated, ended and audited like rate cards, each direction separately', async () => {
    const first = await bench.rate('USD→EUR', '0.9', '2026-01-01');
    await bench.rate('EUR→USD', '1.1', '2026-01-01');
    const second = await bench.rate('USD→EUR', '0.95', '2026-02-01');
    const page = await bench.costs.listConversionRates({ from: 'USD', to: null, atMs: null, page: 1, limit: 10 });
    expect(page).toMatchObject({
      total: 2,
      rates: [
        { id: second.id, rate: price('0.95'), toMs: null },
        { id: first.id, toMs: at('2026-02-01') },
      ],
    });
    const [noted] = await bench.db.sql`
      select action, after from audit_log where target_type = 'conversion_rate' order by id desc limit 1`;
    expect(noted).toMatchObject({
      action: 'conversion_rate.created',
      after: { from: 'USD', to: 'EUR', rate: '0.95', effective_from: '2026-02-01T00:00:00.000Z' },
    });
    const never = 'conversion_rates is never edited';
    await expect(bench.db.sql`update conversion_rates set rate = 2`).rejects.toThrow(never);
    expect(
      await bench.costs.conversionRates.end(second.id, { atMs: null, retroactive: false }, bench.by),
    ).toMatchObject({ kind: 'ended' });
  });
});

describe('the billing currency of an organization', () => {
  const bench = useCosts();

  it('is null by default, can be reset, and is audited once per change', async () => {
    const { id } = bench.organization();
    const change = (currency: string | null) =>
      bench.costs.changeBillingCurrency({ organizationId: id, currency, author: systemAuthor });
    expect(await bench.costs.billingCurrency(id)).toBeNull();
    for (const currency of ['EUR', 'EUR', 'JPY', null, null]) await change(currency);
    expect(await bench.costs.billingCurrency(id)).toBeNull();
    await change('CHF');
    expect(await bench.costs.billingCurrency(id)).toBe('CHF');
    const noted = await bench.db.sql<{ before: object; after: object }[]>`
      select before, after from audit_log where organization_id = ${id}
      and action = 'organization.billing_currency_changed' order by id`;
    expect(noted.map(({ before, after }) => [before, after])).toEqual(
      [
        [null, 'EUR'],
        ['EUR', 'JPY'],
        ['JPY', null],
        [null, 'CHF'],
      ].map((pair) => pair.map((currency) => ({ billing_currency: currency }))),
    );
  });
});
