import type { InferenceKey } from './api.ts';
import { type Ask, askOnce, type Seen, type Where } from './client.ts';
import { type Random, randomOf } from '#test/random.ts';
import { sleep } from './wait.ts';

/** Clients that send requests all the time, each by choices that only the seed decides, and record the answers. */
export interface Workload {
  readonly seen: readonly Seen[];
  /** Lets what runs come to its end. */
  stop(): Promise<void>;
}

export interface WorkloadOptions {
  readonly seed: number;
  readonly clients: number;
  readonly keys: readonly InferenceKey[];
  /** Gateways that may be asked, as they are at the moment. */
  readonly where: () => readonly Where[];
  /** Share of streams among all requests; the others are JSON. */
  readonly streams?: number;
  /** Share of all requests that clients leave midway. */
  readonly leaving?: number;
  /** Share of requests with an Idempotency-Key, which clients repeat until there is an answer; of all that stay. */
  readonly repeating?: number;
  readonly outputTokensMax?: number;
  /** Milliseconds between two tokens, at most. */
  readonly paceMsMax?: number;
  /** Milliseconds from the beginning of a client's request to the next: nobody waits for what is not answered. */
  readonly everyMs?: number;
}

const repeatsMax = 20;
const repeatPauseMs = 250;

export function startWorkload(options: WorkloadOptions): Workload {
  const seen: Seen[] = [];
  let isOver = false;
  const running = Array.from({ length: options.clients }, (_, client) =>
    runClient(options, client, { seen, isOver: () => isOver }),
  );
  return {
    seen,
    async stop() {
      isOver = true;
      await Promise.all(running);
    },
  };
}

interface Notes {
  readonly seen: Seen[];
  readonly isOver: () => boolean;
}

async function runClient(options: WorkloadOptions, client: number, notes: Notes): Promise<void> {
  const { seed, clients, everyMs = 250 } = options;
  const running: Promise<void>[] = [];
  await sleep((everyMs * client) / clients);
  for (let number = 0; !notes.isOver(); number += 1) {
    // One random source per request: the fate of one request does not change the next.
    const random = randomOf(seed, `client ${client} request ${number}`);
    running.push(askUntilAnswered(options, { random, ask: askOf(options, random, `c${client}-${number}`) }, notes));
    await sleep(everyMs);
  }
  await Promise.all(running);
}

/** The same draws in the same order for every request. */
export function askOf(options: Omit<WorkloadOptions, 'where' | 'clients' | 'seed'>, random: Random, name: string): Ask {
  const { streams = 0.6, leaving = 0.1, repeating = 0.2, outputTokensMax = 40, paceMsMax = 10 } = options;
  const key = random.pick(options.keys);
  const stream = random.chance(streams);
  const tokens = 1 + random.below(outputTokensMax);
  const firstMs = random.below(paceMsMax + 1);
  const paceMs = random.below(paceMsMax + 1);
  const isLeaving = random.chance(leaving);
  const leaveAt = random.next();
  const isRepeating = random.chance(repeating);
  const plannedMs = firstMs + paceMs * (tokens - 1);
  return {
    secret: key.secret,
    stream,
    maxTokens: tokens,
    standin: { ttft_ms: firstMs, tpot_ms: paceMs },
    plannedMs,
    leaveMs: isLeaving ? 5 + leaveAt * plannedMs : null,
    idempotencyKey: !isLeaving && isRepeating ? `key of ${name}` : null,
    name,
  };
}

interface Turn {
  readonly random: Random;
  readonly ask: Ask;
}

async function askUntilAnswered(options: WorkloadOptions, { random, ask }: Turn, notes: Notes): Promise<void> {
  for (let repeat = 0; repeat <= repeatsMax; repeat += 1) {
    const where = options.where();
    const choice = random.next();
    const chosen = where[Math.floor(choice * where.length)];
    if (chosen === undefined) {
      await sleep(repeatPauseMs);
      continue;
    }
    const seen = await askOnce(chosen, ask);
    notes.seen.push(seen);
    if (ask.idempotencyKey === null || seen.complete || isFinal(seen) || notes.isOver()) return;
    await sleep(repeatPauseMs);
  }
}

/** Nothing else comes when it is repeated. */
const isFinal = ({ status }: Seen): boolean => status >= 400 && status < 500 && status !== 409 && status !== 429;
