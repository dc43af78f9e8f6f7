import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { isFinal, type Run, type Runs } from '#core/runs/runs.ts';
import { type ApiApp, bearerSecurity, jsonAnswer } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { runLogSchema } from '#edge/contract/runs.ts';
import { toLineAnswer } from './run-answers.ts';
import { type RunRoutesParts, visibleRun } from './run-checks.ts';

const aliveEveryMs = 15_000;
const lookEveryMs = 500;
const chunkLines = 500;
const encoder = new TextEncoder();

const seq = z
  .string()
  .regex(/^\d{1,9}$/, 'must be a whole number of 0 or more')
  .transform(Number);

const query = z.strictObject({
  after: seq
    .default(0)
    .openapi({ type: 'integer', minimum: 0, default: 0, description: 'Returns lines after this `seq`' }),
  limit: seq
    .default(1000)
    .transform((limit) => Math.min(Math.max(limit, 1), 10_000))
    .openapi({ type: 'integer', minimum: 1, maximum: 10_000, default: 1000, description: 'Number of lines' }),
});

export function registerRunLogRoutes(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/runs/{id}/logs',
    security: bearerSecurity,
    middleware: [guards.may('runs.read')],
    request: { params: z.object({ id: idText('run') }), query },
    responses: {
      200: {
        description: 'Lines of the log',
        content: {
          ...jsonAnswer(runLogSchema, '').content,
          'text/event-stream': { schema: z.string().openapi({ example: 'id: 1\ndata: {"seq":1,"message":"…"}\n\n' }) },
        },
      },
    },
  });
  app.openapi(route, async (context) => {
    const run = await visibleRun(context, parts);
    const { after, limit } = context.req.valid('query');
    if (context.req.header('accept')?.includes('text/event-stream') === true) {
      const askAgain = await guards.stayOpen(context, 'runs.read');
      const look = async (): Promise<Run> => {
        await askAgain();
        return visibleRun(context, parts);
      };
      const last = seq.safeParse(context.req.header('last-event-id'));
      const events = followLog(runs, look, last.success ? last.data : after);
      const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store' };
      return context.newResponse(events, 200, headers);
    }
    const lines = await runs.log(run.id, after, limit);
    const now = (await runs.find(run.id)) ?? run;
    const nextAfter = lines.at(-1)?.seq ?? after;
    // An ended run has all of its lines, or none any more.
    const expired = isFinal(now.status) && now.logLines > after && lines.length === 0;
    const complete = isFinal(now.status) && (expired || nextAfter >= now.logLines);
    return context.json({ data: lines.map(toLineAnswer), next_after: nextAfter, expired, complete }, 200);
  });
}

async function lookOrRefuse(look: () => Promise<Run>): Promise<Run | AppError> {
  try {
    return await look();
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
}

/**
 * Streams lines as they are written, with a regular comment, which keeps proxies from closing the connection.
 * @param look reads the run; throws AppError if the reader may no longer see the run
 */
function followLog(runs: Runs, look: () => Promise<Run>, after: number): ReadableStream<Uint8Array> {
  let position = after;
  let left = false;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      for (let waitedMs = 0; !left; waitedMs += lookEveryMs) {
        // Reads the run before its lines, so that all lines of an ended run are included.
        const run = await lookOrRefuse(look);
        if (run instanceof AppError) {
          const { code, message } = run;
          controller.enqueue(encoder.encode(`event: error\ndata: ${JSON.stringify({ code, message })}\n\n`));
          controller.close();
          return;
        }
        const lines = await runs.log(run.id, position, chunkLines);
        for (const line of lines) {
          controller.enqueue(encoder.encode(`id: ${line.seq}\ndata: ${JSON.stringify(toLineAnswer(line))}\n\n`));
          position = line.seq;
        }
        if (lines.length > 0) return;
        if (isFinal(run.status)) {
          const expired = position < run.logLines;
          const end = { status: run.status, failure_code: run.failureCode, ...(expired && { log_expired: true }) };
          controller.enqueue(encoder.encode(`event: status\ndata: ${JSON.stringify(end)}\n\n`));
          controller.close();
          return;
        }
        if (waitedMs >= aliveEveryMs) {
          controller.enqueue(encoder.encode(':\n'));
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
      }
    },
    cancel() {
      left = true;
    },
  });
}
