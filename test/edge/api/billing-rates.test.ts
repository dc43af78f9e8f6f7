import { describe, expect, it } from 'vitest';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();

const cards = '/v1/billing/rate-cards';
const rates = '/v1/billing/conversion-rates';

/** Details of an answer, by wrong field. */
function detailsOf({ body }: Answer): Record<string, string> {
  const details: { field: string; message: string }[] = body.error.details;
  return Object.fromEntries(details.map(({ field, message }) => [field, message]));
}

const card = (profile: string, more: object = {}) => ({
  hardware_profile: profile,
  currency: 'USD',
  gpu_hour: '2.49',
  ...more,
});

describe('GET /v1/billing/currencies', () => {
  it('returns the whole list, and pages when the client asks for pages', async () => {
    const path = '/v1/billing/currencies';
    expect(detailsOf(await api().ask(`${path}?page=0&sort=code`))).toEqual({
      page: 'must be a whole number of 1 or more',
      sort: expect.stringContaining('is unknown'),
    });
    const first = (await api().ask(path)).body;
    expect(first.data).toHaveLength(first.pagination.total);
    expect(first.pagination).toMatchObject({ page: 1, pages: 1 });
    const codes: string[] = [];
    for (let page = 1; page <= Math.ceil(first.pagination.total / 100); page += 1) {
      const { body } = await api().ask(`${path}?limit=100&page=${page}`);
      codes.push(...body.data.map(({ code }: { code: string }) => code));
    }
    expect(codes).toEqual([...new Set(codes)].toSorted());
    expect(codes).toHaveLength(first.pagination.total);
    expect(codes).toEqual(expect.arrayContaining(['AED', 'EUR', 'ZWG']));
    expect((await api().ask(`${path}?page=99`)).body.data).toEqual([]);
  });
});

describe('a rejected rate request', () => {
  it.each([cards, rates])('requires an operator for changes and a management key for reads: %s', async (path) => {
    const { key } = await api().organization();
    const made = await api().ask('/v1/keys', { key, body: { name: 'member', scope: 'inference' } });
    const member: string = made.body.secret;
    expect((await api().ask(path, { key: null })).status).toBe(401);
    expect((await api().ask(path, { key: member })).body.error.code).toBe('FORBIDDEN');
    expect((await api().ask(path, { key })).status).toBe(200);
    for (const one of [path, `${path}/${path === cards ? 'rate' : 'conv'}_${'0'.repeat(32)}/end`]) {
      // The caller's rights are checked before the body.
      expect((await api().ask(one, { key, body: { nonsense: 1 } })).body.error.code).toBe('FORBIDDEN');
    }
  });

  it('names all problems of a rate card at once', async () => {
    const body = {
      hardware_profile: ' ',
      currency: 'EURO',
      effective_from: '2026-03-01',
      effective_to: '2026-02-01',
      retroactive: 'yes',
      colour: 'red',
    };
    const answer = await api().ask(cards, { body });
    expect(answer.status).toBe(400);
    expect(answer.body.error.code).toBe('VALIDATION_ERROR');
    expect(detailsOf(answer)).toEqual({
      hardware_profile: 'must not be empty',
      currency: 'must be a currency of GET /v1/billing/currencies, such as EUR',
      gpu_hour: 'is missing: send gpu_hour, node_hour or both',
      effective_to: 'must be later than effective_from',
      retroactive: 'must be a boolean',
      colour: 'is not a known field',
    });
  });

  it('names all problems of a conversion rate at once', async () => {
    const answer = await api().ask(rates, {
      body: { from: 'usd', to: 'USD', rate: '0', effective_from: '10:00', x: 1 },
    });
    expect(answer.status).toBe(400);
    expect(detailsOf(answer)).toMatchObject({
      to: 'must differ from "from"',
      rate: 'must be more than 0',
      effective_from: expect.stringContaining('must be a date'),
      x: 'is not a known field',
    });
  });

  it.each(['1e3', '-1', '', '2,5', ' 1', '1.12345678901', '12345678901', 'NaN', '0x1'])(
    'names the price %j',
    async (price) => {
      const answer = await api().ask(cards, { body: card('odd', { gpu_hour: price }) });
      expect(detailsOf(answer)['gpu_hour']).toContain('must be a plain decimal');
    },
  );

  it('names a price sent as a number, because JSON would lose digits', async () => {
    const answer = await api().ask(cards, { body: card('odd', { gpu_hour: 2.49 }) });
    expect(detailsOf(answer)).toEqual({ gpu_hour: 'must be a string' });
  });

  it('names a start or end in the past unless retroactive is set', async () => {
    const past = card('past', { effective_from: '2026-01-01' });
    const refused = await api().ask(cards, { body: past });
    expect(refused.status).toBe(400);
    expect(detailsOf(refused)['effective_from']).toContain('is in the past');
    const made = await api().ask(cards, { body: { ...past, retroactive: true } });
    expect(made.status).toBe(201);
    const end = `${cards}/${made.body.id}/end`;
    expect(detailsOf(await api().ask(end, { body: { at: '2026-02-01' } }))['at']).toContain('is in the past');
    const ended = await api().ask(end, { body: { at: '2026-02-01', retroactive: true } });
    expect(ended.body).toMatchObject({ effective_to: '2026-02-01T00:00:00.000Z' });
  });

  it('returns 409 for a card before an existing one, and says how to end the new card', async () => {
    const today = await api().ask(cards, { body: card('before', {}) });
    const past = card('before', { effective_from: '2026-01-01', retroactive: true });
    const refused = await api().ask(cards, { body: past });
    const to = today.body.effective_from;
    expect([refused.status, refused.body.error.message]).toEqual([
      409,
      expect.stringContaining(`or end the new one at its start ("effective_to": "${to}").`),
    ]);
    const made = await api().ask(cards, { body: { ...past, effective_to: to } });
    expect(made.status).toBe(201);
  });

  it('returns 409 for two cards in effect at the same time', async () => {
    const dates = { effective_from: '2026-01-01', effective_to: '2026-02-01', retroactive: true };
    const first = await api().ask(cards, { body: card('twice', dates) });
    const second = await api().ask(cards, { body: card('twice', { ...dates, effective_from: '2026-01-31' }) });
    expect(second.status).toBe(409);
    expect(second.body.error.message).toContain(first.body.id);
    expect(second.body.error.message).toContain('2026-01-01T00:00:00.000Z until 2026-02-01T00:00:00.000Z');
    // Another currency, and what begins as the first ends, are no contradiction.
    expect((await api().ask(cards, { body: card('twice', { ...dates, currency: 'EUR' }) })).status).toBe(201);
    const next = card('twice', { effective_from: '2026-02-01', retroactive: true });
    expect((await api().ask(cards, { body: next })).status).toBe(201);
  });

  it.each([
    [`${cards}/rate_${'0'.repeat(32)}/end`, 'There is no such rate card.'],
    [`${cards}/conv_${'0'.repeat(32)}/end`, 'There is no such rate card.'],
    [`${rates}/nonsense/end`, 'There is no such conversion rate.'],
  ])('returns 404 for an unknown rate: %s', async (path, message) => {
    const answer = await api().ask(path, { body: {} });
    expect(answer).toMatchObject({ status: 404, body: { error: { code: 'NOT_FOUND', message, details: [] } } });
  });

  it('returns 409 for a second end', async () => {
    const { body } = await api().ask(cards, { body: card('ended') });
    const first = await api().ask(`${cards}/${body.id}/end`, { body: {} });
    expect(first.status).toBe(200);
    const again = await api().ask(`${cards}/${body.id}/end`, { body: {} });
    expect(again.status).toBe(409);
    expect(again.body.error.message).toContain(`ends at ${first.body.effective_to}`);
  });

  it.each([
    ['page=0&limit=1.5', ['limit', 'page']],
    ['currency=XXX&at=yesterday&sort=name', ['at', 'currency', 'sort']],
    ['hardware_profile=a&hardware_profile=b', ['hardware_profile']],
  ])('names the invalid list parameters: %s', async (query, fields) => {
    const answer = await api().ask(`${cards}?${query}`);
    expect(answer.status).toBe(400);
    expect(Object.keys(detailsOf(answer)).toSorted()).toEqual(fields);
  });

  it('returns 404 for PATCH, PUT and DELETE', async () => {
    const { body } = await api().ask(cards, { body: card('edited') });
    for (const method of ['PATCH', 'PUT', 'DELETE']) {
      expect((await api().ask(`${cards}/${body.id}`, { method, body: card('edited') })).status).toBe(404);
    }
  });
});

describe('a rate card', () => {
  it('keeps every digit of its prices, and has the time it takes effect', async () => {
    const prices = { node_hour: '1234567890.0123456789', gpu_hour: '0.0000000001' };
    const { status, body } = await api().ask(cards, { body: card('exact', { ...prices, currency: 'eur' }) });
    expect(status).toBe(201);
    expect(body).toMatchObject({ ...prices, currency: 'EUR', effective_to: null, follows: null });
    expect(body.id).toMatch(/^rate_[0-9a-f]{32}$/);
    expect(body.effective_from).toBe(body.created_at);
  });

  it('ends when its successor starts, and cannot be changed afterwards', async () => {
    const first = (await api().ask(cards, { body: card('followed', { gpu_hour: '2' }) })).body;
    const at = new Date(Date.now() + 86_400_000).toISOString();
    const second = await api().ask(cards, { body: card('followed', { gpu_hour: '3', effective_from: at }) });
    expect(second.body.follows).toMatchObject({ id: first.id, gpu_hour: '2', effective_to: at });
    const listed = await api().ask(`${cards}?hardware_profile=followed`);
    expect(listed.body.pagination).toEqual({ page: 1, limit: 20, total: 2, pages: 1 });
    expect(listed.body.data.map(({ gpu_hour: price }: { gpu_hour: string }) => price)).toEqual(['3', '2']);
    const now = await api().ask(`${cards}?hardware_profile=followed&at=${new Date().toISOString()}`);
    expect(now.body.data).toMatchObject([{ id: first.id }]);
    const actions = await api().db.sql`select action from audit_log where target_id = ${first.id} order by id`;
    expect(actions.map(({ action }) => action)).toEqual(['rate_card.created', 'rate_card.ended']);
  });

  it('is listed in pages', async () => {
    for (const currency of ['USD', 'EUR', 'JPY']) await api().ask(cards, { body: card('paged', { currency }) });
    const page = await api().ask(`${cards}?hardware_profile=paged&limit=2&page=2`);
    expect(page.body.pagination).toEqual({ page: 2, limit: 2, total: 3, pages: 2 });
    expect(page.body.data).toHaveLength(1);
    expect((await api().ask(`${cards}?hardware_profile=paged&page=9`)).body).toMatchObject({ data: [] });
    expect((await api().ask(`${cards}?limit=1000`)).body.pagination.limit).toBe(100);
    expect((await api().ask(`${cards}?hardware_profile=paged&currency=jpy`)).body.pagination.total).toBe(1);
  });

  it('is ended once when two operators end it at the same time', async () => {
    const { body } = await api().ask(cards, { body: card('raced') });
    const at = new Date(Date.now() + 60_000).toISOString();
    const both = await Promise.all([1, 2].map(() => api().ask(`${cards}/${body.id}/end`, { body: { at } })));
    expect(new Set(both.map(({ status }) => status))).toEqual(new Set([200, 409]));
  });
});

describe('a conversion rate', () => {
  it('is created, followed, ended and listed like a rate card', async () => {
    const made = await api().ask(rates, { body: { from: 'usd', to: 'eur', rate: '0.9234500000' } });
    expect(made).toMatchObject({ status: 201, body: { from: 'USD', to: 'EUR', rate: '0.92345', follows: null } });
    const at = new Date(Date.now() + 86_400_000).toISOString();
    const next = await api().ask(rates, { body: { from: 'USD', to: 'EUR', rate: '0.95', effective_from: at } });
    expect(next.body.follows).toMatchObject({ id: made.body.id, effective_to: at });
    const ended = await api().ask(`${rates}/${next.body.id}/end`, { body: {} });
    // Ended before it began: it never holds.
    expect(ended.body).toMatchObject({ effective_from: at, effective_to: at });
    const listed = await api().ask(`${rates}?from=usd&to=eur`);
    expect(listed.body.pagination.total).toBe(2);
    expect((await api().ask(`${rates}?from=EUR`)).body.data).toEqual([]);
  });
});

describe('a rate that starts now', () => {
  it.each([
    [cards, card('sent-twice'), { gpu_hour: '3' }],
    [rates, { from: 'USD', to: 'NOK', rate: '9.5' }, { rate: '9.6' }],
  ])(
    '%s: changes nothing when it repeats the current rate, and ends the current rate otherwise',
    async (path, body, change) => {
      const made = await Promise.all([api().ask(path, { body }), api().ask(path, { body })]);
      expect(made.map(({ status }) => status)).toEqual([201, 201]);
      expect(made[1].body.id).toBe(made[0].body.id);
      const other = await api().ask(path, { body: { ...body, ...change } });
      expect(other.status).toBe(201);
      expect(other.body.id).not.toBe(made[0].body.id);
      const again = await api().ask(path, { body });
      expect([again.status, again.body.id === made[0].body.id]).toEqual([201, false]);
    },
  );
});
