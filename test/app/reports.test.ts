import postgres from 'postgres';
import { describe, expect, it } from 'vitest';
import { type Body, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** Keys of one organization, each of which may have four requests at once. */
const keysOfOne = 4;
const reportsOfKey = 6;

describe('slow reports', () => {
  const bench = useInference(() => ({
    engines: { chat: standinFile('chat') },
    env: { HEADGATE_REPORTS_POOL: '2', HEADGATE_REPORT_SECONDS: '1' },
  }));

  async function openOrganization(name: string): Promise<{ id: string; key: string; appKeys: string[] }> {
    const opened: Body = await (await bench.gateway.request('/v1/organizations', { body: { name } })).json();
    const { id, management_key: key } = opened;
    await bench.gateway.request('/v1/wallet/credits', { body: { organization_id: id, amount: '1', reference: 'a' } });
    const appKeys: string[] = [];
    for (let i = 0; i < keysOfOne; i += 1) {
      const body = { name: `app ${i}`, requests_per_minute: null, max_concurrency: null };
      appKeys.push(((await (await bench.gateway.request('/v1/keys', { key, body })).json()) as Body).secret);
    }
    return { id, key, appKeys };
  }

  /** Reports that read a table stand still while somebody has it for himself. */
  async function whileLocked(table: string, run: () => Promise<void>): Promise<void> {
    const sql = postgres(bench.gateway.databaseUrl, { max: 1, onnotice: () => undefined });
    try {
      await sql.begin(async (tx) => {
        await tx.unsafe(`lock table ${table} in access exclusive mode`);
        await run();
      });
    } finally {
      await sql.end();
    }
  }

  const stuck = async (): Promise<number> => {
    const [row] = await bench.gateway.db.sql`
      select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    return Number(row?.['n']);
  };

  it('delay no other organization and no chat when all keys of one organization request them', async () => {
    const loud = await openOrganization('Loud');
    const quiet = await openOrganization('Quiet');
    let answers: Promise<Response[]> = Promise.resolve([]);
    await whileLocked('usage_refusals', async () => {
      const asked = loud.appKeys.flatMap((key) =>
        Array.from({ length: reportsOfKey }, () => bench.gateway.request('/v1/usage/summary?group_by=day', { key })),
      );
      answers = Promise.all(asked);
      await eventually(async () => ((await stuck()) > 0 ? true : null));
      for (const key of quiet.appKeys) {
        const answer = await bench.chat({}, { key });
        expect(answer.status).toBe(200);
        await answer.text();
      }
      const booked = await bench.gateway.db.sql`
        select count(*)::int as n from usage_records where organization_id = ${quietUuid(quiet.id)}`;
      expect(booked[0]?.['n']).toBe(quiet.appKeys.length);
      // Nor does it take away all connections of reports.
      const page: Body = await (await bench.gateway.request('/v1/usage/requests', { key: quiet.key })).json();
      expect(page.data).toHaveLength(quiet.appKeys.length);
      await answers;
    });
    const all = await answers;
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([503]));
    for (const answer of all) {
      expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
      const { error }: Body = await answer.json();
      expect(error.code).toBe('overloaded');
    }
    const after = await bench.gateway.request('/v1/usage/summary?group_by=day', { key: loud.key });
    expect(after.status).toBe(200);
  });
});

const quietUuid = (id: string): string => id.slice(4).replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, '$1-$2-$3-$4-$5');
