import { describe, expect, it } from 'vitest';
import { parseConfig } from '#base/config/read-config.ts';
import { verifyBooks } from '#core/metering/metering.ts';
import { type Body, recordOf, useGateway } from '#test/metering/recorded-usage.ts';

const dayMs = 86_400_000;

describe('usage retention', () => {
  const bench = useGateway();

  it('accepts a whole number of days, and no value to keep everything', () => {
    expect(() => parseConfig({ HEADGATE_USAGE_DAYS: '0' })).toThrow(
      'HEADGATE_USAGE_DAYS: must be between 1 and 36500.',
    );
    expect(parseConfig({ HEADGATE_USAGE_DAYS: '400' }).storage.usageDays).toBe(400);
    expect(parseConfig({}).storage.usageDays).toBeNull();
  });

  it('keeps the ledger with a summary line, the sums, and a ledger that verifies', async () => {
    const organization = await bench.openOrganization();
    const key = organization.managementKey;
    const old = Date.now() - 150 * dayMs;
    const start = old - (old % dayMs);
    await Promise.all([1, 2, 3].map((hour) => bench.metering.settle(recordOf(organization, start + hour * 3_600_000))));
    await bench.metering.settle(recordOf(organization, Date.now()));
    await bench.metering.ensurePartitions();
    const usage = async (): Promise<Body[]> => {
      const ledger: Body = await bench.ask('/v1/wallet/ledger?type=usage', key);
      return ledger.data.map(({ requests, amount }: Body) => [requests, amount]);
    };
    const span = `from=${new Date(start).toISOString()}&to=${new Date(start + dayMs).toISOString()}`;
    const summary = await bench.ask(`/v1/usage/summary?${span}&group_by=hour`, key);
    expect(summary.totals.num_model_requests).toBe(3);
    const whole = await usage();
    expect(whole).toHaveLength(4);
    await bench.metering.dropOldPartitions(60);

    // Those that arrived while another batch was written share an entry.
    const left = await usage();
    expect(left.length).toBeLessThan(4);
    expect(left.reduce((sum, [requests]) => sum + Number(requests), 0)).toBe(4);
    expect(await bench.ask(`/v1/usage/summary?${span}&group_by=hour`, key)).toEqual(summary);
    expect((await bench.ask(`/v1/usage/requests?to=2026-01-01`, key)).data).toEqual([]);
    expect((await bench.ask('/v1/usage/requests', key)).data).toHaveLength(1);
    const cut = `from=${new Date(start + 1000).toISOString()}`;
    const refused = await bench.ask(`/v1/usage/summary?${cut}`, key, 400);
    expect(refused.error).toMatchObject({ param: 'from', message: expect.stringContaining('must be a whole hour') });
    const proof = await verifyBooks(bench.gateway.db);
    expect(proof).toMatchObject({ findings: [] });
    expect(proof.entriesBeforeRetention).toBe(left.length - 1);
  });
});
