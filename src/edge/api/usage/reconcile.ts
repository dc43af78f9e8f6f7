import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { LedgerDifference } from '#core/metering/metering.ts';
import { type Explanation, type ReconciledHour, type Reconciler, spanMsMax } from '#core/reconcile/reconcile.ts';
import { type ApiApp, bearerSecurity, type Guards, jsonAnswer, timeBound } from '#edge/api/shared/shared.ts';
import {
  type ExplanationAnswer,
  type LedgerDifferenceAnswer,
  type ReconciledHourAnswer,
  reconciliationSchema,
} from '#edge/contract/reconcile.ts';
import { ValidationError } from '#edge/http/http.ts';

const dayMs = 86_400_000;

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

function toHour(hour: ReconciledHour): ReconciledHourAnswer {
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

function toExplanation({ kind, count, promptTokens, completionTokens, detail }: Explanation): ExplanationAnswer {
  return { kind, count, prompt_tokens: promptTokens, completion_tokens: completionTokens, detail };
}

function toDifference(one: LedgerDifference): LedgerDifferenceAnswer {
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
