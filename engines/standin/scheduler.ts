import { observe, type Metrics } from './metrics.ts';

export type FinishReason = 'stop' | 'length' | 'abort';

/** How long tokens take. */
interface Pace {
  ttftMs: number;
  tpotMs: number;
  jitter: number;
}

/** One running generation: one choice of one request. */
export interface Sequence {
  /** Its id for `/abort_requests`. */
  id: string;
  promptTokens: number;
  cachedTokens: number;
  pace: Pace;
  /** Tokens made in one turn of the event loop when nothing slows them down. */
  burst: number;
  /** Makes the next token; returns true when it was the last. */
  step: (generated: number) => boolean;
  /** Told when the engine ends the sequence before its last token. */
  aborted: () => void;
  generated: number;
  state: 'new' | 'waiting' | 'running' | 'done';
  submittedMs: number;
  dueMs: number;
}

const CATCH_UP_TOKENS_MAX = 64;
/** The ticker looks this far for its next sequence, and sleeps no longer. */
const LOOK_AHEAD_MS = 50;
/** A sequence that fell behind further than this goes on from now instead of catching up. */
const LAG_MS_MAX = 50;

/** Spreads a time by its jitter. */
function spread(ms: number, jitter: number): number {
  return jitter === 0 ? ms : ms * (1 + (Math.random() * 2 - 1) * jitter);
}

/**
 * Runs sequences as a continuous-batching engine does: up to `sequencesMax` at once, the rest in a queue. Sequences
 * that wait for time share one ticker with a bucket per millisecond; the others share one turn of the event loop.
 */
export class Scheduler {
  readonly #metrics: Metrics;
  readonly #now: () => number;
  readonly #sequencesMax: number;
  readonly #readsInPieces: boolean;
  readonly #onToken: ((sequence: Sequence) => void) | null;
  readonly #queue = new Set<Sequence>();
  readonly #byId = new Map<string, Set<Sequence>>();
  readonly #buckets = new Map<number, Sequence[]>();
  #eager: Sequence[] = [];
  #running = 0;
  #paused = false;
  #frozen = false;
  #pumping = false;
  #cacheTokens = 0;
  #ticker: NodeJS.Timeout | null = null;
  #ticking = false;
  /** When the ticker goes off next. */
  #wakeMs = 0;
  #tickedMs = 0;

  constructor(options: {
    sequencesMax: number;
    readsInPieces: boolean;
    metrics: Metrics;
    now: () => number;
    onToken: ((sequence: Sequence) => void) | null;
  }) {
    this.#metrics = options.metrics;
    this.#now = options.now;
    this.#sequencesMax = options.sequencesMax;
    this.#readsInPieces = options.readsInPieces;
    this.#onToken = options.onToken;
  }

  /** Sequences that are generating. */
  get running(): number {
    return this.#running;
  }

  /** Sequences in the queue. */
  get waiting(): number {
    return this.#queue.size;
  }

  submit(sequence: Sequence): void {
    sequence.submittedMs = this.#now();
    const same = this.#byId.get(sequence.id);
    if (same === undefined) this.#byId.set(sequence.id, new Set([sequence]));
    else same.add(sequence);
    if (!this.#paused && this.#running < this.#sequencesMax && this.#queue.size === 0) {
      this.#run(sequence);
      return;
    }
    sequence.state = 'waiting';
    this.#queue.add(sequence);
  }

  /** Takes a sequence out without a word, as when its client has left. */
  drop(sequence: Sequence): void {
    if (sequence.state === 'done' || sequence.state === 'new') return;
    this.#metrics.abortedRequests += 1;
    this.#release(sequence);
  }

  /** Ends every sequence of these ids through `aborted`. */
  abort(ids: Iterable<string>): void {
    for (const id of ids) {
      for (const sequence of this.#byId.get(id) ?? []) {
        if (sequence.state === 'done') continue;
        this.drop(sequence);
        sequence.aborted();
      }
    }
  }

  abortAll(): void {
    this.abort([...this.#byId.keys()]);
  }

  /** While paused, requests are taken and wait. */
  pause(paused: boolean): void {
    this.#paused = paused;
    if (this.#frozen && !paused) this.#thaw();
    this.#admitWaiting();
  }

  /** Stops the running sequences too, as a dead GPU does. */
  freeze(): void {
    this.cacheTokens();
    this.#paused = true;
    this.#frozen = true;
  }

  #thaw(): void {
    this.#frozen = false;
    if (this.#pumping) setImmediate(() => this.#pump());
    if (this.#buckets.size > 0) this.#wakeAt(this.#tickedMs + 1);
  }

  /** Tokens in the cache. Of a prompt that is read in pieces, a part is there before the first token. */
  cacheTokens(): number {
    if (this.#frozen) return this.#cacheTokens;
    const running = [...this.#byId.values()].flatMap((same) => [...same]).filter(({ state }) => state === 'running');
    this.#cacheTokens = running.reduce((sum, sequence) => sum + sequence.generated + this.#tokensRead(sequence), 0);
    return this.#cacheTokens;
  }

  #tokensRead({ generated, promptTokens, pace, dueMs }: Sequence): number {
    if (generated > 0 || pace.ttftMs === 0) return promptTokens;
    const unread = Math.min(1, Math.max(0, dueMs - this.#now()) / pace.ttftMs);
    return this.#readsInPieces ? Math.round(promptTokens * (1 - unread)) : 0;
  }

  #release(sequence: Sequence): void {
    if (sequence.state === 'running') this.#running -= 1;
    this.#queue.delete(sequence);
    sequence.state = 'done';
    const same = this.#byId.get(sequence.id);
    same?.delete(sequence);
    if (same?.size === 0) this.#byId.delete(sequence.id);
    this.#admitWaiting();
  }

  #admitWaiting(): void {
    if (this.#paused) return;
    for (const sequence of this.#queue) {
      if (this.#running >= this.#sequencesMax) return;
      this.#queue.delete(sequence);
      this.#run(sequence);
    }
  }

  #run(sequence: Sequence): void {
    sequence.state = 'running';
    this.#running += 1;
    const { ttftMs, tpotMs, jitter } = sequence.pace;
    if (ttftMs === 0 && tpotMs === 0) {
      this.#startEager(sequence);
      return;
    }
    sequence.dueMs = this.#now() + spread(ttftMs === 0 ? tpotMs : ttftMs, jitter);
    this.#park(sequence);
  }

  #makeToken(sequence: Sequence): void {
    const metrics = this.#metrics;
    if (sequence.generated === 0) {
      metrics.promptTokens += sequence.promptTokens;
      metrics.cachedPromptTokens += sequence.cachedTokens;
      metrics.prefixQueries += sequence.promptTokens;
      metrics.prefixHits += sequence.cachedTokens;
      observe(metrics.firstTokenSeconds, (this.#now() - sequence.submittedMs) / 1000);
    }
    sequence.generated += 1;
    metrics.generationTokens += 1;
    this.#onToken?.(sequence);
    const last = sequence.step(sequence.generated);
    if (last && sequence.state === 'running') this.#release(sequence);
  }

  #startEager(sequence: Sequence): void {
    this.#eager.push(sequence);
    if (this.#pumping) return;
    this.#pumping = true;
    setImmediate(() => this.#pump());
  }

  #pump(): void {
    if (this.#frozen) return;
    const turn = this.#eager;
    this.#eager = [];
    for (const sequence of turn) {
      for (let made = 0; made < sequence.burst && sequence.state === 'running'; made += 1) this.#makeToken(sequence);
      if (sequence.state === 'running') this.#eager.push(sequence);
    }
    this.#pumping = this.#eager.length > 0;
    if (this.#pumping) setImmediate(() => this.#pump());
  }

  #park(sequence: Sequence): void {
    if (this.#ticker === null && !this.#ticking) this.#tickedMs = Math.max(this.#tickedMs, Math.floor(this.#now()) - 1);
    const slot = Math.max(Math.ceil(sequence.dueMs), this.#tickedMs + 1);
    const bucket = this.#buckets.get(slot);
    if (bucket === undefined) this.#buckets.set(slot, [sequence]);
    else bucket.push(sequence);
    if (this.#ticking || (this.#ticker !== null && this.#wakeMs <= slot)) return;
    this.#wakeAt(slot);
  }

  /** Sets the one timer. */
  #wakeAt(slotMs: number): void {
    if (this.#ticker !== null) clearTimeout(this.#ticker);
    this.#wakeMs = slotMs;
    this.#ticker = setTimeout(() => this.#tick(), Math.max(1, slotMs - this.#now()));
  }

  #tick(): void {
    const atMs = Math.floor(this.#now());
    this.#ticker = null;
    if (this.#frozen) return;
    this.#ticking = true;
    while (this.#tickedMs < atMs) {
      this.#tickedMs += 1;
      const due = this.#buckets.get(this.#tickedMs);
      if (due === undefined) continue;
      this.#buckets.delete(this.#tickedMs);
      for (const sequence of due) if (sequence.state === 'running') this.#advance(sequence, atMs);
    }
    this.#ticking = false;
    if (this.#buckets.size === 0) return;
    let next = this.#tickedMs + 1;
    while (next < atMs + LOOK_AHEAD_MS && !this.#buckets.has(next)) next += 1;
    this.#wakeAt(next);
  }

  #advance(sequence: Sequence, atMs: number): void {
    const { tpotMs, jitter } = sequence.pace;
    for (let made = 0; made < CATCH_UP_TOKENS_MAX; made += 1) {
      this.#makeToken(sequence);
      if (sequence.state !== 'running') return;
      if (tpotMs === 0) {
        this.#startEager(sequence);
        return;
      }
      sequence.dueMs += spread(tpotMs, jitter);
      if (sequence.dueMs > atMs) break;
    }
    if (sequence.dueMs < atMs - LAG_MS_MAX) sequence.dueMs = atMs;
    this.#park(sequence);
  }
}
