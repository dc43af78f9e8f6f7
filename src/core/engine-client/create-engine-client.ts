import { createSlotList } from '#base/queues/queues.ts';
import { type CoarseClock, createCoarseClock } from './coarse-clock.ts';
import type { EngineClient, EngineClientOptions, EngineRequest } from './engine-call.ts';
import { type ClientContext, HttpExchange } from './http-exchange.ts';
import { createSocketPool } from './socket-pool.ts';

const pathPattern = /^\/[\x21-\x7e]*$/;
// A character above 0xff would lose its upper half when sent, and could become a line break.
const headerLinesPattern = /^(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/;

const stepMsMin = 5;
const stepMsMax = 500;
const stepsPerLimit = 8;

/**
 * Creates an HTTP/1.1 client for engines over TCP, TLS and unix sockets. It keeps reusable connections. If a kept
 * connection turns out to be closed before any byte of an answer, the request is sent once more on a new connection,
 * and never otherwise. Throws an Error for a limit that is not above 0.
 */
export function createEngineClient(options: EngineClientOptions): EngineClient {
  const running = createSlotList<HttpExchange>();
  const clock: CoarseClock = createCoarseClock(stepMsOf(options), () => {
    running.forEach((exchange) => exchange.checkLimits());
    pool.sweep();
    return running.size > 0 || pool.stats().open > 0;
  });
  const pool = createSocketPool({ clock: () => clock, idleSocketMs: options.idleSocketMs, tlsCa: options.tlsCa });
  const context: ClientContext = { options, clock, pool, running, onSinkError: options.onSinkError ?? warn };
  let closed = false;

  return {
    call(endpoint, request, sink) {
      assertWellFormed(request);
      const exchange = new HttpExchange(context, endpoint, request, sink);
      if (closed) {
        queueMicrotask(() => exchange.fail('refused'));
        return exchange;
      }
      clock.wake();
      exchange.start();
      return exchange;
    },

    giveUp(endpoint) {
      const origin = pool.originOf(endpoint);
      running.forEach((exchange) => exchange.giveUp(origin));
    },

    close() {
      closed = true;
      running.forEach((exchange) => exchange.abandon());
      pool.closeIdle();
      clock.stop();
    },

    stats: () => pool.stats(),
  };
}

function stepMsOf(options: EngineClientOptions): number {
  const { firstByteTimeoutMs, idleTimeoutMs, connectTimeoutMs, idleSocketMs, maxHeaderBytes } = options;
  const limits = { firstByteTimeoutMs, idleTimeoutMs, connectTimeoutMs, idleSocketMs, maxHeaderBytes };
  for (const [name, value] of Object.entries(limits)) {
    if (!(value > 0)) throw new Error(`engine client: ${name} must be above 0`);
  }
  const shortest = Math.min(firstByteTimeoutMs, idleTimeoutMs, connectTimeoutMs, idleSocketMs);
  return Math.max(stepMsMin, Math.min(stepMsMax, Math.floor(shortest / stepsPerLimit)));
}

function assertWellFormed(request: EngineRequest): void {
  if (!pathPattern.test(request.path)) throw new Error('engine request: malformed path');
  if (!headerLinesPattern.test(request.headerLines)) throw new Error('engine request: malformed header lines');
}

function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : new Error(String(error)));
}
