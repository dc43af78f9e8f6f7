import { setImmediate } from 'node:timers/promises';
import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import {
  type CostReport,
  type CostReportJson,
  type Costs,
  csvFileName,
  type GroupBy,
  reportToCsv,
  reportToJsonText,
  seriesToJson,
  steps,
  type WindowQuery,
} from '#core/costs/costs.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  isOperator,
  jsonAnswer,
  listedOrganizationQuery,
  type OrganizationDirectory,
  requireOrganization,
} from '#edge/api/shared/shared.ts';
import { type CostReportAnswer, costReportSchema, costSeriesSchema } from '#edge/contract/costs.ts';
import { type Caller, ValidationError } from '#edge/http/http.ts';
import { requireWindow, windowQuery } from './cost-window.ts';
import type { MarginRoutesParts } from './margins.ts';
import { readUsage } from './model-usage.ts';

export interface CostRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'report' | 'series'>;
  /** Tokens of models, for exports. */
  readonly history: MarginRoutesParts['history'];
  readonly catalog: MarginRoutesParts['catalog'];
  readonly directory: OrganizationDirectory;
}

const costQuery = windowQuery(listedOrganizationQuery);

const plainGroups = ['organization', 'cluster', 'node', 'hardware_profile', 'stack'] as const;

const groupBy = z
  .string()
  .transform((text, context): GroupBy => {
    const plain = plainGroups.find((one) => one === text);
    if (plain !== undefined) return { by: plain };
    const key = text.startsWith('label:') ? text.slice('label:'.length) : '';
    if (/^[A-Za-z0-9./_-]{1,317}$/.test(key)) return { by: 'label', key };
    context.addIssue({ code: 'custom', message: `must be ${plainGroups.join(', ')} or label:KEY` });
    return z.NEVER;
  })
  .optional()
  .openapi({
    type: 'string',
    example: 'label:team',
    description: `${plainGroups.map((one) => `\`${one}\``).join(', ')} or \`label:KEY\`. Default: no groups`,
  });

const seriesQuery = windowQuery({
  ...listedOrganizationQuery,
  step: z.enum(steps).optional().openapi({ description: 'Hours, days or months of `tz`. Default: one step' }),
  group_by: groupBy,
});

/** Schema of the report, if the JSON that core writes has the form of the contract. */
type Checked = CostReportJson extends CostReportAnswer ? typeof costReportSchema : never;

/** Content of the report, with a type that is not JSON: Hono would serialize typed JSON all at once. */
const streamed: Readonly<Record<string, { schema: Checked }>> = jsonAnswer(costReportSchema, '').content;

type CostQuery = WindowQuery & { readonly organization_id?: string | undefined };

export function registerCostRoutes(app: ApiApp, parts: CostRoutesParts): void {
  registerReport(app, parts);
  registerCsv(app, parts);
  registerSeries(app, parts);
}

function registerReport(app: ApiApp, parts: CostRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/billing/costs',
    security: bearerSecurity,
    middleware: [parts.guards.may('costs.read')],
    request: { query: costQuery },
    responses: { 200: { description: 'The report', content: streamed } },
  });
  app.openapi(route, async (context) => {
    const report = await readReport(parts, context.get('caller'), context.req.valid('query'));
    const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
    return context.newResponse(streamOf(reportToJsonText(report)), 200, headers);
  });
}

function registerCsv(app: ApiApp, parts: CostRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/billing/costs.csv',
    security: bearerSecurity,
    middleware: [parts.guards.may('costs.read')],
    request: { query: costQuery },
    responses: {
      200: { description: 'The report', content: { 'text/csv': { schema: { type: 'string' as const } } } },
    },
  });
  app.openapi(route, async (context) => {
    const caller = context.get('caller');
    const report = await readReport(parts, caller, context.req.valid('query'), true);
    const extras = { tokens: await readTokens(parts, report, caller) };
    const headers = {
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': `attachment; filename="${csvFileName(report)}"`,
      'cache-control': 'no-store',
    };
    return context.newResponse(streamOf(reportToCsv(report, extras)), 200, headers);
  });
}

function registerSeries(app: ApiApp, { guards, costs, directory }: CostRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/billing/costs/series',
    security: bearerSecurity,
    middleware: [guards.may('costs.read')],
    request: { query: seriesQuery },
    responses: { 200: jsonAnswer(costSeriesSchema, 'The series') },
  });
  app.openapi(route, async (context) => {
    const { organization_id: named, step = null, group_by: grouped = null, ...asked } = context.req.valid('query');
    const window = requireWindow(asked);
    const organizationIds = await seenBy(context.get('caller'), directory, named);
    const result = await costs.series({ window, step, groupBy: grouped, organizationIds });
    if (result.kind === 'series') return context.json(seriesToJson(result.series), 200);
    if (result.kind === 'too_many_steps') {
      const message = `This window has more than ${result.stepsMax} steps. Use a longer step or a shorter window.`;
      throw new AppError('invalid_request_error', { message, param: 'step' });
    }
    const message = `This series has more than ${result.partsMax} parts. Use a longer step, a shorter window, or select one organization with "organization_id".`;
    throw new AppError('invalid_request_error', { message, param: 'group_by' });
  });
}

/**
 * @throws AppError not_found for an organization that the caller cannot see, invalid_request_error for too large a
 * report
 */
async function readReport(
  { costs, directory }: CostRoutesParts,
  caller: Caller,
  { organization_id: organization, ...asked }: CostQuery,
  byLabels = false,
): Promise<CostReport> {
  const organizationIds = await seenBy(caller, directory, organization);
  const result = await costs.report({ window: requireWindow(asked), organizationIds, byLabels });
  if (result.kind === 'report') return result.report;
  const message = `This report has more than ${result.linesMax} lines. Use a shorter window, or select one organization with "organization_id".`;
  throw new AppError('invalid_request_error', { message, param: asked.month === undefined ? 'to' : 'month' });
}

/**
 * Reads the tokens that the engines of a report served: to everybody for platform administrators, and to their own
 * organization for others. No engine has known tokens if only hourly sums are kept and the window begins within an hour.
 */
async function readTokens(
  parts: CostRoutesParts,
  { window, asOfMs, organizations }: CostReport,
  caller: Caller,
): Promise<ReadonlyMap<string, bigint>> {
  const tokens = new Map<string, bigint>();
  const isServing = organizations.some(({ clusters }) => clusters.some(({ source }) => source === 'replica'));
  if (!isServing) return tokens;
  const span = { fromMs: window.fromMs, toMs: Math.max(window.fromMs, Math.min(window.toMs, asOfMs)) };
  try {
    for (const { base, sums } of await readUsage(parts, span, isOperator(caller) ? null : caller.organizationId)) {
      tokens.set(base, (tokens.get(base) ?? 0n) + BigInt(sums.inputTokens) + BigInt(sums.outputTokens));
    }
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
  }
  return tokens;
}

/** Returns UUIDs of the organizations to report; null for all. @throws AppError not_found */
async function seenBy(
  caller: Caller,
  directory: OrganizationDirectory,
  org: string | undefined,
): Promise<readonly string[] | null> {
  if (org !== undefined) return [(await requireOrganization(caller, directory, org)).id];
  return isOperator(caller) ? null : [caller.organizationId];
}

const chunkChars = 65_536;

/** Returns a stream of encoded text that is produced while it is read, so that other requests run in between. */
function streamOf(pieces: Iterator<string>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      await setImmediate();
      let text = '';
      while (text.length < chunkChars) {
        const next = pieces.next();
        if (next.done === true) {
          if (text !== '') controller.enqueue(encoder.encode(text));
          controller.close();
          return;
        }
        text += next.value;
      }
      controller.enqueue(encoder.encode(text));
    },
  });
}
