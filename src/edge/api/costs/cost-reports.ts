import { setImmediate } from 'node:timers/promises';
import { createRoute } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import {
  type CostReport,
  type CostReportJson,
  type Costs,
  csvFileName,
  reportToCsv,
  reportToJsonText,
  type WindowQuery,
} from '#core/costs/costs.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  isOperator,
  jsonAnswer,
  type OrganizationDirectory,
  requireOrganization,
} from '#edge/api/shared/shared.ts';
import { type CostReportAnswer, costReportSchema } from '#edge/contract/costs.ts';
import { idText } from '#edge/contract/fields.ts';
import type { Caller } from '#edge/http/http.ts';
import { requireWindow, windowQuery } from './cost-window.ts';

export interface CostRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'report'>;
  readonly directory: OrganizationDirectory;
}

const costQuery = windowQuery({
  org: idText('org').optional().openapi({
    description: 'Only this organization; default is your own, or all for platform administrators',
  }),
});

/** Schema of the report, if the JSON that core writes has the form of the contract. */
type Checked = CostReportJson extends CostReportAnswer ? typeof costReportSchema : never;

/** Content of the report, with a type that is not JSON: Hono would serialize typed JSON all at once. */
const streamed: Readonly<Record<string, { schema: Checked }>> = jsonAnswer(costReportSchema, '').content;

type CostQuery = WindowQuery & { readonly org?: string | undefined };

export function registerCostRoutes(app: ApiApp, parts: CostRoutesParts): void {
  registerReport(app, parts);
  registerCsv(app, parts);
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
    const report = await readReport(parts, context.get('caller'), context.req.valid('query'));
    const headers = {
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': `attachment; filename="${csvFileName(report)}"`,
      'cache-control': 'no-store',
    };
    return context.newResponse(streamOf(reportToCsv(report)), 200, headers);
  });
}

/**
 * @throws AppError not_found for an organization that the caller cannot see, invalid_request_error for too large a
 * report
 */
async function readReport(
  { costs, directory }: CostRoutesParts,
  caller: Caller,
  { org, ...asked }: CostQuery,
): Promise<CostReport> {
  const window = requireWindow(asked);
  const result = await costs.report({ window, organizationIds: await seenBy(caller, directory, org) });
  if (result.kind === 'report') return result.report;
  const message = `This report has more than ${result.linesMax} lines. Use a shorter window, or select one organization with "org".`;
  throw new AppError('invalid_request_error', { message, param: asked.month === undefined ? 'to' : 'month' });
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
