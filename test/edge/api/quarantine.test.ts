import { describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { verifyBooks, type UsageRecord } from '#core/metering/metering.ts';
import { recordOf, type TestOrganization, useGateway, type Body } from '#test/metering/recorded-usage.ts';

describe('quarantined records', () => {
  const bench = useGateway();

  async function ask(path: string, { method = 'GET', body, key = bench.gateway.key }: Ask = {}): Promise<Answer> {
    const answer = await bench.gateway.request(`/v1/admin/quarantine${path}`, {
      method,
      key,
      ...(body !== undefined && { body }),
    });
    return { status: answer.status, body: await answer.json() };
  }

  interface Ask {
    readonly method?: string;
    readonly body?: unknown;
    readonly key?: string | null;
  }

  interface Answer {
    readonly status: number;
    readonly body: Body;
  }

  /** A record whose own fault it is: PostgreSQL has no U+0000. */
  async function quarantine(organization: TestOrganization, more: Partial<UsageRecord> = {}): Promise<UsageRecord> {
    const record = recordOf(organization, Date.now(), { clientRequestId: 'a\0b', id: uuidv7(), ...more });
    await expect(bench.metering.settle(record)).rejects.toThrow('unsupported Unicode escape sequence');
    return record;
  }

  /** As if the reason for its rejection no longer existed. */
  const mend = ({ id }: UsageRecord) => bench.gateway.db.sql`
    update usage_quarantine set record = replace(record, 'a\\u0000b', 'ab') where id = ${id}`;

  const balanceOf = async ({ managementKey }: TestOrganization): Promise<string> =>
    (await bench.ask('/v1/wallet', managementKey)).balance;

  it('are accessible to platform administrators only', async () => {
    const { managementKey } = await bench.openOrganization();
    const { id } = await quarantine(await bench.openOrganization());
    for (const [path, method] of [
      ['', 'GET'],
      [`/${id}`, 'GET'],
      [`/${id}/retry`, 'POST'],
      [`/${id}/discard`, 'POST'],
    ]) {
      expect((await ask(path ?? '', { method: method ?? '', key: managementKey })).status).toBe(403);
      expect((await ask(path ?? '', { method: method ?? '', key: null })).status).toBe(401);
    }
  });

  it('return 404 when unknown, and 400 for an invalid reason', async () => {
    for (const id of ['x', uuidv7()]) {
      expect((await ask(`/${id}`)).status).toBe(404);
      expect((await ask(`/${id}/retry`, { method: 'POST' })).status).toBe(404);
      expect((await ask(`/${id}/discard`, { method: 'POST', body: { reason: 'x' } })).status).toBe(404);
    }
    const { id } = await quarantine(await bench.openOrganization());
    expect((await ask(`/${id}/discard`, { method: 'POST', body: { reason: ' ' } })).status).toBe(400);
  });

  it('are listed in pages, newest first, and shown in full', async () => {
    const organization = await bench.openOrganization();
    const made: string[] = [];
    for (let i = 0; i < 3; i += 1) made.unshift((await quarantine(organization)).id);
    const first = await ask('?limit=2');
    expect(first.body.data.map(({ id }: Body) => id)).toEqual(made.slice(0, 2));
    const second = await ask(`?limit=1&cursor=${first.body.next_cursor}`);
    expect(second.body.data[0]).toMatchObject({
      id: made[2],
      organization_id: formatId('org', organization.id),
      sql_state: '22P05',
      error: expect.stringContaining('unsupported Unicode escape sequence'),
    });
    const whole = await ask(`/${made[2]}`);
    expect(whole.body.record).toMatchObject({ id: made[2], clientRequestId: 'a\0b', costPicoUsd: '3000000' });
  });

  it('stay with the reason when they are rejected again', async () => {
    const { id } = await quarantine(await bench.openOrganization());
    const answer = await ask(`/${id}/retry`, { method: 'POST' });
    expect(answer).toMatchObject({ status: 409, body: { error: { message: expect.stringContaining('stays in') } } });
    expect((await ask(`/${id}`)).status).toBe(200);
  });

  it('are posted once by concurrent retries, and change the balance at once', async () => {
    const organization = await bench.openOrganization();
    const before = await balanceOf(organization);
    const record = await quarantine(organization);
    expect(await balanceOf(organization)).toBe(before);
    await mend(record);
    const answers = await Promise.all(Array.from({ length: 4 }, () => ask(`/${record.id}/retry`, { method: 'POST' })));
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 404, 404, 404]);
    expect(answers.find(({ status }) => status === 200)?.body).toMatchObject({ booked: true, charged: '0.000003' });
    expect(await balanceOf(organization)).toBe('999999999.999997');
    expect(await bench.ask(`/v1/usage/requests/${record.id}`, organization.managementKey)).toMatchObject({
      cost: '0.000003',
    });
    expect((await verifyBooks(bench.gateway.db)).findings).toEqual([]);
    expect(await auditOf(record.id)).toMatchObject([{ action: 'quarantined_record.booked' }]);
  });

  it('are not charged again when a retry ended between posting and removal', async () => {
    const organization = await bench.openOrganization();
    const record = await quarantine(organization);
    await mend(record);
    await bench.metering.settle({ ...record, clientRequestId: 'ab' });
    const answer = await ask(`/${record.id}/retry`, { method: 'POST' });
    expect(answer).toMatchObject({ status: 200, body: { charged: '0' } });
    expect(await balanceOf(organization)).toBe('999999999.999997');
  });

  const claimOf = ({ keyId }: TestOrganization) => ({
    keyId,
    idempotencyKey: 'once-and-no-more',
    bodyHash: Buffer.alloc(32, 7),
    expiresAt: new Date(Date.now() + 86_400_000).toISOString(),
    keeps: true,
    answer: Buffer.from('what-was-answered'),
  });

  it('keep their Idempotency-Key, which no response shows, without the stored answer', async () => {
    const organization = await bench.openOrganization();
    const record = await quarantine(organization, { claim: claimOf(organization) });
    const [row] = await bench.gateway.db.sql`select record from usage_quarantine where id = ${record.id}`;
    expect(JSON.parse(String(row?.['record'])).claim).toMatchObject({
      idempotencyKey: 'once-and-no-more',
      answer: null,
    });
    expect((await ask(`/${record.id}`)).body.record).not.toHaveProperty('claim');
    await mend(record);
    await ask(`/${record.id}/retry`, { method: 'POST' });
    const [entry] = await auditOf(record.id);
    expect(JSON.stringify(entry)).not.toContain('once-and-no-more');
  });

  it('charge nothing after a repeat of their Idempotency-Key was charged', async () => {
    const organization = await bench.openOrganization();
    const claim = claimOf(organization);
    const record = await quarantine(organization, { claim });
    await bench.metering.settle(recordOf(organization, Date.now(), { claim, id: uuidv7() }));
    await mend(record);
    const answer = await ask(`/${record.id}/retry`, { method: 'POST' });
    expect(answer).toMatchObject({ status: 200, body: { booked: true, charged: '0' } });
    expect(await balanceOf(organization)).toBe('999999999.999997');
    expect((await verifyBooks(bench.gateway.db)).findings).toEqual([]);
  });

  it('are charged when posted first, and a repeat of their Idempotency-Key is then not charged', async () => {
    const organization = await bench.openOrganization();
    const claim = claimOf(organization);
    const record = await quarantine(organization, { claim });
    await mend(record);
    const answer = await ask(`/${record.id}/retry`, { method: 'POST' });
    expect(answer).toMatchObject({ status: 200, body: { charged: '0.000003' } });
    await bench.metering.settle(recordOf(organization, Date.now(), { claim, id: uuidv7() }));
    const [row] = await bench.gateway.db.sql`select sum(cost)::text as cost from usage_records
      where organization_id = ${organization.id}`;
    expect(row?.['cost']).toBe('3000000');
    expect((await verifyBooks(bench.gateway.db)).findings).toEqual([]);
  });

  it('cannot be discarded when a retry ended between posting and removal, and say to retry', async () => {
    const organization = await bench.openOrganization();
    const record = await quarantine(organization);
    await mend(record);
    await bench.metering.settle({ ...record, clientRequestId: 'ab' });
    const body = { reason: 'a test of ours' };
    const answer = await ask(`/${record.id}/discard`, { method: 'POST', body });
    expect(answer).toMatchObject({
      status: 409,
      body: { error: { message: expect.stringContaining('Retry the record') } },
    });
    expect(await auditOf(record.id)).toEqual([]);
    const retried = await ask(`/${record.id}/retry`, { method: 'POST' });
    expect(retried).toMatchObject({ status: 200, body: { charged: '0' } });
    expect((await ask(`/${record.id}`)).status).toBe(404);
  });

  it('are discarded with a reason that the audit log keeps with the record', async () => {
    const organization = await bench.openOrganization();
    const record = await quarantine(organization);
    const body = { reason: 'a test of ours' };
    expect((await ask(`/${record.id}/discard`, { method: 'POST', body })).body).toMatchObject({ discarded: true });
    expect((await ask(`/${record.id}`)).status).toBe(404);
    expect(await balanceOf(organization)).toBe('1000000000');
    const [entry] = await auditOf(record.id);
    expect(entry).toMatchObject({ action: 'quarantined_record.discarded', after: body });
    expect(JSON.parse(entry?.['before'].record)).toMatchObject({ id: record.id });
  });

  const auditOf = (id: string) =>
    bench.gateway.db.sql`select action, before, after from audit_log where target_id = ${id}`;
});
