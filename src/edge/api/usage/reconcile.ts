import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { LedgerDifference } from '#core/metering/metering.ts';
import {
  type Explanation,
  explanationKinds,
  type ReconciledHour,
  type Reconciler,
  spanMsMax,
} from '#core/reconcile/reconcile.ts';
import { type ApiApp, bearerSecurity, type Guards, idText, jsonAnswer, timeBound } from '#edge/api/shared/shared.ts';
import { ValidationError } from '#edge/http/http.ts';

const dayMs = 86_400_000;

const hourBound = z.int().openapi({ description: 'Start of an hour in Unix seconds', example: 1_790_000_400 });
const usd = z.string().openapi({ example: '12.5', description: 'USD, exact decimal' });
const tokens = z.int().openapi({ description: 'Number of tokens' });
const requests = z.int().openapi({ description: 'Number of requests' });
const tokenFields = { prompt_tokens: tokens, completion_tokens: tokens };

const explanationSchema = z
  .object({
    kind: z
      .enum(explanationKinds)
      .openapi({ description: 'Type of the explanation; see `src/core/reconcile/README.md`' }),
    count: z.int().openapi({ description: 'Number of requests; 1 if a gateway or replica ended' }),
    prompt_tokens: tokens.nullable().openapi({ description: 'Maximum number of tokens; null if unlimited' }),
    completion_tokens: tokens.nullable().openapi({ description: 'Maximum number of tokens; null if unlimited' }),
    detail: z
      .string()
      .nullable()
      .openapi({ description: 'Replica or gateway, and how it ended; null if there is none' }),
  })
  .openapi('ReconcileExplanation');

const hourSchema = z
  .object({
    hour: hourBound,
    model: z.string().nullable().openapi({ description: 'Catalog id; null for ledger entries without a usage record' }),
    state: z
      .enum(['balanced', 'explained', 'unexplained'])
      .openapi({ description: '`explained`: there are differences, and `explanations` covers all of them' }),
    open: z.boolean().openapi({ description: 'true while the hour is not over' }),
    ledger: z.object({ cost: usd }).openapi({ description: 'Charges in the ledger' }),
    usage: z
      .object({ requests, cache_hits: requests, cost: usd, ...tokenFields })
      .openapi({ description: 'Sums of usage records' }),
    sums: z.object({ requests, cost: usd, ...tokenFields }).openapi({ description: 'Stored hourly sums' }),
    expected: z.object(tokenFields).openapi({
      description: 'Tokens that engines should have counted: prompts once per choice, and canaries, probes and retries',
    }),
    engines: z
      .object({ requests, ...tokenFields })
      .nullable()
      .openapi({ description: 'Counters of engines; null if none was read' }),
    difference: z
      .object({ cost: usd, ...tokenFields })
      .openapi({ description: 'Cost: `ledger` minus `usage`. Tokens: `engines` minus `expected`' }),
    unexplained: z.object(tokenFields).openapi({ description: 'Part of `difference` that is not explained' }),
    problem: z.string().nullable().openapi({ description: 'What is wrong; null unless `state` is `unexplained`' }),
    explanations: z.array(explanationSchema),
  })
  .openapi('ReconciledHour');

const differenceSchema = z
  .object({
    organization_id: idText('org'),
    entry_id: idText('le').nullable().openapi({ description: 'Ledger entry; null if there is none' }),
    request_id: z.string(),
    hour: hourBound,
    model: z.string().nullable().openapi({ description: 'Catalog id; null without a usage record' }),
    ledger: z.object({ requests, cost: usd }),
    usage: z.object({ requests, cost: usd }),
  })
  .openapi('LedgerDifference');

const reconciliationSchema = z
  .object({
    object: z.literal('reconciliation'),
    from: hourBound,
    to: hourBound,
    balanced: z.boolean().openapi({ description: 'true if there is no unexplained difference' }),
    unexplained: z.int().openapi({ description: 'Number of entries in `data` with the state `unexplained`' }),
    data: z.array(hourSchema),
    ledger_differences: z
      .array(differenceSchema)
      .openapi({ description: 'Ledger entries that differ from their usage records, at most 1,000' }),
  })
  .openapi('Reconciliation');

export interface ReconcileRoutesParts {
  readonly guards: Guards;
  readonly reconciler: Reconciler;
  readonly clock: Clock;
}

/** Registers the comparison of ledger, usage and engines, only for platform administrators. */
export function registerReconcileRoutes(app: ApiApp, { guards, reconciler, clock }: ReconcileRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/admin/reconcile',
    security: bearerSecurity,
    middleware: [guards.may('books')],
    request: {
      query: z.strictObject({
        from: timeBound('From the hour of this date (midnight UTC) or RFC 3339 time'),
        to: timeBound('Until this date or time, rounded up to a full hour'),
      }),
    },
    responses: { 200: jsonAnswer(reconciliationSchema, 'The comparison') },
  });
  app.openapi(route, async (context) => {
    const found = await reconciler.reconcile(readSpan(context.req.valid('query'), clock.now()));
    const answer = {
      object: 'reconciliation' as const,
      from: found.fromMs / 1000,
      to: found.toMs / 1000,
      balanced: found.unexplained === 0,
      unexplained: found.unexplained,
      data: found.hours.map(toHour),
      ledger_differences: found.ledger.map(toDifference),
    };
    return context.json(answer, 200);
  });
}

/** @throws ValidationError */
function readSpan(query: { from?: number | undefined; to?: number | undefined }, nowMs: number) {
  const toMs = query.to ?? (query.from === undefined ? nowMs : Math.min(nowMs, query.from + spanMsMax));
  const fromMs = query.from ?? Math.max(0, toMs - dayMs);
  if (query.to === undefined && fromMs >= nowMs) refuse('from', 'must not be in the future');
  if (fromMs >= toMs) refuse('to', 'must be after "from"');
  if (toMs - fromMs > spanMsMax) refuse('from', 'must be at most 31 days before "to": use several shorter spans');
  return { fromMs, toMs };
}

function refuse(field: string, message: string): never {
  throw new ValidationError([{ field, message }]);
}

interface Tokens {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

const tokensOf = ({ promptTokens, completionTokens }: Tokens) => ({
  prompt_tokens: promptTokens,
  completion_tokens: completionTokens,
});

function toHour(hour: ReconciledHour): z.infer<typeof hourSchema> {
  const { usage, sums, counted, difference } = hour;
  return {
    hour: hour.hourMs / 1000,
    model: hour.model,
    state: hour.state,
    open: hour.isOpen,
    ledger: { cost: formatUsd(hour.ledgerPicoUsd) },
    usage: {
      requests: usage.requests,
      cache_hits: usage.cacheHits,
      cost: formatUsd(usage.costPicoUsd),
      ...tokensOf(usage),
    },
    sums: { requests: sums.requests, cost: formatUsd(sums.costPicoUsd), ...tokensOf(sums) },
    expected: tokensOf(hour.expected),
    engines: counted === null ? null : { requests: counted.requests, ...tokensOf(counted) },
    difference: { cost: formatUsd(difference.picoUsd), ...tokensOf(difference) },
    unexplained: tokensOf(hour.unexplained),
    problem: hour.problem,
    explanations: hour.explanations.map(toExplanation),
  };
}

function toExplanation({ kind, count, promptTokens, completionTokens, detail }: Explanation) {
  return { kind, count, prompt_tokens: promptTokens, completion_tokens: completionTokens, detail };
}

function toDifference(one: LedgerDifference): z.infer<typeof differenceSchema> {
  return {
    organization_id: formatId('org', one.organizationId),
    entry_id: one.entryId === null ? null : formatId('le', one.entryId),
    request_id: one.requestId,
    hour: one.hourMs / 1000,
    model: one.model,
    ledger: { requests: one.ledgerRequests, cost: formatUsd(one.ledgerPicoUsd) },
    usage: { requests: one.recordsCount, cost: formatUsd(one.recordsPicoUsd) },
  };
}
