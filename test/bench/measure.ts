import type { LoadJob, LoadReport } from './load-protocol.ts';
import { jsonTokens, otherEvents, streamTokens } from './engine-counts.ts';
import { cpuMicros, ownCpuMicros, pssMb, rssMb } from './processes.ts';
import type { Stack, Variant } from './stack.ts';

/** Totals that the gateway's ledger must have at the end. */
export interface Tally {
  requests: number;
  outputTokens: number;
}

/** Figures of one round of one variant, by name. */
export type Figures = Record<string, number>;

export interface Bench {
  readonly stack: Stack;
  readonly tally: Tally;
}

/** About 2 KB, as a short conversation is. */
const prompt = 'The water is patient and the stone only looks as if it were. '.repeat(31);
const settleMs = 400;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface StreamShape {
  readonly frames: number;
  readonly firstMs: number;
  readonly everyMs: number;
}

function bodyOf(stream: StreamShape | null): string {
  const messages = [{ role: 'user', content: prompt }];
  if (stream === null) return JSON.stringify({ model: 'bench', messages, max_tokens: 64 });
  const options = { stream: true, stream_options: { include_usage: true }, bench: stream };
  return JSON.stringify({ model: 'bench', messages, max_tokens: 4096, ...options });
}

type Load = Pick<LoadJob, 'connections' | 'rampMs' | 'durationMs'>;

async function runLoad(bench: Bench, variant: Variant, stream: StreamShape | null, load: Load): Promise<LoadReport> {
  const report = await bench.stack.loader.run({
    port: variant.port,
    authorization: variant.authorization,
    body: bodyOf(stream),
    events: stream === null ? null : stream.frames + otherEvents,
    ...load,
  });
  if (report.failed > 0) {
    const of = `${report.failed} of ${report.failed + report.completed} answers`;
    throw new Error(`${variant.name}: ${of} were wrong, the first: ${report.firstFault ?? ''}`);
  }
  if (variant.name === 'gateway') {
    bench.tally.requests += report.completed;
    bench.tally.outputTokens += report.completed * (stream === null ? jsonTokens : streamTokens(stream.frames));
  }
  return report;
}

interface CpuMicros {
  readonly proxy: number;
  /** 0 for variants that are no gateway. */
  readonly postgres: number;
  /** 0 for variants without Redis. */
  readonly redis: number;
}

/** Returns a function that returns the CPU time of a variant and its stores since now. */
function startCpu({ stack }: Bench, variant: Variant): () => CpuMicros {
  const hasDatabase = variant.name === 'gateway' || variant.name === 'redis';
  const { redisPid } = stack;
  const read = (): CpuMicros => ({
    proxy: ownCpuMicros(variant.pid),
    postgres: hasDatabase ? cpuMicros(stack.postgresPids(variant)) : 0,
    redis: variant.name === 'redis' && redisPid !== null ? ownCpuMicros(redisPid) : 0,
  });
  const before = read();
  return () => {
    const now = read();
    return {
      proxy: now.proxy - before.proxy,
      postgres: now.postgres - before.postgres,
      redis: now.redis - before.redis,
    };
  };
}

/** JSON requests, one after the other on each of 32 connections. */
export async function measureJson(bench: Bench, variant: Variant, durationMs: number): Promise<Figures> {
  const cpu = startCpu(bench, variant);
  const report = await runLoad(bench, variant, null, { connections: 32, rampMs: 0, durationMs });
  const used = cpu();
  return {
    requests: report.completed,
    requestsPerSecond: (report.completed * 1000) / report.elapsedMs,
    cpuMicros: used.proxy / report.completed,
    postgresMicros: used.postgres / report.completed,
    redisMicros: used.redis / report.completed,
    p50Ms: report.totalP50Ms,
    p99Ms: report.totalP99Ms,
  };
}

/** Short streams on 50 connections: how soon the first event is there, and how long after the last the end. */
export async function measureFirst(bench: Bench, variant: Variant, durationMs: number): Promise<Figures> {
  const shape = { frames: 10, firstMs: 40, everyMs: 10 };
  const cpu = startCpu(bench, variant);
  const report = await runLoad(bench, variant, shape, { connections: 50, rampMs: 200, durationMs });
  return {
    firstP50Ms: report.firstP50Ms,
    firstP99Ms: report.firstP99Ms,
    tailP50Ms: report.tailP50Ms,
    tailP99Ms: report.tailP99Ms,
    streamMicros: cpu().proxy / report.completed,
  };
}

export interface OpenStreams {
  readonly connections: number;
  readonly framesPerSecond: number;
  readonly rampMs: number;
  readonly windowMs: number;
}

/** Many long streams: what a frame costs while all of them run, how late it comes, and the memory they take. */
export async function measureOpen(bench: Bench, variant: Variant, open: OpenStreams): Promise<Figures> {
  const { connections, framesPerSecond, rampMs, windowMs } = open;
  const everyMs = 1000 / framesPerSecond;
  const frames = Math.ceil((rampMs + 3 * settleMs + windowMs) / everyMs) + 1;
  const running = runLoad(
    bench,
    variant,
    { frames, firstMs: everyMs, everyMs },
    { connections, rampMs, durationMs: 0 },
  );
  // A fault ends the load before the window does.
  const early = running.then(() => undefined);
  await Promise.race([early, pause(rampMs + everyMs + settleMs)]);
  await bench.stack.loader.window();
  const cpu = startCpu(bench, variant);
  await Promise.race([early, pause(windowMs)]);
  const used = cpu();
  const memory = { pssMb: pssMb(variant.pid), rssMb: rssMb(variant.pid) };
  const window = await bench.stack.loader.window();
  const { completed } = await running;
  return {
    allFrames: completed * frames,
    cpuMicros: used.proxy / window.frames,
    postgresMicros: used.postgres / window.frames,
    delayP50Ms: window.delayP50Ms,
    delayP99Ms: window.delayP99Ms,
    ...memory,
  };
}

/** The gateway's books against what the load saw; null when they agree. */
export async function checkBooks({ stack, tally }: Bench): Promise<string | null> {
  // Two days, in case midnight passed.
  const from = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
  const to = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
  const answer = await fetch(`${stack.gatewayUrl}/v1/usage/summary?from=${from}&to=${to}`, {
    headers: { authorization: stack.authorization },
  });
  const { totals } = (await answer.json()) as {
    totals: { num_model_requests: number; outcomes: { completed: number }; output_tokens: number };
  };
  const booked = [totals.num_model_requests, totals.outcomes.completed, totals.output_tokens];
  const seen = [tally.requests, tally.requests, tally.outputTokens];
  if (booked.every((value, index) => value === seen[index])) return null;
  return `the books say ${booked.join(' / ')} (requests / completed / output tokens), the load saw ${seen.join(' / ')}`;
}
