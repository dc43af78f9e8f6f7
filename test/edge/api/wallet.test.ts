import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';

interface Answer {
  readonly status: number;
  /** JSON of any shape; tests compare it. */
  readonly body: ReturnType<JSON['parse']>;
}

describe('the wallet API', () => {
  let gateway: TestGateway;

  beforeAll(async () => {
    gateway = await startGateway();
  });

  afterAll(() => gateway.stop());

  async function ask(path: string, options: Parameters<TestGateway['request']>[1] = {}): Promise<Answer> {
    const response = await gateway.request(path, options);
    return { status: response.status, body: await response.json() };
  }

  const credit = (body: unknown, key?: string): Promise<Answer> =>
    ask('/v1/wallet/credits', { body, ...(key !== undefined && { key }) });

  async function openOrganization(): Promise<{ id: string; key: string }> {
    const { body } = await ask('/v1/organizations', { body: { name: `Organization ${uuidv7()}` } });
    return { id: body.id, key: body.management_key };
  }

  it('returns 401 without a key', async () => {
    for (const path of ['/v1/wallet', '/v1/wallet/ledger']) expect((await ask(path, { key: null })).status).toBe(401);
    expect((await ask('/v1/wallet/credits', { key: null, body: {} })).status).toBe(401);
  });

  it("returns 403 for credits by an inference key or an organization's key", async () => {
    const { key } = await openOrganization();
    const made = await ask('/v1/keys', { key, body: { name: 'app' } });
    for (const secret of [key, made.body.secret]) {
      const { status, body } = await credit({ amount: '1', reference: 'mine' }, secret);
      expect([status, body.error.code, body.error.type]).toEqual([403, 'insufficient_scope', 'auth_error']);
    }
    expect((await ask('/v1/wallet', { key })).body.balance).toBe('0');
  });

  it.each([
    [{ amount: 5 }, 'amount', 'must be a string'],
    [{ amount: '0' }, 'amount', 'above 0'],
    [{ amount: '0.000000000000' }, 'amount', 'above 0'],
    [{ amount: '-1' }, 'amount', 'above 0'],
    [{ amount: '1e3' }, 'amount', 'plain decimal'],
    [{ amount: '+1' }, 'amount', 'plain decimal'],
    [{ amount: ' 1' }, 'amount', 'plain decimal'],
    [{ amount: '1,5' }, 'amount', 'plain decimal'],
    [{ amount: '.5' }, 'amount', 'plain decimal'],
    [{ amount: '0.0000000000001' }, 'amount', '12 places'],
    [{ amount: '1000000000000.000000000001' }, 'amount', 'at most 1000000000000'],
    [{ amount: true }, 'amount', 'must be a string'],
    [{ amount: undefined }, 'amount', 'is missing'],
    [{ reference: '' }, 'reference', 'empty'],
    [{ reference: 'a\0b' }, 'reference', 'control'],
    [{ reference: undefined }, 'reference', 'missing'],
    [{ reference: 7 }, 'reference', 'string'],
    [{ note: 'a\0b' }, 'note', 'NUL'],
    [{ currency: 'EUR' }, 'currency', 'not a known field'],
  ])('returns 400 for a credit with %j', async (fields, param, text) => {
    const { status, body } = await credit({ amount: '1', reference: 'refused', ...fields });
    expect([status, body.error.code, body.error.param]).toEqual([400, 'invalid_request_error', param]);
    expect(body.error.message).toContain(text);
    expect(body.error.message).not.toContain('Invalid input');
  });

  it('returns 404 for a credit for an unknown organization', async () => {
    for (const id of [formatId('org', uuidv7()), 'org_1', 'nonsense']) {
      const { status, body } = await credit({ organization_id: id, amount: '1', reference: 'nowhere' });
      expect([status, body.error.code]).toEqual([404, 'not_found']);
    }
  });

  it('accepts the organization in the body or the query, also for new keys, and rejects two that differ', async () => {
    const { id, key } = await openOrganization();
    const other = await openOrganization();
    const fields = { amount: '1', reference: 'by query' };
    expect((await ask(`/v1/wallet/credits?organization_id=${id}`, { body: fields })).status).toBe(201);
    const again = { ...fields, organization_id: id };
    expect((await ask(`/v1/wallet/credits?organization_id=${id}`, { body: again })).status).toBe(200);
    const named = { name: 'in the body', organization_id: id };
    expect((await ask('/v1/keys', { body: named })).status).toBe(201);
    expect((await ask('/v1/keys', { key })).body.data).toMatchObject([{ name: 'in the body' }, {}]);
    expect((await ask('/v1/keys', { key: other.key, body: named })).status).toBe(404);
    for (const [path, body] of [
      ['/v1/keys', named],
      ['/v1/wallet/credits', again],
    ] as const) {
      const refused = await ask(`${path}?organization_id=${other.id}`, { body });
      expect([refused.status, refused.body.error.param]).toEqual([400, 'organization_id']);
      expect(refused.body.error.message).toContain('must be the same in the body and in the query');
    }
    expect((await ask('/v1/wallet', { key })).body.balance).toBe('1');
    const unknown = await ask('/v1/pricing?organization_id=org_1');
    expect(unknown.body.error.message).toBe('organization_id: is unknown; this endpoint has no query parameters');
  });

  it('returns 422 for another amount with the same reference', async () => {
    const { id, key } = await openOrganization();
    await credit({ organization_id: id, amount: '1.5', reference: 'invoice 7' });
    const { status, body } = await credit({ organization_id: id, amount: '2', reference: 'invoice 7' });
    expect([status, body.error.code, body.error.param]).toEqual([422, 'unprocessable', 'reference']);
    expect(body.error.message).toContain('1.5 USD');
    expect((await ask('/v1/wallet', { key })).body.balance).toBe('1.5');
  });

  it('returns 400 for an invalid cursor, limit or type', async () => {
    for (const query of ['cursor=%00', 'cursor=bm8', 'limit=501', 'type=gift', 'kind=usage']) {
      const { status, body } = await ask(`/v1/wallet/ledger?${query}`);
      expect([query, status]).toEqual([query, 400]);
      expect(body.error.param).toBe(query.split('=')[0]);
    }
  });

  it('posts a credit once: 201, then 200 with the same entry, also for parallel callers', async () => {
    const { id, key } = await openOrganization();
    const request = { organization_id: id, amount: '25.00', reference: 'invoice 1', note: 'May' };
    const answers = await Promise.all(Array.from({ length: 12 }, () => credit(request)));
    expect(answers.map(({ status }) => status).toSorted((a, b) => b - a)).toEqual([201, ...Array(11).fill(200)]);
    const [first] = answers;
    expect(answers.every(({ body }) => JSON.stringify(body) === JSON.stringify(first?.body))).toBe(true);
    expect(first?.body).toEqual({
      id: expect.stringMatching(/^le_[0-9a-f]{32}$/),
      object: 'ledger_entry',
      type: 'credit',
      amount: '25',
      balance_after: '25',
      request_id: null,
      requests: null,
      reference: 'invoice 1',
      note: 'May',
      created_at: expect.any(Number),
    });
    const wallet = await ask('/v1/wallet', { key });
    expect(wallet.body).toEqual({ object: 'wallet', balance: '25', held: '0', available: '25', currency: 'USD' });
  });

  it("credits the caller's own organization by default, with an audit entry", async () => {
    const before = (await ask('/v1/wallet')).body.balance;
    const { status, body } = await credit({ amount: '0.000000000001', reference: 'smallest' });
    expect([status, body.amount, before]).toEqual([201, '0.000000000001', '10']);
    expect((await ask('/v1/wallet')).body.balance).toBe('10.000000000001');
    const rows = await gateway.db
      .sql`SELECT * FROM audit_log WHERE action = 'wallet.credited' ORDER BY id DESC LIMIT 1`;
    expect(rows).toMatchObject([{ actor_key_id: expect.any(String), actor_user_id: expect.any(String) }]);
    expect(rows).toMatchObject([{ after: { amount: '0.000000000001', reference: 'smallest', ledger_entry: body.id } }]);
  });

  it('shows an inference key the balance and the ledger of its organization, newest first', async () => {
    const { id, key } = await openOrganization();
    const made = await ask('/v1/keys', { key, body: { name: 'app' } });
    for (let i = 1; i <= 3; i += 1) await credit({ organization_id: id, amount: `${i}`, reference: `credit ${i}` });
    const options = { key: made.body.secret };
    expect((await ask('/v1/wallet', options)).body.balance).toBe('6');
    const first = await ask('/v1/wallet/ledger?limit=2', options);
    expect(first.body).toMatchObject({ object: 'list', has_more: true });
    const second = await ask(`/v1/wallet/ledger?limit=2&cursor=${first.body.next_cursor}`, options);
    expect(second.body).toMatchObject({ has_more: false, next_cursor: null });
    const entries = [...first.body.data, ...second.body.data];
    expect(entries.map((entry) => [entry.reference, entry.balance_after])).toEqual([
      ['credit 3', '6'],
      ['credit 2', '3'],
      ['credit 1', '1'],
    ]);
    expect((await ask('/v1/wallet/ledger?type=usage', options)).body.data).toEqual([]);
  });
});
