import { afterAll, beforeAll, beforeEach } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog, type Log } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { systemClock } from '#base/clock.ts';
import {
  type AddResult,
  type ConversionRate,
  type CostReport,
  type Costs,
  createCosts,
  type OrganizationRef,
  parsePrice,
  parseWindow,
  type RateCard,
  type Scaled,
  type Window,
  type WindowQuery,
} from '#core/costs/costs.ts';
import { createTestDatabase } from '#test/database.ts';

/** Milliseconds since the Unix epoch of a time in UTC: "2026-03-15" or "2026-03-15 06:30". */
export function at(text: string): number {
  const ms = Date.parse(text.includes(' ') ? `${text.replace(' ', 'T')}Z` : `${text}T00:00:00Z`);
  if (Number.isNaN(ms)) throw new Error(`${text} is no time`);
  return ms;
}

export function price(text: string): Scaled {
  const value = parsePrice(text);
  if (value === null) throw new Error(`${text} is no price`);
  return value;
}

export function windowOf(query: WindowQuery): Window {
  const result = parseWindow(query);
  if (result.kind !== 'window') throw new Error(JSON.stringify(result.problems));
  return result.window;
}

/** Nodes of one cluster that are held for the same time. */
export interface Use {
  readonly organization: OrganizationRef;
  readonly cluster?: string;
  readonly profile?: string;
  readonly nodes?: number;
  readonly gpus?: number;
  readonly from: string;
  /** Absent: until now and on. */
  readonly to?: string;
}

export interface CardText {
  readonly profile?: string;
  readonly currency?: string;
  readonly nodeHour?: string;
  readonly gpuHour?: string;
  readonly from?: string;
  readonly to?: string;
}

export interface CostsBench {
  readonly db: Db;
  readonly costs: Costs;
  readonly by: { readonly organizationId: string; readonly author: typeof systemAuthor };
  organization(name?: string): OrganizationRef;
  use(use: Use): Promise<void>;
  card(card: CardText): Promise<RateCard>;
  rate(pair: string, rate: string, from?: string): Promise<ConversionRate>;
  bill(organization: OrganizationRef, currency: string | null): Promise<void>;
  /** Reports these organizations; all without any. */
  report(window: WindowQuery, ...organizations: OrganizationRef[]): Promise<CostReport>;
}

const profileOf = 'h100-8x';

/** The room on a database of this test file's own, emptied before each test. */
export function useCosts(options: { readonly linesMax?: number; readonly log?: Log } = {}): CostsBench {
  const open: { db?: Db; costs?: Costs; drop?: () => Promise<void> } = {};
  const by = { organizationId: uuidv7(), author: systemAuthor };

  beforeAll(async () => {
    const database = await createTestDatabase();
    const db = connectDb(database.url, { poolMax: 8 });
    const audit = createAudit({ clock: systemClock });
    open.db = db;
    open.costs = createCosts({ db, audit, log: options.log ?? createLog('silent'), ...options });
    open.drop = async () => {
      await db.close();
      await database.drop();
    };
  });
  beforeEach(async () => {
    await bench.db
      .sql`truncate usage_allocations, cluster_moves, usage_intervals, usage_snapshots, node_labels, rate_cards,
      conversion_rates, billing_currencies`;
  });
  afterAll(() => open.drop?.());

  const bench: CostsBench = {
    get db() {
      if (open.db === undefined) throw new Error('the database is opened before the tests');
      return open.db;
    },
    get costs() {
      if (open.costs === undefined) throw new Error('the database is opened before the tests');
      return open.costs;
    },
    by,
    organization: (name = 'Acme') => ({ id: uuidv7(), name }),
    async use({ organization, cluster = 'one', profile = profileOf, nodes = 1, gpus = 8, from, to }) {
      const ref = { id: `cluster_${cluster}`, name: cluster, organization };
      const keys = Array.from({ length: nodes }, () => ({ nodeId: `node_${uuidv7()}`, generation: 1 }));
      await bench.db.orm.transaction(async (tx) => {
        const shape = { nodeName: 'node', hardwareProfile: profile, gpus, atMs: at(from) };
        await bench.costs.allocate(
          tx,
          ref,
          keys.map((key) => ({ ...key, ...shape })),
        );
        if (to === undefined) return;
        await bench.costs.release(
          tx,
          ref.id,
          keys.map((key) => ({ ...key, atMs: at(to), estimated: false })),
        );
      });
    },
    async card({ profile = profileOf, currency = 'USD', nodeHour, gpuHour, from = '2020-01-01', to }) {
      const input = {
        hardwareProfile: profile,
        currency,
        nodeHour: nodeHour === undefined ? null : price(nodeHour),
        gpuHour: gpuHour === undefined ? null : price(gpuHour),
        fromMs: at(from),
        toMs: to === undefined ? null : at(to),
        retroactive: true,
      };
      return made(await bench.costs.rateCards.add(input, by));
    },
    async rate(pair, rate, from = '2020-01-01') {
      const [source = '', target = ''] = pair.split('→');
      const dates = { fromMs: at(from), toMs: null, retroactive: true };
      return made(await bench.costs.conversionRates.add({ from: source, to: target, rate: price(rate), ...dates }, by));
    },
    bill: ({ id }, currency) =>
      bench.costs.changeBillingCurrency({ organizationId: id, currency, author: systemAuthor }),
    async report(query, ...organizations) {
      const organizationIds = organizations.length === 0 ? null : organizations.map(({ id }) => id);
      const result = await bench.costs.report({ window: windowOf(query), organizationIds });
      if (result.kind !== 'report') throw new Error(result.kind);
      return result.report;
    },
  };
  return bench;
}

function made<Rate>(result: AddResult<Rate>): Rate {
  if (result.kind !== 'created') throw new Error(JSON.stringify(result, (_, value: unknown) => String(value)));
  return result.rate;
}
