import { and, count, desc, eq, gt, inArray, isNull, lte, or, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { uuidv7 } from '#base/id.ts';
import type { Audit } from '#core/audit/audit.ts';
import { formatPrice, type HourPrices, parsePrice } from './amount.ts';
import type { DatedRate, DatedRequest } from './dated-rates.ts';
import { createDatedRates, type DatedRates, type DatedTable, type ListRequest, type RatePage } from './dated-table.ts';
import { rateCards } from './schema.ts';

/** Prices of hours of a hardware profile in one currency, while the card is in effect. */
export interface RateCard extends DatedRate, HourPrices {
  readonly hardwareProfile: string;
  readonly currency: string;
  readonly createdAtMs: number;
}

/** At least one of the prices is set. */
export interface NewRateCard extends DatedRequest, HourPrices {
  readonly hardwareProfile: string;
  /** A code of the table of currencies. */
  readonly currency: string;
}

export interface RateCardList extends ListRequest {
  readonly hardwareProfile: string | null;
  readonly currency: string | null;
}

type CardRow = typeof rateCards.$inferSelect;

const priceOrNull = (text: string | null) => (text === null ? null : parsePrice(text));

function toRateCard(row: CardRow): RateCard {
  return {
    id: row.id,
    hardwareProfile: row.hardwareProfile,
    currency: row.currency,
    nodeHour: priceOrNull(row.nodeHour),
    gpuHour: priceOrNull(row.gpuHour),
    fromMs: row.effectiveFrom.getTime(),
    toMs: row.effectiveTo?.getTime() ?? null,
    createdAtMs: row.createdAt.getTime(),
  };
}

const isoOrNull = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
const dateOrNull = (ms: number | null): Date | null => (ms === null ? null : new Date(ms));
const textOrNull = (price: bigint | null): string | null => (price === null ? null : formatPrice(price));

const table: DatedTable<RateCard, NewRateCard> = {
  targetType: 'rate_card',
  prefix: 'rate',
  auditView: ({ hardwareProfile, currency, nodeHour, gpuHour, fromMs, toMs }) => ({
    hardware_profile: hardwareProfile,
    currency,
    node_hour: textOrNull(nodeHour),
    gpu_hour: textOrNull(gpuHour),
    effective_from: isoOrNull(fromMs),
    effective_to: isoOrNull(toMs),
  }),
  isSame: (card, { nodeHour, gpuHour, toMs }) =>
    card.nodeHour === nodeHour && card.gpuHour === gpuHour && card.toMs === toMs,
  async readSeries(tx, { hardwareProfile, currency }) {
    const same = and(eq(rateCards.hardwareProfile, hardwareProfile), eq(rateCards.currency, currency));
    const rows = await tx.select().from(rateCards).where(same).orderBy(rateCards.effectiveFrom);
    return rows.map(toRateCard);
  },
  async insert(tx, input, { fromMs, nowMs }) {
    const { hardwareProfile, currency, nodeHour, gpuHour, toMs } = input;
    if (nodeHour === null && gpuHour === null) throw new RangeError('a rate card without a price');
    const row: CardRow = {
      id: uuidv7(nowMs),
      hardwareProfile,
      currency,
      nodeHour: textOrNull(nodeHour),
      gpuHour: textOrNull(gpuHour),
      effectiveFrom: new Date(fromMs),
      effectiveTo: dateOrNull(toMs),
      createdAt: new Date(nowMs),
    };
    await tx.insert(rateCards).values(row);
    return toRateCard(row);
  },
  async find(tx, id) {
    const [row] = await tx.select().from(rateCards).where(eq(rateCards.id, id));
    return row === undefined ? null : toRateCard(row);
  },
  async setEnd(tx, id, effectiveTo) {
    await tx.update(rateCards).set({ effectiveTo }).where(eq(rateCards.id, id));
  },
};

export function createRateCards(db: Db, audit: Audit): DatedRates<RateCard, NewRateCard> {
  return createDatedRates({ db, audit, table });
}

/** Returns those of the profiles that a card prices now. */
export async function readPricedProfiles(
  tx: Pick<Transaction, 'selectDistinct'>,
  profiles: readonly string[],
): Promise<ReadonlySet<string>> {
  if (profiles.length === 0) return new Set();
  const rows = await tx
    .selectDistinct({ profile: rateCards.hardwareProfile })
    .from(rateCards)
    .where(
      and(
        inArray(rateCards.hardwareProfile, [...new Set(profiles)]),
        lte(rateCards.effectiveFrom, sql`now()`),
        or(isNull(rateCards.effectiveTo), gt(rateCards.effectiveTo, sql`now()`)),
      ),
    );
  return new Set(rows.map(({ profile }) => profile));
}

/** Lists cards, latest start first. */
export async function listRateCards(db: Db, request: RateCardList): Promise<RatePage<RateCard>> {
  const { hardwareProfile, currency, atMs, page, limit } = request;
  const at = dateOrNull(atMs);
  const chosen = and(
    hardwareProfile === null ? undefined : eq(rateCards.hardwareProfile, hardwareProfile),
    currency === null ? undefined : eq(rateCards.currency, currency),
    at === null ? undefined : lte(rateCards.effectiveFrom, at),
    at === null ? undefined : or(isNull(rateCards.effectiveTo), gt(rateCards.effectiveTo, at)),
  );
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.select({ total: count() }).from(rateCards).where(chosen);
      const rows = await tx
        .select()
        .from(rateCards)
        .where(chosen)
        .orderBy(desc(rateCards.effectiveFrom), desc(rateCards.id))
        .limit(limit)
        .offset((page - 1) * limit);
      return { rates: rows.map(toRateCard), total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
