import { describe, expect, it } from 'vitest';
import { formatId } from '#base/id.ts';
import { createWriter, type UsageRecord } from '#core/metering/metering.ts';
import { createWallet } from '#core/wallet/wallet.ts';
import { systemClock } from '#base/clock.ts';
import { createAudit } from '#core/audit/audit.ts';
import { type Body, recordOf, useGateway } from '#test/metering/recorded-usage.ts';

describe('GET /v1/wallet/ledger', () => {
  const bench = useGateway();

  const writer = () => {
    const { db } = bench.gateway;
    const wallet = createWallet({ db, clock: systemClock, audit: createAudit({ clock: systemClock }) });
    return createWriter({ db, clock: systemClock, wallet });
  };

  /** As retention does. */
  async function forget(organizationId: string): Promise<void> {
    await bench.gateway.db.sql`
      DELETE FROM usage_requests WHERE organization = (SELECT code FROM usage_ids WHERE id = ${organizationId})`;
  }

  async function readAll(key: string, query: string): Promise<{ lines: Body[]; pages: number }> {
    const lines: Body[] = [];
    let cursor: string | null = null;
    let pages = 0;
    do {
      const page: Body = await bench.ask(
        `/v1/wallet/ledger?${query}${cursor === null ? '' : `&cursor=${cursor}`}`,
        key,
      );
      lines.push(...page.data);
      cursor = page.next_cursor;
      pages += 1;
    } while (cursor !== null);
    return { lines, pages };
  }

  it.each(['1 x', '1 00000000-0000-0000-0000-000000000000 2', 'x', '-1'])(
    'returns 400 for the cursor of "%s"',
    async (position) => {
      const organization = await bench.openOrganization();
      const cursor = Buffer.from(position).toString('base64url');
      const answer: Body = await bench.ask(`/v1/wallet/ledger?cursor=${cursor}`, organization.managementKey, 400);
      expect(answer.error.message).toContain('is not a cursor of this list');
    },
  );

  it('shows a line for each request of a batch, with its own running balance, page by page', async () => {
    const organization = await bench.openOrganization();
    const batches = [3, 1, 5, 2].map((size) =>
      Array.from({ length: size }, (_, i) => recordOf(organization, Date.now() + i)),
    );
    for (const batch of batches) await writer().write(batch);
    const booked = batches.flatMap((batch) => batch.toSorted((a, b) => (a.id < b.id ? -1 : 1))).toReversed();
    for (const limit of [1, 2, 3, 4, 7, 50]) {
      const { lines, pages } = await readAll(organization.managementKey, `limit=${limit}`);
      expect(lines.slice(0, -1)).toEqual(
        booked.map((record: UsageRecord, i) => ({
          id: formatId('le', record.id),
          object: 'ledger_entry',
          type: 'usage',
          amount: '-0.000003',
          balance_after: (1_000_000_000 - (booked.length - i) * 0.000003).toFixed(6).replace(/0+$/, ''),
          request_id: record.id,
          requests: 1,
          reference: null,
          note: null,
          created_at: expect.any(Number),
        })),
      );
      expect(lines.at(-1)).toMatchObject({ type: 'credit', requests: null });
      expect(pages).toBe(Math.ceil(12 / limit));
    }
    expect((await readAll(organization.managementKey, 'type=credit')).lines).toHaveLength(1);
    expect((await readAll(organization.managementKey, 'type=usage&limit=4')).lines).toHaveLength(11);
  });

  it('shows one line for a batch whose records are no longer kept', async () => {
    const organization = await bench.openOrganization();
    await writer().write([1, 2, 3].map(() => recordOf(organization, Date.now())));
    await writer().write([recordOf(organization, Date.now())]);
    await forget(organization.id);
    const { lines } = await readAll(organization.managementKey, 'limit=2');
    expect(lines.map(({ amount, requests, request_id }) => [amount, requests, request_id === null])).toEqual([
      ['-0.000003', 1, false],
      ['-0.000009', 3, true],
      ['1000000000', null, true],
    ]);
  });

  it('ends when the records of a partly shown batch are deleted between two pages', async () => {
    const organization = await bench.openOrganization();
    await writer().write([1, 2, 3].map(() => recordOf(organization, Date.now())));
    const first: Body = await bench.ask('/v1/wallet/ledger?limit=2', organization.managementKey);
    await forget(organization.id);
    const rest: Body = await bench.ask(`/v1/wallet/ledger?cursor=${first.next_cursor}`, organization.managementKey);
    expect(rest.data).toMatchObject([{ type: 'credit' }]);
  });
});
