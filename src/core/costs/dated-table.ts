import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import {
  type DatedRate,
  type DatedRefusal,
  type DatedRequest,
  endRate,
  type EndRequest,
  placeRate,
} from './dated-rates.ts';
import { dbNowMs, lockRates } from './locks.ts';

/**
 * Author of a change of rates. Rates belong to no organization: the audit log entry names the author's organization.
 */
export interface ChangedBy {
  readonly organizationId: string;
  readonly author: Author;
}

export type AddResult<Rate> =
  /** Also returned if the current rate has the same values already; then nothing was changed. */
  | {
      readonly kind: 'created';
      readonly rate: Rate;
      /** The previous rate, which ends where the new one starts. */
      readonly ended: Rate | null;
    }
  | DatedRefusal<Rate>;

export type AddAllResult<Rate> =
  | { readonly kind: 'created'; readonly rates: readonly Rate[] }
  /** `index` of the refused rate in the request. */
  | { readonly kind: 'refused'; readonly index: number; readonly refusal: DatedRefusal<Rate> };

export type EndResult<Rate> =
  | { readonly kind: 'ended'; readonly rate: Rate }
  | { readonly kind: 'already_ended'; readonly rate: Rate }
  | { readonly kind: 'in_the_past'; readonly nowMs: number }
  | { readonly kind: 'not_found' };

/** Rates with dates. Each is written once and ended once, in one transaction with its audit log entry. */
export interface DatedRates<Rate, Input> {
  add(input: Input, by: ChangedBy): Promise<AddResult<Rate>>;
  /** Adds all rates in order, or none: then the result is the first refusal. */
  addAll(inputs: readonly Input[], by: ChangedBy): Promise<AddAllResult<Rate>>;
  end(id: string, request: EndRequest, by: ChangedBy): Promise<EndResult<Rate>>;
}

/** A table of rates, as statements in a transaction. */
export interface DatedTable<Rate, Input> {
  /** Type in the audit log, and prefix of its ids. */
  readonly targetType: string;
  readonly prefix: 'rate' | 'conv';
  readonly auditView: (rate: Rate) => AuditView;
  /** True if a rate has the requested values, whenever it starts. */
  readonly isSame: (rate: Rate, input: Input) => boolean;
  /** Reads the rates of the same series as the new one. */
  readonly readSeries: (tx: Transaction, input: Input) => Promise<readonly Rate[]>;
  readonly insert: (tx: Transaction, input: Input, made: RateMade) => Promise<Rate>;
  readonly find: (tx: Transaction, id: string) => Promise<Rate | null>;
  readonly setEnd: (tx: Transaction, id: string, to: Date) => Promise<void>;
}

export interface RateMade {
  readonly fromMs: number;
  readonly nowMs: number;
}

export interface DatedRatesOptions<Rate, Input> {
  readonly db: Db;
  readonly audit: Audit;
  readonly table: DatedTable<Rate, Input>;
}

export function createDatedRates<Rate extends DatedRate, Input extends DatedRequest>(
  options: DatedRatesOptions<Rate, Input>,
): DatedRates<Rate, Input> {
  const { db, audit, table } = options;

  async function endIn(tx: Transaction, rate: Rate, toMs: number, by: ChangedBy): Promise<Rate> {
    await table.setEnd(tx, rate.id, new Date(toMs));
    const ended = { ...rate, toMs };
    await audit.record(tx, {
      ...by,
      action: `${table.targetType}.ended`,
      targetType: table.targetType,
      targetId: formatId(table.prefix, rate.id),
      before: table.auditView(rate),
      after: table.auditView(ended),
    });
    return ended;
  }

  async function addIn(tx: Transaction, input: Input, by: ChangedBy): Promise<AddResult<Rate>> {
    await lockRates(tx);
    const nowMs = await dbNowMs(tx);
    const placement = placeRate(await table.readSeries(tx, input), input, nowMs);
    if (placement.kind !== 'placed') return placement;
    const { fromMs } = placement;
    // The same request again, such as a form that is sent twice.
    const current = input.fromMs === null ? placement.ended : null;
    if (current !== null && table.isSame(current, input)) {
      await by.author.created?.(tx, formatId(table.prefix, current.id));
      return { kind: 'created', rate: current, ended: null };
    }
    const ended = placement.ended === null ? null : await endIn(tx, placement.ended, fromMs, by);
    const rate = await table.insert(tx, input, { fromMs, nowMs });
    await audit.record(tx, {
      ...by,
      action: `${table.targetType}.created`,
      targetType: table.targetType,
      targetId: formatId(table.prefix, rate.id),
      before: null,
      after: table.auditView(rate),
    });
    return { kind: 'created', rate, ended };
  }

  return {
    add: (input, by) => db.orm.transaction((tx) => addIn(tx, input, by)),
    addAll: (inputs, by) => allOrNone(db, inputs, (tx, input) => addIn(tx, input, by)),
    end: (id, request, by) =>
      db.orm.transaction(async (tx): Promise<EndResult<Rate>> => {
        await lockRates(tx);
        const rate = await table.find(tx, id);
        if (rate === null) return { kind: 'not_found' };
        const ending = endRate(rate, request, await dbNowMs(tx));
        if (ending.kind === 'already_ended') return { kind: 'already_ended', rate };
        if (ending.kind === 'in_the_past') return ending;
        return { kind: 'ended', rate: await endIn(tx, rate, ending.toMs, by) };
      }),
  };
}

/** Carries the refusal of one rate out of a transaction, which rolls back. */
class RefusedError<Rate> extends Error {
  readonly result: AddAllResult<Rate>;

  constructor(index: number, refusal: DatedRefusal<Rate>) {
    super('a rate was rejected');
    this.result = { kind: 'refused', index, refusal };
  }
}

async function allOrNone<Rate extends DatedRate, Input>(
  db: Db,
  inputs: readonly Input[],
  add: (tx: Transaction, input: Input) => Promise<AddResult<Rate>>,
): Promise<AddAllResult<Rate>> {
  try {
    return await db.orm.transaction(async (tx) => {
      const rates: Rate[] = [];
      const ended = new Map<string, Rate>();
      for (const [index, input] of inputs.entries()) {
        const result = await add(tx, input);
        if (result.kind !== 'created') throw new RefusedError(index, result);
        rates.push(result.rate);
        if (result.ended !== null) ended.set(result.ended.id, result.ended);
      }
      // A later row of the request may have ended an earlier one.
      return { kind: 'created', rates: rates.map((rate) => ended.get(rate.id) ?? rate) };
    });
  } catch (error) {
    if (error instanceof RefusedError) return error.result;
    throw error;
  }
}

/** Filters of a list of rates; null filters nothing. `page` counts from 1. */
export interface ListRequest {
  readonly atMs: number | null;
  readonly page: number;
  readonly limit: number;
}

export interface RatePage<Rate> {
  readonly rates: readonly Rate[];
  readonly total: number;
}
