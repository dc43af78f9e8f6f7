import { choose, type LoadSample } from '#core/routing/choose-replica.ts';
import { PrefixIndex } from '#core/routing/prefix-index.ts';
import { hashPrompt } from '#core/routing/prompt-blocks.ts';
import { EngineModel, type EngineLimits, type Started } from './engine-model.ts';
import { createRandom, pageTokens, type TraceRequest } from './trace.ts';

export type Policy = 'round robin' | 'least load' | 'prefix affinity';

export interface SimulationOptions {
  readonly policy: Policy;
  readonly replicas: number;
  readonly limits: EngineLimits;
  /** Gateways that send to the same replicas, each request through any of them. */
  readonly gateways: number;
  readonly seed: number;
  readonly blocksMax: number;
}

export interface SimulationResult {
  readonly requests: number;
  /** Prompt tokens that were cached, of all. */
  readonly cachedShare: number;
  readonly firstTokenMsP50: number;
  readonly firstTokenMsP99: number;
  /** Prefill time of the replica that had the most, over the average. */
  readonly workImbalance: number;
  /** Requests at the fullest replica over the average, averaged over the run. */
  readonly loadImbalance: number;
}

/** The gateways ask the engines for their load so often. */
const reportEveryMs = 500;
/** English has about four characters to a token. */
const charactersPerToken = 4;

interface Replica {
  readonly id: string;
  readonly engine: EngineModel;
}

interface Gateway {
  readonly leases: number[];
  readonly samples: (LoadSample | null)[];
  readonly prefixes: PrefixIndex;
  turn: number;
}

interface Ending {
  readonly atMs: number;
  readonly replica: number;
  readonly gateway: number;
  readonly started: Started;
}

/** A prompt as a gateway sees it: text that differs wherever its pages do. */
function promptText({ hash_ids: pages, input_length: tokens }: TraceRequest): string {
  const texts = pages.map((id) => `page ${id}`.padEnd(32, '.').repeat((pageTokens * charactersPerToken) / 32));
  return `[${texts.join('')}`.slice(0, tokens * charactersPerToken);
}

/** Plays a trace against simulated engines; what is decided is decided by the product's own code. */
export function simulate(trace: readonly TraceRequest[], options: SimulationOptions): SimulationResult {
  const { policy, limits, blocksMax } = options;
  const random = createRandom(options.seed);
  const replicas: Replica[] = Array.from({ length: options.replicas }, (_, at) => ({
    id: `replica-${at}`,
    engine: new EngineModel(limits),
  }));
  const gateways: Gateway[] = Array.from({ length: options.gateways }, () => ({
    leases: replicas.map(() => 0),
    samples: replicas.map(() => null),
    prefixes: new PrefixIndex(blocksMax),
    turn: 0,
  }));
  const endings = new Heap();
  const senders = new Map<TraceRequest, { gateway: number; atMs: number }>();
  const firstTokenMs: number[] = [];
  let cachedTokens = 0;
  let inputTokens = 0;
  const imbalances: number[] = [];
  let reportAtMs = 0;

  function route(gateway: Gateway, request: TraceRequest): number {
    if (policy === 'round robin') return gateway.turn++ % replicas.length;
    const text = policy === 'prefix affinity' ? promptText(request) : '';
    const chain = hashPrompt({ text, scope: '', context: [], prompt: { start: 0, end: text.length } });
    const candidates = replicas.map(({ id }, at) => ({
      id,
      leases: gateway.leases[at] ?? 0,
      load: gateway.samples[at] ?? null,
      matchedBlocks: gateway.prefixes.match(id, chain),
    }));
    const choice = choose(candidates, { chain, stickyKey: null }, random);
    if (choice === null) throw new Error('nothing was chosen');
    gateway.prefixes.record(choice.id, chain);
    return replicas.findIndex(({ id }) => id === choice.id);
  }

  function start(at: number, nowMs: number): void {
    const { engine } = replicas[at] ?? fail();
    for (let started = engine.startNext(nowMs); started !== null; started = engine.startNext(nowMs)) {
      const { gateway, atMs } = senders.get(started.request) ?? fail();
      firstTokenMs.push(started.firstTokenAtMs - atMs);
      cachedTokens += started.cachedTokens;
      inputTokens += started.request.input_length;
      endings.push({ atMs: started.endsAtMs, replica: at, gateway, started });
    }
  }

  function report(nowMs: number): void {
    const loads = replicas.map(({ engine }) => engine.running + engine.waiting);
    const total = loads.reduce((sum, load) => sum + load, 0);
    if (total >= replicas.length) imbalances.push((Math.max(...loads) * replicas.length) / total);
    for (const gateway of gateways) {
      for (const [at, { engine }] of replicas.entries()) {
        const { running, waiting } = engine;
        gateway.samples[at] = { running, waiting, atMs: nowMs, leasesThen: gateway.leases[at] ?? 0 };
      }
    }
  }

  function runUntil(untilMs: number): void {
    for (;;) {
      const endsAtMs = endings.first?.atMs ?? Infinity;
      const nextMs = Math.min(endsAtMs, reportAtMs);
      if (nextMs > untilMs) return;
      if (reportAtMs <= endsAtMs) {
        report(reportAtMs);
        reportAtMs += reportEveryMs;
        if (endings.size === 0 && untilMs === Infinity) return;
        continue;
      }
      const { atMs, replica, gateway, started } = endings.pop() ?? fail();
      replicas[replica]?.engine.end(started);
      const { leases } = gateways[gateway] ?? fail();
      leases[replica] = (leases[replica] ?? 0) - 1;
      start(replica, atMs);
    }
  }

  for (const request of trace) {
    runUntil(request.timestamp);
    const number = Math.floor(random() * gateways.length);
    const gateway = gateways[number] ?? fail();
    const at = route(gateway, request);
    gateway.leases[at] = (gateway.leases[at] ?? 0) + 1;
    senders.set(request, { gateway: number, atMs: request.timestamp });
    replicas[at]?.engine.submit(request);
    start(at, request.timestamp);
  }
  runUntil(Infinity);

  const work = replicas.map(({ engine }) => engine.prefillMs);
  const sorted = firstTokenMs.toSorted((a, b) => a - b);
  return {
    requests: sorted.length,
    cachedShare: cachedTokens / inputTokens,
    firstTokenMsP50: sorted[Math.floor(sorted.length * 0.5)] ?? 0,
    firstTokenMsP99: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
    workImbalance: (Math.max(...work) * work.length) / work.reduce((sum, ms) => sum + ms, 0),
    loadImbalance: imbalances.reduce((sum, one) => sum + one, 0) / imbalances.length,
  };
}

function fail(): never {
  throw new Error('the simulation lost count');
}

/** A binary heap of what ends next. */
class Heap {
  readonly #items: Ending[] = [];

  get first(): Ending | undefined {
    return this.#items[0];
  }

  get size(): number {
    return this.#items.length;
  }

  push(item: Ending): void {
    let at = this.#items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      if (this.#atMs(parent) <= item.atMs) break;
      this.#swap(at, parent);
      at = parent;
    }
  }

  pop(): Ending | undefined {
    this.#swap(0, this.#items.length - 1);
    const item = this.#items.pop();
    for (let at = 0; ;) {
      const left = at * 2 + 1;
      const least = this.#atMs(left + 1) < this.#atMs(left) ? left + 1 : left;
      if (this.#atMs(least) >= this.#atMs(at)) return item;
      this.#swap(at, least);
      at = least;
    }
  }

  #atMs(at: number): number {
    return this.#items[at]?.atMs ?? Infinity;
  }

  #swap(a: number, b: number): void {
    const [first, second] = [this.#items[a], this.#items[b]];
    if (first === undefined || second === undefined) return;
    this.#items[a] = second;
    this.#items[b] = first;
  }
}
