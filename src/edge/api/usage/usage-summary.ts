import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { formatId, type IdPrefix, parseId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Keys } from '#core/keys/keys.ts';
import {
  type History,
  type SummaryDimension,
  summaryDimensions,
  type SummaryGroup,
  type SummaryRow,
  type UsageSums,
} from '#core/metering/metering.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  organizationQuery,
  timeBound,
} from '#edge/api/shared/shared.ts';
import { type SumsAnswer, usageSummarySchema } from '#edge/contract/usage.ts';
import { type HttpContext, ValidationError } from '#edge/http/http.ts';

/** Most groups of a summary: enough for 50 keys on each day of a year. */
const groupsMax = 20_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const hourlyDaysMax = 400;

const groupBy = z
  .string()
  .transform((text, context): SummaryDimension[] => {
    const names = text.split(',').map((name) => name.trim());
    const known = summaryDimensions.filter((dimension) => names.includes(dimension));
    if (known.length === names.length) return names.flatMap((name) => known.filter((dimension) => dimension === name));
    const message = `must be a comma-separated list of ${summaryDimensions.join(', ')}, each at most once`;
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  })
  .optional()
  .openapi({
    type: 'string',
    example: 'key_id,day',
    description: `Comma-separated list of ${summaryDimensions.join(', ')}; without it, all is one group`,
  });

const repeatedMax = 100;

/**
 * Returns the schema of a parameter that may be repeated. `read` parses each item; if it returns null, `problem` is
 * reported.
 */
function anyOf(read: (text: string) => string | null, problem: string, description: string) {
  return z
    .union([z.string(), z.array(z.string())])
    .transform((given, context): readonly string[] => {
      const items = [given].flat();
      const known = items.flatMap((text) => read(text) ?? []);
      if (known.length === items.length && items.length <= repeatedMax) return known;
      const message = known.length === items.length ? `must be sent at most ${repeatedMax} times` : problem;
      context.addIssue({ code: 'custom', message });
      return z.NEVER;
    })
    .optional()
    .openapi({ type: 'array', items: { type: 'string' }, maxItems: repeatedMax, description });
}

const anyId = (prefix: IdPrefix, what: string) =>
  anyOf(
    (text) => parseId(prefix, text),
    `is not the id of ${what}, which begins with "${prefix}_"`,
    `Only requests of ${what}; repeat for several`,
  );

const modelMax = 512;

const summaryRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/usage/summary',
    security: bearerSecurity,
    middleware: guards.may('usage.read', 'own'),
    request: {
      query: z.strictObject({
        from: timeBound('At or after this date (midnight UTC) or RFC 3339 time'),
        to: timeBound('Before this date or time'),
        group_by: groupBy,
        latency: z.enum(['true', 'false']).optional().openapi({
          description:
            'With `true`, groups have percentiles of times and speeds, of whole hours, from the last 90 days',
        }),
        key_id: anyId('key', 'an API key'),
        project_id: anyId('proj', 'a project'),
        model: anyOf(
          (text) => (text === '' || text.length > modelMax || text.includes('\0') ? null : text),
          `must be a catalog id of 1 to ${modelMax} characters, without NUL characters`,
          'Only requests of this model, by catalog id; repeat for several',
        ),
        ...organizationQuery,
      }),
    },
    responses: { 200: jsonAnswer(usageSummarySchema, 'The sums') },
  });

export type OwnKeys = Pick<Keys, 'idsOf'>;

export interface UsageSummaryParts {
  readonly guards: Guards;
  readonly keys: OwnKeys;
  readonly history: History;
  readonly clock: Clock;
}

/**
 * Returns the keys whose usage the caller may see: its own, or those of its user; null if it sees the whole
 * organization.
 */
export async function keysSeen(keys: OwnKeys, context: HttpContext): Promise<readonly string[] | null> {
  if (context.get('extent') !== 'own') return null;
  const { actor, organizationId } = context.get('caller');
  if (actor.kind === 'key') return [actor.key.id];
  if (actor.kind === 'user') return keys.idsOf({ organizationId, userId: actor.user.id });
  throw new AppError('insufficient_scope');
}

/** Registers the route for sums of usage by key, model, project, day and hour. */
export function registerUsageSummaryRoute(app: ApiApp, { guards, keys, history, clock }: UsageSummaryParts): void {
  app.openapi(summaryRoute(guards), async (context) => {
    const organizationId = await guards.organizationOf(context);
    const query = context.req.valid('query');
    const dimensions = query.group_by ?? [];
    const span = readSpan(query, clock.now());
    if (dimensions.includes('hour') && span.toMs - span.fromMs > hourlyDaysMax * dayMs) {
      throw tooMuch(`A summary by hour covers at most ${hourlyDaysMax} days. Use a shorter span of "from" and "to".`);
    }
    const own = await keysSeen(keys, context);
    const summary = await history.summarize({
      organizationId,
      keyId: null,
      ...(own !== null && { ofKeys: own }),
      only: { key_id: query.key_id, project_id: query.project_id, model: query.model },
      ...span,
      groupBy: dimensions,
      latency: query.latency === 'true',
      groupsMax,
    });
    if (summary.kind === 'too_many_groups') {
      throw tooMuch(
        `This summary has more than ${groupsMax} groups. Use a shorter span of "from" and "to", or group by fewer fields.`,
      );
    }
    if (summary.kind === 'before_retention') throw cutsHour(span, summary.keptFromMs);
    const data = summary.rows.map((row) => ({ ...toGroup(row.group), ...toSums(row), ...toLatency(row) }));
    const bounds = { from: span.fromMs / 1000, to: span.toMs / 1000 };
    return context.json({ object: 'usage.summary' as const, ...bounds, data, totals: toSums(summary.totals) }, 200);
  });
}

const tooMuch = (message: string): AppError => new AppError('invalid_request_error', { message, param: 'group_by' });

/** Rejects a span that cuts an hour: for requests that are no longer kept, only sums of whole hours are known. */
function cutsHour({ fromMs }: { readonly fromMs: number }, keptFromMs: number): ValidationError {
  const kept = new Date(keptFromMs).toISOString();
  const message = `must be a whole hour: before ${kept}, only hourly sums are kept`;
  return new ValidationError([{ field: fromMs % hourMs === 0 ? 'to' : 'from', message }]);
}

/** Returns the requested span. By default it ends with this second, and begins with the month of its end. */
function readSpan(query: { from?: number | undefined; to?: number | undefined }, nowMs: number) {
  const toMs = query.to ?? (Math.floor(nowMs / 1000) + 1) * 1000;
  const last = new Date(query.to === undefined ? nowMs : toMs - 1);
  const fromMs = query.from ?? Math.max(0, Date.UTC(last.getUTCFullYear(), last.getUTCMonth(), 1));
  if (fromMs < toMs) return { fromMs, toMs };
  const isFrom = query.to === undefined;
  throw new ValidationError([
    { field: isFrom ? 'from' : 'to', message: isFrom ? 'must not be in the future' : 'must be after "from"' },
  ]);
}

/** Converts ids to the form of the API. Every group has a field for each requested dimension; some are null. */
function toGroup(group: SummaryGroup) {
  return {
    ...(typeof group.key_id === 'string' && { key_id: formatId('key', group.key_id) }),
    ...(typeof group.model === 'string' && { model: group.model === '' ? null : group.model }),
    ...(typeof group.project_id === 'string' && { project_id: formatId('proj', group.project_id) }),
    ...(typeof group.day === 'string' && { day: group.day }),
    ...(typeof group.hour === 'number' && { hour: group.hour }),
  };
}

function toLatency({ latency }: Pick<SummaryRow, 'latency'>) {
  if (latency === undefined) return {};
  const { firstByteMs, tokensPerSecond, queuedMs } = latency;
  return { latency: { first_byte_ms: firstByteMs, tokens_per_second: tokensPerSecond, queued_ms: queuedMs } };
}

function toSums(sums: UsageSums): SumsAnswer {
  const { completed, aborted, ended, failed } = sums;
  return {
    num_model_requests: sums.requests,
    outcomes: { completed, aborted, ended, failed },
    refusals: { ...sums.refusals },
    input_tokens: sums.inputTokens,
    input_cached_tokens: sums.inputCachedTokens,
    output_tokens: sums.outputTokens,
    output_reasoning_tokens: sums.outputReasoningTokens,
    cost: formatUsd(sums.costPicoUsd),
  };
}
