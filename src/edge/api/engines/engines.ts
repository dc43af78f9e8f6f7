import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { within } from '#base/within.ts';
import {
  type EngineDefinition,
  type EngineFileProblem,
  type EngineFilesState,
  formatEngineFileProblem,
} from '#core/catalog/catalog.ts';
import type { LogLine } from '#core/fleet/fleet.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, toUnixSeconds } from '#edge/api/shared/shared.ts';
import {
  type EngineAnswer,
  engineListSchema,
  type EngineLogLineAnswer,
  engineLogSchema,
  engineReloadSchema,
  engineSchema,
} from '#edge/contract/engines.ts';
import { hostListSchema } from '#edge/contract/hosts.ts';
import type { EngineOperations, OperatedDifference, OperatedEngine } from './engine-operations.ts';
import { registerRunningRequests } from './running-requests.ts';
import { registerUnusedStorage } from './unused-storage.ts';
import { registerEngineFiles } from './engine-files.ts';
import { registerHistory } from './engine-history.ts';
import { toEngineAnswer, toHostAnswer } from './engine-answers.ts';
import { commandAuthor, type EngineRoutesParts, findEngine, idParams } from './engine-routes.ts';

export type { EngineOperations, OperatedEngine, RunningRequests } from './engine-operations.ts';

const aliveEveryMs = 15_000;
const encoder = new TextEncoder();

/**
 * Streams lines as server-sent events: `data: {"replica":"…","line":"…"}`, and a comment every 15 seconds, which keeps
 * proxies from closing the connection. Ends with the lines, or when the reader leaves.
 * @param left aborted when the reader leaves, to end the source of the lines
 */
function toEvents(lines: AsyncIterable<LogLine>, left: AbortController): ReadableStream<Uint8Array> {
  const iterator = lines[Symbol.asyncIterator]();
  let next: Promise<IteratorResult<LogLine>> | null = null;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      next ??= iterator.next();
      const result = await within(next, aliveEveryMs, () => null);
      if (result === null) {
        controller.enqueue(encoder.encode(':\n'));
        return;
      }
      next = null;
      if (result.done === true) controller.close();
      else controller.enqueue(encoder.encode(`data: ${JSON.stringify(toLogAnswer(result.value))}\n\n`));
    },
    async cancel() {
      left.abort();
      await iterator.return?.();
    },
  });
}

function toLogAnswer({ replicaId, line }: LogLine): EngineLogLineAnswer {
  return { replica: replicaId, line };
}

const engineCommands = ['start', 'stop', 'restart', 'reset'] as const;
const problemsShownMax = 20;
const logLinesDefault = 200;
const logLinesMax = 10_000;

const logQuery = z.strictObject({
  follow: z
    .enum(['0', '1', 'true', 'false'])
    .default('0')
    .openapi({ description: '1 streams new lines as server-sent events' }),
  tail: z
    .string()
    .regex(/^\d{1,9}$/, 'must be a whole number')
    .transform(Number)
    .refine((lines) => lines <= logLinesMax, `must be at most ${logLinesMax}`)
    .default(logLinesDefault)
    .openapi({
      type: 'integer',
      minimum: 0,
      maximum: logLinesMax,
      default: logLinesDefault,
      description: 'Number of lines at the end of the log',
    }),
  replica: z.string().max(256).optional().openapi({ description: 'Only this replica; default is all' }),
});

/** Registers the routes for engines and hosts, only for platform administrators. */
export function registerEngineRoutes(app: ApiApp, parts: EngineRoutesParts): void {
  registerReload(app, parts);
  registerReading(app, parts);
  for (const kind of engineCommands) registerCommand(app, parts, kind);
  registerLogs(app, parts);
  registerHistory(app, parts);
  registerEngineFiles(app, parts);
  registerRunningRequests(app, parts);
  registerHosts(app, parts);
  registerUnusedStorage(app, parts);
}

function answerOf(operations: EngineOperations, id: string): EngineAnswer {
  const { definition, engine } = findEngine(operations, id);
  return toEngineAnswer(definition, engine, operations.samples(id));
}

function registerReading(app: ApiApp, { guards, operations }: EngineRoutesParts): void {
  const list = createRoute({
    method: 'get',
    path: '/v1/admin/engines',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { query: z.strictObject({}) },
    responses: { 200: jsonAnswer(engineListSchema, 'Engines') },
  });
  app.openapi(list, (context) => {
    const engines = new Map(operations.list().map((engine) => [engine.engineId, engine]));
    const data = operations
      .definitions()
      .map((definition) => {
        return toEngineAnswer(definition, engines.get(definition.id) ?? null, operations.samples(definition.id));
      })
      .toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const answer = {
      object: 'list' as const,
      data,
      files: toFilesAnswer(operations.files()),
      differences: operations.differences().map(toDifferenceAnswer),
      pending_prices: [...operations.pendingPrices()],
    };
    return context.json(answer, 200);
  });
  const get = createRoute({
    method: 'get',
    path: '/v1/admin/engines/{id}',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(engineSchema, 'The engine') },
  });
  app.openapi(get, (context) => context.json(answerOf(operations, context.req.valid('param').id), 200));
}

function offBySchedule({ file }: EngineDefinition, { bounds: { schedule } }: OperatedEngine): AppError {
  const isOver = schedule === null || schedule.next === null;
  const until = isOver ? '' : ` until ${new Date(schedule.untilMs).toISOString().replace('.000Z', 'Z')}`;
  return new AppError('conflict', {
    message: `The schedule of the engine keeps it off${until}. Change it in its file, ${file}, and reload the engine files.`,
  });
}

function registerCommand(
  app: ApiApp,
  { guards, operations, commands }: EngineRoutesParts,
  kind: (typeof engineCommands)[number],
): void {
  const route = createRoute({
    method: 'post',
    path: `/v1/admin/engines/{id}/${kind}`,
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: idParams },
    responses: { 202: jsonAnswer(engineSchema, 'The engine after the command') },
  });
  app.openapi(route, async (context) => {
    const { id } = context.req.valid('param');
    const { definition, engine } = findEngine(operations, id);
    if (engine === null) {
      throw new AppError('conflict', {
        message: `The engine is disabled in its file, ${definition.file}. Enable it there and reload the engine files.`,
      });
    }
    if (engine.phase === 'off' && (kind === 'start' || kind === 'restart')) throw offBySchedule(definition, engine);
    if (kind === 'restart' && definition.driver.type === 'external') throw notOursToRestart(id);
    await commands.command(id, kind, commandAuthor(context));
    return context.json(answerOf(operations, id), 202);
  });
}

function notOursToRestart(id: string): AppError {
  const message = `${id} is an external engine, which Headgate cannot restart. Nothing was changed.`;
  return new AppError('conflict', { message });
}

function registerLogs(app: ApiApp, { guards, operations }: EngineRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/admin/engines/{id}/logs',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: idParams, query: logQuery },
    responses: {
      200: {
        description: 'The last lines; with `follow=1` events of one line each',
        content: {
          'application/json': { schema: engineLogSchema },
          'text/event-stream': { schema: z.string().openapi({ example: 'data: {"replica":"r1","line":"…"}\n\n' }) },
        },
      },
    },
  });
  app.openapi(route, async (context) => {
    const { id } = context.req.valid('param');
    const { follow, tail, replica } = context.req.valid('query');
    const { engine } = findEngine(operations, id);
    const replicaId = replica ?? null;
    if (replicaId !== null && engine?.replicas.some((one) => one.id === replicaId) !== true) {
      throw new AppError('not_found', { message: 'This engine has no such replica.', param: 'replica' });
    }
    const left = new AbortController();
    const isFollowing = follow === '1' || follow === 'true';
    const lines = operations.logs(id, replicaId, { tailLines: tail, follow: isFollowing, signal: left.signal });
    if (isFollowing) {
      const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store' };
      return context.body(toEvents(lines, left), 200, headers);
    }
    const data = [];
    for await (const line of lines) data.push(toLogAnswer(line));
    return context.json({ object: 'list' as const, data }, 200);
  });
}

function registerHosts(app: ApiApp, { guards, operations }: EngineRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/admin/hosts',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { query: z.strictObject({}) },
    responses: { 200: jsonAnswer(hostListSchema, 'Hosts') },
  });
  app.openapi(route, (context) => {
    const [definitions, engines, orphans] = [operations.definitions(), operations.list(), operations.orphans()];
    const data = operations.hosts().map((host) => toHostAnswer(host, { definitions, engines, orphans }));
    return context.json({ object: 'list' as const, data }, 200);
  });
}

function registerReload(app: ApiApp, { guards, commands }: EngineRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: '/v1/admin/engines/reload',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    responses: { 200: jsonAnswer(engineReloadSchema, 'Ids of the changed engines') },
  });
  app.openapi(route, async (context) => {
    const result = await commands.reload(commandAuthor(context));
    if (!result.ok) throw refused(result.problems);
    const { added, changed, removed } = result;
    return context.json(
      { object: 'engines.reload' as const, added: [...added], changed: [...changed], removed: [...removed] },
      200,
    );
  });
}

function shownOf(problems: readonly EngineFileProblem[]): string[] {
  const shown = problems.slice(0, problemsShownMax).map(formatEngineFileProblem);
  return problems.length > shown.length ? [...shown, `and ${problems.length - shown.length} more`] : shown;
}

const toFilesAnswer = ({ readAtMs, refused: last, leftOut }: EngineFilesState) => ({
  read_at: toUnixSeconds(readAtMs),
  refused: last === null ? null : { at: toUnixSeconds(last.atMs), problems: shownOf(last.problems) },
  left_out: shownOf(leftOut),
});

const toDifferenceAnswer = ({ kind, name, forMs, isOverdue, values }: OperatedDifference) => ({
  kind,
  name,
  seconds: Math.floor(forMs / 1000),
  overdue: isOverdue,
  values: values.map(({ value, gateways }) => ({ value, gateways: [...gateways] })),
});

function refused(problems: readonly EngineFileProblem[]): AppError {
  const shown = shownOf(problems);
  const param = problems[0]?.field ?? null;
  const message = `The engine files have errors; nothing was changed. ${shown.join('\n')}`;
  return new AppError('unprocessable', { message, ...(param !== null && { param }) });
}
