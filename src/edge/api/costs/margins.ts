import { isDeepStrictEqual } from 'node:util';
import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatDecimal, formatUsd, MICRO_DIGITS } from '#base/money.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import {
  computeMargin,
  type Costs,
  type Margin,
  type ReplicaCosts,
  type TokenCounts,
  type TokenPrices,
  type Window,
} from '#core/costs/costs.ts';
import type { ReplicaGpus } from '#core/fleet/fleet.ts';
import type { Busy, History, UsageSums } from '#core/metering/metering.ts';
import { type ApiApp, bearerSecurity, type Guards, jsonAnswer } from '#edge/api/shared/shared.ts';
import { ValidationError } from '#edge/http/http.ts';
import { amountSchema } from './cost-schemas.ts';
import { requireWindow, windowQuery, windowSchema } from './cost-window.ts';

/** Revenue of models, from usage, compared with the cost of their replicas, from metered intervals. */

export interface MarginRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'replicaCosts'>;
  readonly history: Pick<History, 'summarize' | 'busy'>;
  readonly catalog: Pick<Catalog, 'price' | 'bases'>;
  /** Returns the GPUs of each replica that existed within a span and had GPUs, by replica id. */
  readonly readReplicaGpus: (span: Span) => Promise<ReadonlyMap<string, ReplicaGpus>>;
  readonly clock: Clock;
}

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

const usd = z.string().openapi({ example: '12.5', description: 'USD, exact decimal' });
const usdOrNull = usd.nullable().openapi({ description: 'USD; null if it cannot be computed' });
const perMillion = z.string().openapi({ example: '0.15', description: 'USD per million tokens' });
const ratio = z.number().openapi({ description: 'Ratio with six decimal places' });
const count = z.int().openapi({ description: 'Number of tokens' });
const hours = z.number().openapi({ description: 'GPU-hours with six decimal places' });
const unknownHours = hours.nullable().openapi({ description: 'GPU-hours; null if requests are no longer kept' });

const priceFields = {
  input_per_million: perMillion,
  cached_input_per_million: perMillion,
  output_per_million: perMillion,
};

const marginFields = {
  revenue: usd.openapi({ description: 'USD charged for requests' }),
  cost: usd.openapi({ description: 'USD for GPU-hours at the rate cards; a lower bound if `complete` is false' }),
  complete: z
    .boolean()
    .openapi({ description: 'true if every GPU-hour has a price in USD, or a conversion rate to USD' }),
  margin: usdOrNull.openapi({ description: '`revenue` minus `cost` in USD; null if `complete` is false' }),
};

const modelSchema = z
  .object({
    model: z.string(),
    requests: z.int(),
    tokens: z.object({ input: count, cached_input: count, output: count }).openapi({
      description: '`input` excludes `cached_input`',
    }),
    ...marginFields,
    margin_ratio: ratio
      .nullable()
      .openapi({ description: '`margin` divided by `revenue`; null if it cannot be computed' }),
    unconverted: z.array(amountSchema).openapi({ description: 'Costs in currencies without a conversion rate to USD' }),
    gpu_hours: z
      .object({ held: hours, busy: unknownHours, idle: unknownHours, starting: hours, unrated: hours })
      .openapi({ description: '`held` is the sum of `busy`, `idle` and `starting`; `unrated` has no price' }),
    shares: z.object({ busy: ratio, idle: ratio, starting: ratio }).nullable().openapi({
      description: 'Shares of `gpu_hours.held`; they add up to 1; null if unknown',
    }),
    cost_per_million_tokens: usdOrNull.openapi({ description: 'USD; null if it cannot be computed' }),
    prices: z.object(priceFields).nullable().openapi({
      description: 'Current prices; null if the adapters of the model have other prices',
    }),
    break_even: z
      .object({ factor: ratio.nullable(), ...priceFields })
      .nullable()
      .openapi({
        description:
          'Prices at which the same tokens would have covered the cost: current prices times `factor`; null if unknown',
      }),
  })
  .openapi('ModelMargin');

const warningSchema = z
  .object({
    code: z
      .enum(['REQUESTS_NOT_KEPT'])
      .openapi({ description: 'Requests of some of the window were deleted by retention' }),
    kept_from: z.iso.datetime().openapi({ description: 'Before this time, busy hours are unknown' }),
  })
  .openapi('MarginWarning');

const marginsSchema = z
  .object({
    window: windowSchema,
    currency: z.literal('USD'),
    totals: z.object(marginFields),
    models: z.array(modelSchema),
    warnings: z.array(warningSchema),
  })
  .openapi('Margins');

type ModelAnswer = z.infer<typeof modelSchema>;

export function registerMarginRoutes(app: ApiApp, parts: MarginRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/billing/margins',
    security: bearerSecurity,
    middleware: [parts.guards.may('margins')],
    request: { query: windowQuery({}) },
    responses: { 200: jsonAnswer(marginsSchema, 'The margins') },
  });
  app.openapi(route, async (context) => {
    const window = requireWindow(context.req.valid('query'));
    const asOfMs = Math.floor(parts.clock.now());
    const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();
    const { margins, notBeforeMs } = await readMargins(parts, window, asOfMs);
    const answer: z.infer<typeof marginsSchema> = {
      window: { from: isoOf(window.fromMs), to: isoOf(window.toMs), tz: window.tz, as_of: isoOf(asOfMs) },
      currency: 'USD',
      totals: sum(margins.map(({ margin }) => margin)),
      models: margins.map((one) => toAnswer(one, notBeforeMs !== null)),
      warnings: notBeforeMs === null ? [] : [{ code: 'REQUESTS_NOT_KEPT', kept_from: isoOf(notBeforeMs) }],
    };
    return context.json(answer, 200);
  });
}

interface ModelMargin {
  readonly model: string;
  readonly requests: number;
  readonly tokens: TokenCounts;
  readonly prices: TokenPrices | null;
  readonly unconverted: ReplicaCosts['unconverted'];
  readonly margin: Margin;
}

interface Margins {
  /** Sorted by the model's id. */
  readonly margins: readonly ModelMargin[];
  /** Time from which requests are kept, if that is within the window; otherwise null. */
  readonly notBeforeMs: number | null;
}

const modelsMax = 10_000;

async function readMargins(parts: MarginRoutesParts, window: Window, asOfMs: number): Promise<Margins> {
  const { costs, history, catalog } = parts;
  const span = { fromMs: window.fromMs, toMs: Math.max(window.fromMs, Math.min(window.toMs, asOfMs)) };
  const held = await costs.replicaCosts({ window, asOfMs });
  const usage = Map.groupBy(await readUsage(parts, window), ({ base }) => base);
  // Busy time requires held GPUs: without any, no records need to be read.
  const busy: Busy = held.size === 0 ? { replicas: [], keptFromMs: 0 } : await history.busy(span);
  const replicas = held.size === 0 ? new Map<string, ReplicaGpus>() : await parts.readReplicaGpus(span);
  const busyGpuMs = new Map<string, bigint>();
  for (const { replicaId, busyMs } of busy.replicas) {
    const replica = replicas.get(replicaId);
    if (replica === undefined) continue;
    const more = BigInt(busyMs) * BigInt(replica.gpus);
    busyGpuMs.set(replica.model, (busyGpuMs.get(replica.model) ?? 0n) + more);
  }
  const models = [...new Set([...usage.keys(), ...held.keys()])].toSorted();
  const margins = models.map((model): ModelMargin => {
    const used = usage.get(model) ?? [];
    const sums = used.map((one) => one.sums);
    const [tokens, prices] = [tokensOf(sums), commonPrices(catalog, [model, ...used.map((one) => one.model)])];
    const ofModel = held.get(model) ?? null;
    const revenuePicoUsd = sums.reduce((total, { costPicoUsd }) => total + costPicoUsd, 0n);
    const requests = sums.reduce((total, one) => total + one.requests, 0);
    const margin = computeMargin({
      revenuePicoUsd,
      tokens,
      prices,
      held: ofModel,
      busyGpuMs: busyGpuMs.get(model) ?? 0n,
    });
    return { model, requests, tokens, prices, unconverted: ofModel?.unconverted ?? [], margin };
  });
  return { margins, notBeforeMs: busy.keptFromMs > window.fromMs ? busy.keptFromMs : null };
}

interface ModelUsage {
  readonly model: string;
  /** The base that an adapter had; otherwise the model itself. */
  readonly base: string;
  readonly sums: UsageSums;
}

const hourMs = 3_600_000;

/**
 * Reads usage by model, without rejected requests. Sums are hourly: in the hour in which an adapter changes its base,
 * its usage still counts for the former base.
 * @throws ValidationError
 */
async function readUsage({ history, catalog }: MarginRoutesParts, { fromMs, toMs }: Window): Promise<ModelUsage[]> {
  const bases = catalog.bases();
  const hoursAfter = bases.moves({ fromMs, toMs }).map((atMs) => Math.ceil(atMs / hourMs) * hourMs);
  const starts = [...new Set([fromMs, ...hoursAfter.filter((atMs) => atMs > fromMs && atMs < toMs)])].toSorted(
    (a, b) => a - b,
  );
  const found: ModelUsage[] = [];
  for (const [place, startMs] of starts.entries()) {
    const sums = await readModelSums(history, { fromMs: startMs, toMs: starts[place + 1] ?? toMs });
    found.push(...[...sums].map(([model, one]) => ({ model, base: bases.at(model, startMs), sums: one })));
  }
  return found;
}

async function readModelSums(
  history: Pick<History, 'summarize'>,
  { fromMs, toMs }: Span,
): Promise<Map<string, UsageSums>> {
  const everything = { organizationId: null, keyId: null, groupsMax: modelsMax };
  const summary = await history.summarize({ ...everything, fromMs, toMs, groupBy: ['model'] });
  if (summary.kind === 'too_many_groups') throw new Error(`more than ${modelsMax} models have usage`);
  if (summary.kind === 'before_retention') {
    const kept = new Date(summary.keptFromMs).toISOString();
    const message = `must be a whole UTC hour: before ${kept}, only hourly sums are kept`;
    throw new ValidationError([{ field: fromMs % 3_600_000 === 0 ? 'to' : 'from', message }]);
  }
  const used = summary.rows.filter(({ requests }) => requests > 0);
  return new Map(used.map(({ group, ...sums }) => [String(group.model), sums]));
}

function tokensOf(sums: readonly UsageSums[]): TokenCounts {
  const add = (read: (one: UsageSums) => number): bigint => sums.reduce((total, one) => total + BigInt(read(one)), 0n);
  return {
    input: add(({ inputTokens, inputCachedTokens }) => inputTokens - inputCachedTokens),
    cachedInput: add(({ inputCachedTokens }) => inputCachedTokens),
    output: add(({ outputTokens }) => outputTokens),
  };
}

/**
 * Returns the common prices of a base and its adapters; null if they differ, since one proportion then does not fit all
 * tokens.
 */
function commonPrices(catalog: Pick<Catalog, 'price'>, [base = '', ...others]: readonly string[]): TokenPrices | null {
  const prices = pricesOf(catalog, base);
  return others.every((model) => isDeepStrictEqual(pricesOf(catalog, model), prices)) ? prices : null;
}

function pricesOf(catalog: Pick<Catalog, 'price'>, model: string): TokenPrices | null {
  const price = catalog.price(model);
  if (price === undefined) return null;
  return {
    input: price.inputPerMTokMicroUsd,
    cachedInput: price.cachedInputPerMTokMicroUsd,
    output: price.outputPerMTokMicroUsd,
  };
}

const usdText = (picoUsd: bigint | null): string | null => (picoUsd === null ? null : formatUsd(picoUsd));

function pricesToAnswer({ input, cachedInput, output }: TokenPrices) {
  return {
    input_per_million: formatDecimal(input, MICRO_DIGITS),
    cached_input_per_million: formatDecimal(cachedInput, MICRO_DIGITS),
    output_per_million: formatDecimal(output, MICRO_DIGITS),
  };
}

function sum(margins: readonly Margin[]): z.infer<typeof marginsSchema>['totals'] {
  const add = (amounts: readonly bigint[]): bigint => amounts.reduce((total, amount) => total + amount, 0n);
  const [revenue, cost] = [
    add(margins.map(({ revenuePicoUsd }) => revenuePicoUsd)),
    add(margins.map(({ costPicoUsd }) => costPicoUsd)),
  ];
  const complete = margins.every(({ isComplete }) => isComplete);
  return {
    revenue: formatUsd(revenue),
    cost: formatUsd(cost),
    complete,
    margin: complete ? formatUsd(revenue - cost) : null,
  };
}

function toAnswer(one: ModelMargin, isBusyUnknown: boolean): ModelAnswer {
  const { margin, tokens, prices } = one;
  const { breakEven, gpuHours } = margin;
  return {
    model: one.model,
    requests: one.requests,
    tokens: {
      input: Number(tokens.input),
      cached_input: Number(tokens.cachedInput),
      output: Number(tokens.output),
    },
    revenue: formatUsd(margin.revenuePicoUsd),
    cost: formatUsd(margin.costPicoUsd),
    complete: margin.isComplete,
    margin: usdText(margin.marginPicoUsd),
    margin_ratio: margin.marginRatio,
    unconverted: one.unconverted.map(({ currency, amount, amountExact }) => {
      return { currency, amount, amount_exact: amountExact };
    }),
    gpu_hours: isBusyUnknown ? { ...gpuHours, busy: null, idle: null } : gpuHours,
    shares: isBusyUnknown ? null : margin.shares,
    cost_per_million_tokens: usdText(margin.costPerMillionTokensPicoUsd),
    prices: prices === null ? null : pricesToAnswer(prices),
    break_even: breakEven === null ? null : { factor: breakEven.factor, ...pricesToAnswer(breakEven) },
  };
}
