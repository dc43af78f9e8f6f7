import { openConnection, type Connection, type StreamSink } from './load-connection.ts';
import { quantile } from './statistics.ts';
import type { LoadJob, LoadReport, LoadRequest, Window } from './load-protocol.ts';

/** The process that makes the load. It takes jobs from its parent and reports its measurements. */

let delays: number[] = [];
const sink: StreamSink = {
  frame: (delayMs) => void delays.push(delayMs),
};

function takeWindow(): Window {
  const seen = delays;
  delays = [];
  return { frames: seen.length, delayP50Ms: quantile(seen, 0.5), delayP99Ms: quantile(seen, 0.99) };
}

function requestText({ authorization, body }: LoadJob): string {
  const key = authorization === null ? '' : `Authorization: ${authorization}\r\n`;
  return `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n${key}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

interface Seen {
  completed: number;
  failed: number;
  firstFault: string | null;
  readonly first: number[];
  readonly tails: number[];
  readonly totals: number[];
}

async function work(job: LoadJob, index: number, seen: Seen): Promise<void> {
  const request = requestText(job);
  await new Promise((resolve) => setTimeout(resolve, (job.rampMs * index) / job.connections));
  let connection: Connection | null = null;
  const untilMs = performance.now() + job.durationMs;
  do {
    try {
      connection ??= await openConnection(job.port, sink);
      const times = await connection.ask(request, { events: job.events });
      seen.completed += 1;
      seen.first.push(times.firstMs);
      seen.tails.push(times.tailMs);
      seen.totals.push(times.totalMs);
    } catch (error) {
      seen.failed += 1;
      seen.firstFault ??= error instanceof Error ? error.message : String(error);
      connection?.close();
      connection = null;
      if (seen.failed > 100) break;
    }
  } while (performance.now() < untilMs);
  connection?.close();
}

async function run(job: LoadJob): Promise<LoadReport> {
  const seen: Seen = { completed: 0, failed: 0, firstFault: null, first: [], tails: [], totals: [] };
  delays = [];
  const startedMs = performance.now();
  await Promise.all(Array.from({ length: job.connections }, (_, index) => work(job, index, seen)));
  const { completed, failed, firstFault, first, tails, totals } = seen;
  return {
    completed,
    failed,
    firstFault,
    elapsedMs: performance.now() - startedMs,
    totalP50Ms: quantile(totals, 0.5),
    totalP99Ms: quantile(totals, 0.99),
    firstP50Ms: quantile(first, 0.5),
    firstP99Ms: quantile(first, 0.99),
    tailP50Ms: quantile(tails, 0.5),
    tailP99Ms: quantile(tails, 0.99),
  };
}

process.on('message', (message: LoadRequest) => {
  if (message.kind === 'window') {
    process.send?.({ kind: 'window', window: takeWindow() });
    return;
  }
  void run(message.job).then((report) => process.send?.({ kind: 'report', report }));
});
process.on('disconnect', () => process.exit(0));
