import { describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { verifyBooks } from '#core/metering/metering.ts';
import {
  type Body,
  eventually,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));

interface Answer {
  readonly status: number;
  readonly body: Body;
}

async function read(asked: Promise<Response>): Promise<Answer> {
  const response = await asked;
  return { status: response.status, body: await response.json() };
}

/** @param fields beside an amount and a reason; `reference` is a new one */
const adjust = (fields: object, key?: string): Promise<Answer> =>
  read(
    bench.post(
      '/v1/wallet/adjustments',
      { amount: '-1', reason: 'booked twice', reference: uuidv7(), ...fields },
      key === undefined ? {} : { key },
    ),
  );
const balanceOf = async (key: string): Promise<string> => (await bench.wallet(key)).balance;

describe('POST /v1/wallet/adjustments', () => {
  it('returns 403 to the organization itself', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    for (const fields of [{ organization_id: id, amount: '1' }, { amount: '1' }]) {
      const { status, body } = await adjust(fields, key);
      expect([status, body.error.code]).toEqual([403, 'insufficient_scope']);
    }
    expect(await balanceOf(key)).toBe('5');
  });

  it.each([
    [{ amount: '0' }, 'amount', 'must not be 0'],
    [{ amount: '-0.00' }, 'amount', 'must not be 0'],
    [{ amount: -1 }, 'amount', 'a string such as "-2.50"'],
    [{ amount: '--1' }, 'amount', 'plain decimal'],
    [{ amount: '+1' }, 'amount', 'plain decimal'],
    [{ amount: '- 1' }, 'amount', 'plain decimal'],
    [{ amount: '-0.0000000000001' }, 'amount', '12 places'],
    [{ amount: '-1000000000000.1' }, 'amount', 'at least -1000000000000'],
    [{ amount: undefined }, 'amount', 'is missing'],
    [{ reason: undefined }, 'reason', 'is missing'],
    [{ reason: ' ' }, 'reason', 'empty'],
    [{ reference: undefined }, 'reference', 'is missing'],
    [{ note: 'x' }, 'note', 'not a known field'],
  ])('returns 400 for %j', async (fields, param, text) => {
    const { status, body } = await adjust(fields);
    expect([status, body.error.param]).toEqual([400, param]);
    expect(body.error.message).toContain(text);
  });

  it('returns 404 for an unknown organization', async () => {
    for (const id of [formatId('org', uuidv7()), 'org_1']) {
      expect((await adjust({ organization_id: id })).status).toBe(404);
    }
  });

  it('returns 409 with the balance instead of a balance below zero', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const { status, body } = await adjust({ organization_id: id, amount: '-5.000000000001' });
    expect([status, body.error.code, body.error.param]).toEqual([409, 'conflict', 'amount']);
    expect(body.error.message).toContain('the balance is 5 USD');
    expect(await balanceOf(key)).toBe('5');
    const down = await Promise.all(Array.from({ length: 8 }, () => adjust({ organization_id: id, amount: '-1.5' })));
    expect(down.map((answer) => answer.status).toSorted((a, b) => a - b)).toEqual([
      201, 201, 201, 409, 409, 409, 409, 409,
    ]);
    expect(await balanceOf(key)).toBe('0.5');
  });

  it('returns 409 with the sum that running requests hold when the balance would fall below it', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const leaving = new AbortController();
    const long = { max_tokens: 4000, standin: { hang: 'before_headers' } };
    const running = bench.chat(long, { key, signal: leaving.signal });
    const held = await eventually(async () => {
      const { held: now } = await bench.wallet(key);
      return now === '0' ? null : now;
    });
    const { status, body } = await adjust({ organization_id: id, amount: '-5' });
    expect([status, body.error.code, body.error.param]).toEqual([409, 'conflict', 'amount']);
    expect(body.error.message).toContain(
      `the balance is 5 USD, and an adjustment cannot reduce it below the ${held} USD`,
    );
    expect(await balanceOf(key)).toBe('5');
    const free = (5_000_000 - Number(held) * 1_000_000) / 1_000_000;
    expect((await adjust({ organization_id: id, amount: `-${free}` })).status).toBe(201);
    expect((await adjust({ organization_id: id, amount: '-0.000001' })).status).toBe(409);
    expect((await adjust({ organization_id: id, amount: '0.000001' })).status).toBe(201);
    leaving.abort();
    await expect(running).rejects.toThrow('aborted');
    await expect.poll(async () => (await bench.wallet(key)).held).toBe('0');
    expect((await adjust({ organization_id: id, amount: `-${await balanceOf(key)}` })).status).toBe(201);
  });

  it('posts each reference once, and rejects the reference for anything else', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const fields = { organization_id: id, amount: '-2', reference: 'mended' };
    expect((await adjust(fields)).status).toBe(201);
    expect((await adjust(fields)).status).toBe(200);
    expect((await adjust({ ...fields, amount: '2' })).status).toBe(422);
    const credit = { organization_id: id, amount: '2', reference: 'mended' };
    expect((await read(bench.post('/v1/wallet/credits', credit))).status).toBe(422);
    expect(await balanceOf(key)).toBe('3');
  });

  it('writes ledger, statement, audit entry and chain, with the reason', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const answer = await adjust({ organization_id: id, amount: '-1.25', reason: 'a “refund”\u00e9', reference: 'r 1' });
    expect(answer.status).toBe(201);
    const entry = {
      id: expect.stringMatching(/^le_/),
      object: 'ledger_entry',
      type: 'adjustment',
      amount: '-1.25',
      balance_after: '3.75',
      request_id: null,
      requests: null,
      reference: 'r 1',
      note: 'a “refund”\u00e9',
      created_at: expect.any(Number),
    };
    expect(answer.body).toEqual(entry);
    const ledger = await read(bench.gateway.request('/v1/wallet/ledger?type=adjustment', { key }));
    expect(ledger.body.data).toEqual([entry]);
    const month = new Date(answer.body.created_at * 1000).toISOString().slice(0, 7);
    const statement = await read(bench.gateway.request(`/v1/wallet/statements/${month}`, { key }));
    expect(statement.body).toMatchObject({ adjustments: '-1.25', closing_balance: '3.75' });
    // The opening credit came in the month before where that has just ended.
    expect(new Set([statement.body.opening_balance, statement.body.credits])).toEqual(new Set(['0', '5']));
    expect(statement.body.bookings.at(-1)).toMatchObject({ type: 'adjustment', note: 'a “refund”\u00e9' });
    const audit = await read(bench.gateway.request('/v1/audit?action=wallet.adjusted', { key }));
    expect(audit.body.data).toMatchObject([
      { target_id: id, before: { balance: '5' }, after: { balance: '3.75', amount: '-1.25', reference: 'r 1' } },
    ]);
    expect((await verifyBooks(bench.gateway.db)).findings).toEqual([]);
  });

  it('applies to the next request', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const status = async (): Promise<number> => {
      const answer = await bench.chat({}, { key });
      await answer.text();
      return answer.status;
    };
    expect(await status()).toBe(200);
    await adjust({ organization_id: id, amount: `-${await balanceOf(key)}` });
    expect(await status()).toBe(402);
    await adjust({ organization_id: id, amount: '1' });
    expect(await status()).toBe(200);
  });
});
