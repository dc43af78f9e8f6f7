import type { Sql } from 'postgres';
import { uuidv7 } from '#base/id.ts';

/** Nodes of several organizations that were held for a year, with gaps, at prices that changed now and then. */
export interface CostsPlan {
  readonly nodes: number;
  /** Intervals of each node. */
  readonly perNode: number;
  /** Nodes of each cluster. */
  readonly perCluster: number;
  /** Dated rate cards of each profile, one after the other. */
  readonly cards: number;
  /** Dated rates from the cards' currency to that of the organizations; 0 converts nothing. */
  readonly rates: number;
  /** Milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** A statement has a time limit. */
const nodesAtOnce = 500;
const clustersPerOrganization = 10;
const profiles = ['h100-8x', 'a100-8x', 'l40s-4x', 'cpu'];

/** Adds nodes, rate cards and conversion rates to whatever is there; the names of the profiles begin with `bench `. */
export async function seedCosts(
  sql: Sql,
  { nodes, perNode, perCluster, cards, rates, fromMs, toMs }: CostsPlan,
): Promise<void> {
  const run = uuidv7();
  const clusters = Math.ceil(nodes / perCluster);
  const organizations = Array.from({ length: Math.ceil(clusters / clustersPerOrganization) }, () => uuidv7());
  const profileOf = (cluster: number): string => `bench ${profiles[cluster % profiles.length] ?? ''} ${run}`;
  const snapshots = Array.from({ length: clusters }, (_, cluster) => {
    const organization = organizations[Math.floor(cluster / clustersPerOrganization)] ?? '';
    return {
      organization_id: organization,
      organization_name: `Bench ${organization.slice(-4)}`,
      cluster_id: `bench_${run}_${cluster}`,
      cluster_name: `cluster ${cluster}`,
      hardware_profile: profileOf(cluster),
    };
  });
  const made = await sql<{ id: number; hardware_profile: string }[]>`
    insert into usage_snapshots (source, organization_id, organization_name, cluster_id, cluster_name, hardware_profile)
    select 'node', organization_id, organization_name, cluster_id, cluster_name, hardware_profile
    from json_to_recordset(${JSON.stringify(snapshots)}::text::json) as t(organization_id uuid, organization_name text,
      cluster_id text, cluster_name text, hardware_profile text)
    returning id, hardware_profile`;
  const used = [...new Set(snapshots.map(({ hardware_profile: profile }) => profile))];
  await seedPrices(sql, used, { cards, fromMs, toMs });
  if (rates > 0) await seedRates(sql, organizations, { rates, fromMs, toMs });
  const ids = `{${made.map(({ id }) => id).join(',')}}`;
  for (let first = 0; first < nodes; first += nodesAtOnce) {
    const last = Math.min(nodes, first + nodesAtOnce) - 1;
    // Nine tenths of its slot a node is held; the last one goes on for every second of them.
    await sql`
      insert into usage_intervals (source, node_id, generation, part, snapshot_id, nodes, gpus, started_ms, ended_ms, estimated)
      select 'node', ${run} || ' ' || n, g, 0, (${ids}::text::integer[])[1 + n / ${perCluster}], 1, 8,
        ${fromMs}::bigint + g * slot + n, case when g = ${perNode - 1} and n % 2 = 0 then null
          else ${fromMs}::bigint + g * slot + n + slot * 9 / 10 end, false
      from generate_series(${first}::integer, ${last}::integer) as n, generate_series(0, ${perNode - 1}) as g,
        (select (${toMs}::bigint - ${fromMs}::bigint) / ${perNode} as slot) as slots`;
  }
  await sql.unsafe('analyze usage_intervals, usage_snapshots');
}

async function seedRates(
  sql: Sql,
  organizations: readonly string[],
  { rates: count, fromMs, toMs }: Pick<CostsPlan, 'rates' | 'fromMs' | 'toMs'>,
): Promise<void> {
  const begin = (rate: number): string => new Date(fromMs + Math.floor(((toMs - fromMs) * rate) / count)).toISOString();
  const rates = Array.from({ length: count }, (_, rate) => ({
    id: uuidv7(),
    rate: `0.9${10 + (rate % 80)}`,
    effective_from: begin(rate),
    effective_to: rate === count - 1 ? null : begin(rate + 1),
  }));
  await sql`
    insert into conversion_rates (id, from_currency, to_currency, rate, effective_from, effective_to, created_at)
    select id, 'USD', 'EUR', rate, effective_from, effective_to, now()
    from json_to_recordset(${JSON.stringify(rates)}::text::json) as t(id uuid, rate numeric, effective_from timestamptz,
      effective_to timestamptz)`;
  await sql`
    insert into billing_currencies (organization_id, currency, updated_at)
    select id, 'EUR', now() from json_array_elements_text(${JSON.stringify(organizations)}::text::json) as t(text),
      lateral (select text::uuid as id) as ids`;
}

async function seedPrices(
  sql: Sql,
  hardwareProfiles: readonly string[],
  { cards: count, fromMs, toMs }: Pick<CostsPlan, 'cards' | 'fromMs' | 'toMs'>,
): Promise<void> {
  const begin = (card: number): string => new Date(fromMs + Math.floor(((toMs - fromMs) * card) / count)).toISOString();
  const cards = hardwareProfiles.flatMap((profile) =>
    Array.from({ length: count }, (_, card) => ({
      id: uuidv7(),
      hardware_profile: profile,
      gpu_hour: `2.${49 + (card % 50)}99999999`,
      effective_from: begin(card),
      effective_to: card === count - 1 ? null : begin(card + 1),
    })),
  );
  await sql`
    insert into rate_cards (id, hardware_profile, currency, node_hour, gpu_hour, effective_from, effective_to, created_at)
    select id, hardware_profile, 'USD', 1.1, gpu_hour, effective_from, effective_to, now()
    from json_to_recordset(${JSON.stringify(cards)}::text::json) as t(id uuid, hardware_profile text, gpu_hour numeric,
      effective_from timestamptz, effective_to timestamptz)`;
}
