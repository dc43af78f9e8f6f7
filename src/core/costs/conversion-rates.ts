import { and, count, desc, eq, gt, isNull, lte, or } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { uuidv7 } from '#base/id.ts';
import type { Audit } from '#core/audit/audit.ts';
import { formatPrice, parsePrice, type Scaled } from './amount.ts';
import type { DatedRate, DatedRequest } from './dated-rates.ts';
import { createDatedRates, type DatedRates, type DatedTable, type ListRequest, type RatePage } from './dated-table.ts';
import { conversionRates } from './schema.ts';

/**
 * The value of one unit of a currency in another, while it is in effect. Never inverted: the reverse is a separate
 * rate.
 */
export interface ConversionRate extends DatedRate {
  readonly from: string;
  readonly to: string;
  readonly rate: Scaled;
  readonly createdAtMs: number;
}

/** Codes of the table of currencies, two different ones; the rate is above zero. */
export interface NewConversionRate extends DatedRequest {
  readonly from: string;
  readonly to: string;
  readonly rate: Scaled;
}

export interface ConversionRateList extends ListRequest {
  readonly from: string | null;
  readonly to: string | null;
}

type RateRow = typeof conversionRates.$inferSelect;

function toConversionRate(row: RateRow): ConversionRate {
  const rate = parsePrice(row.rate);
  if (rate === null) throw new Error('a stored conversion rate cannot be read');
  return {
    id: row.id,
    from: row.fromCurrency,
    to: row.toCurrency,
    rate,
    fromMs: row.effectiveFrom.getTime(),
    toMs: row.effectiveTo?.getTime() ?? null,
    createdAtMs: row.createdAt.getTime(),
  };
}

const table: DatedTable<ConversionRate, NewConversionRate> = {
  targetType: 'conversion_rate',
  prefix: 'conv',
  auditView: ({ from, to, rate, fromMs, toMs }) => ({
    from,
    to,
    rate: formatPrice(rate),
    effective_from: new Date(fromMs).toISOString(),
    effective_to: toMs === null ? null : new Date(toMs).toISOString(),
  }),
  isSame: (one, { rate, toMs }) => one.rate === rate && one.toMs === toMs,
  async readSeries(tx, { from, to }) {
    const same = and(eq(conversionRates.fromCurrency, from), eq(conversionRates.toCurrency, to));
    const rows = await tx.select().from(conversionRates).where(same).orderBy(conversionRates.effectiveFrom);
    return rows.map(toConversionRate);
  },
  async insert(tx, { from, to, rate, toMs }, { fromMs, nowMs }) {
    if (from === to || rate <= 0n) throw new RangeError(`a conversion rate of ${formatPrice(rate)} ${from} to ${to}`);
    const row: RateRow = {
      id: uuidv7(nowMs),
      fromCurrency: from,
      toCurrency: to,
      rate: formatPrice(rate),
      effectiveFrom: new Date(fromMs),
      effectiveTo: toMs === null ? null : new Date(toMs),
      createdAt: new Date(nowMs),
    };
    await tx.insert(conversionRates).values(row);
    return toConversionRate(row);
  },
  async find(tx, id) {
    const [row] = await tx.select().from(conversionRates).where(eq(conversionRates.id, id));
    return row === undefined ? null : toConversionRate(row);
  },
  async setEnd(tx, id, effectiveTo) {
    await tx.update(conversionRates).set({ effectiveTo }).where(eq(conversionRates.id, id));
  },
};

export function createConversionRates(db: Db, audit: Audit): DatedRates<ConversionRate, NewConversionRate> {
  return createDatedRates({ db, audit, table });
}

/** Lists rates, latest start first. */
export async function listConversionRates(db: Db, request: ConversionRateList): Promise<RatePage<ConversionRate>> {
  const { from, to, atMs, page, limit } = request;
  const at = atMs === null ? null : new Date(atMs);
  const chosen = and(
    from === null ? undefined : eq(conversionRates.fromCurrency, from),
    to === null ? undefined : eq(conversionRates.toCurrency, to),
    at === null ? undefined : lte(conversionRates.effectiveFrom, at),
    at === null ? undefined : or(isNull(conversionRates.effectiveTo), gt(conversionRates.effectiveTo, at)),
  );
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.select({ total: count() }).from(conversionRates).where(chosen);
      const rows = await tx
        .select()
        .from(conversionRates)
        .where(chosen)
        .orderBy(desc(conversionRates.effectiveFrom), desc(conversionRates.id))
        .limit(limit)
        .offset((page - 1) * limit);
      return { rates: rows.map(toConversionRate), total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
