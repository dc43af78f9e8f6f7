import { pageTokens, type TraceRequest } from './trace.ts';

/** Tokens in a block of vLLM's prefix cache. */
const blockTokens = 16;
const blocksPerPage = pageTokens / blockTokens;

/** Abilities of a simulated engine; by default about those of an 80 GB GPU and a model of 8 billion parameters. */
export interface EngineLimits {
  readonly kvBlocks: number;
  readonly runningMax: number;
  readonly prefillTokensPerSecond: number;
  /** Time of one output token, for the request by itself and for each request that runs beside it. */
  readonly tokenMs: number;
  readonly tokenMsPerRequest: number;
}

export const defaultLimits: EngineLimits = {
  kvBlocks: 800_000 / blockTokens,
  runningMax: 128,
  prefillTokensPerSecond: 12_000,
  tokenMs: 12,
  tokenMsPerRequest: 0.4,
};

/** A request that has been started. */
export interface Started {
  readonly request: TraceRequest;
  readonly cachedTokens: number;
  readonly firstTokenAtMs: number;
  readonly endsAtMs: number;
  readonly blocks: readonly number[];
  readonly outputBlocks: number;
}

/**
 * An engine as vLLM schedules: requests wait in the order they came until there is a place and KV memory, prompts are
 * read one after the other, then all that run make a token in turn. Blocks that no request uses stay in the prefix
 * cache until their memory is needed, the longest unused first and the ends of prompts before their beginnings.
 */
export class EngineModel {
  readonly #limits: EngineLimits;
  readonly #waiting: TraceRequest[] = [];
  /** How many running requests use a block. */
  readonly #used = new Map<number, number>();
  readonly #free = new Set<number>();
  #outputBlocks = 0;
  #running = 0;
  #prefillFreeAtMs = 0;
  /** Milliseconds of prefill so far. */
  prefillMs = 0;

  constructor(limits: EngineLimits) {
    this.#limits = limits;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  submit(request: TraceRequest): void {
    this.#waiting.push(request);
  }

  /** Starts the next request that waits, if it fits. */
  startNext(nowMs: number): Started | null {
    const request = this.#waiting[0];
    if (request === undefined || this.#running >= this.#limits.runningMax) return null;
    const blocks = blocksOf(request);
    const outputBlocks = Math.ceil(request.output_length / blockTokens);
    const known = blocks.findIndex((block) => !this.#used.has(block) && !this.#free.has(block));
    // The last token is always computed, so a prompt is never cached as a whole.
    const cachedBlocks = known === -1 ? Math.max(0, blocks.length - 1) : known;
    const unpinned = blocks.filter((block) => !this.#used.has(block)).length;
    if (this.#used.size + this.#outputBlocks + unpinned + outputBlocks > this.#limits.kvBlocks && this.#running > 0) {
      return null;
    }
    this.#waiting.shift();
    this.#pin(blocks, outputBlocks);
    this.#running += 1;
    const cachedTokens = cachedBlocks * blockTokens;
    const { prefillTokensPerSecond, tokenMs, tokenMsPerRequest } = this.#limits;
    const prefillMs = ((request.input_length - cachedTokens) / prefillTokensPerSecond) * 1000;
    this.prefillMs += prefillMs;
    this.#prefillFreeAtMs = Math.max(nowMs, this.#prefillFreeAtMs) + prefillMs;
    const firstTokenAtMs = this.#prefillFreeAtMs;
    const endsAtMs = firstTokenAtMs + request.output_length * (tokenMs + tokenMsPerRequest * this.#running);
    return { request, cachedTokens, firstTokenAtMs, endsAtMs, blocks, outputBlocks };
  }

  end({ blocks, outputBlocks }: Started): void {
    this.#running -= 1;
    this.#outputBlocks -= outputBlocks;
    for (const block of blocks.toReversed()) {
      const users = (this.#used.get(block) ?? 1) - 1;
      if (users > 0) this.#used.set(block, users);
      else {
        this.#used.delete(block);
        this.#free.add(block);
      }
    }
  }

  #pin(blocks: readonly number[], outputBlocks: number): void {
    for (const block of blocks) {
      this.#free.delete(block);
      this.#used.set(block, (this.#used.get(block) ?? 0) + 1);
    }
    this.#outputBlocks += outputBlocks;
    let over = this.#used.size + this.#outputBlocks + this.#free.size - this.#limits.kvBlocks;
    if (over <= 0) return;
    for (const oldest of this.#free) {
      this.#free.delete(oldest);
      over -= 1;
      if (over <= 0) return;
    }
  }
}

/** The prompt's full blocks; a page's id stands for all before it, so that its parts need nothing more. */
function blocksOf({ hash_ids: pages, input_length: tokens }: TraceRequest): number[] {
  const count = Math.floor(tokens / blockTokens);
  return Array.from({ length: count }, (_, at) => {
    const page = pages[Math.floor(at / blocksPerPage)] ?? -1;
    return page * blocksPerPage + (at % blocksPerPage);
  });
}
