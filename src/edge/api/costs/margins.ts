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
import { type MarginsAnswer, marginsSchema, type ModelMarginAnswer } from '#edge/contract/margins.ts';
import { requireWindow, windowQuery } from './cost-window.ts';
import { readUsage, type Span } from './model-usage.ts';

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

export function registerMarginRoutes(app: ApiApp, parts: MarginRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/billing/margins',
    security: bearerSecurity,
    middleware: [parts.guards.may('margins')],
    request: {
      query: windowQuery({
        busy: z
          .enum(['true', 'false'])
          .optional()
          .openapi({
            description:
              'Default `true`. With `false`, busy and idle hours are null: they are computed from each request, which takes ' +
              'seconds for a million of them',
          }),
      }),
    },
    responses: { 200: jsonAnswer(marginsSchema, 'The margins') },
  });
  app.openapi(route, async (context) => {
    const { busy, ...asked } = context.req.valid('query');
    const window = requireWindow(asked);
    const asOfMs = Math.floor(parts.clock.now());
    const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();
    const isBusyRead = busy !== 'false';
    const { margins, notBeforeMs } = await readMargins(parts, { window, asOfMs, isBusyRead });
    const answer: MarginsAnswer = {
      window: { from: isoOf(window.fromMs), to: isoOf(window.toMs), tz: window.tz, as_of: isoOf(asOfMs) },
      currency: 'USD',
      totals: sum(margins.map(({ margin }) => margin)),
      models: margins.map((one) => toAnswer(one, !isBusyRead || notBeforeMs !== null)),
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

interface MarginsRequest {
  readonly window: Window;
  readonly asOfMs: number;
  readonly isBusyRead: boolean;
}

async function readMargins(parts: MarginRoutesParts, { window, asOfMs, isBusyRead }: MarginsRequest): Promise<Margins> {
  const { costs, history, catalog } = parts;
  const span = { fromMs: window.fromMs, toMs: Math.max(window.fromMs, Math.min(window.toMs, asOfMs)) };
  const held = await costs.replicaCosts({ window, asOfMs });
  const usage = Map.groupBy(await readUsage(parts, window, null), ({ base }) => base);
  // Busy time requires held GPUs: without any, no records need to be read.
  const needsBusy = isBusyRead && held.size > 0;
  const busy: Busy = needsBusy ? await history.busy(span) : { replicas: [], keptFromMs: 0 };
  const replicas = needsBusy ? await parts.readReplicaGpus(span) : new Map<string, ReplicaGpus>();
  const busyGpuMs = new Map<string, bigint>();
  for (const { replicaId, busyMs } of busy.replicas) {
    const replica = replicas.get(replicaId);
    if (replica === undefined) continue;
    const more = (BigInt(busyMs) * BigInt(replica.gpuShares)) / 28n;
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

function sum(margins: readonly Margin[]): MarginsAnswer['totals'] {
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

function toAnswer(one: ModelMargin, isBusyUnknown: boolean): ModelMarginAnswer {
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
