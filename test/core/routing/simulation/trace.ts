/**
 * Requests in the format of the Mooncake traces (Qin et al., "Mooncake: Trading More Storage for Less Computation",
 * FAST '25; github.com/kvcache-ai/Mooncake, FAST25-release/traces): when they come, how long they are, and one id for
 * each 512 tokens of the prompt and all that stands before them.
 */
export interface TraceRequest {
  /** Milliseconds since the first request. */
  readonly timestamp: number;
  readonly input_length: number;
  readonly output_length: number;
  /** The last one may stand for fewer than 512 tokens. */
  readonly hash_ids: readonly number[];
}

export const pageTokens = 512;

/** @param text JSON Lines, as published */
export function parseTrace(text: string): TraceRequest[] {
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as TraceRequest);
}

/** A repeatable source of numbers in [0, 1): mulberry32 (Tommy Ettinger, public domain). */
export function createRandom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/**
 * The shape of conversation_trace.jsonl (12,031 requests of one hour; its README gives an average input of 12,035 and
 * output of 343 tokens), as quantiles [share, value] counted on the file. Requests were taken for turns of one
 * conversation where the one repeats all but the last block of the other.
 */
const shape = {
  conversationsPerSecond: 8010 / 3537,
  /** Odds that another turn follows the first, the second, any later one; 1.5 turns on average. */
  nextTurn: [0.26, 0.39, 0.5],
  turnsMax: 25,
  firstPromptTokens: [
    [0, 520],
    [0.1, 907],
    [0.25, 1475],
    [0.5, 5942],
    [0.75, 14_349],
    [0.9, 26_527],
    [0.99, 85_000],
    [1, 123_000],
  ],
  outputTokens: [
    [0, 1],
    [0.1, 24],
    [0.25, 156],
    [0.5, 350],
    [0.75, 472],
    [0.9, 597],
    [0.99, 1115],
    [1, 2000],
  ],
  /** Tokens that a turn adds to the prompt beside the answer before it. */
  addedTokens: [
    [0, 1],
    [0.25, 9],
    [0.5, 26],
    [0.75, 370],
    [0.9, 4267],
    [0.99, 14_000],
    [1, 40_000],
  ],
  /** Between the beginnings of two turns. */
  pauseSeconds: [
    [0, 10],
    [0.1, 39],
    [0.25, 66],
    [0.5, 123],
    [0.75, 264],
    [0.9, 474],
    [0.99, 1452],
    [1, 2400],
  ],
} as const;

type Quantiles = readonly (readonly [number, number])[];

function drawFrom(quantiles: Quantiles, random: () => number): number {
  const share = random();
  let [below, low] = quantiles[0] ?? [0, 0];
  for (const [above, high] of quantiles) {
    // Between two quantiles lengths and times are spread evenly in their logarithm.
    if (share <= above && above > below) return low * (high / low) ** ((share - below) / (above - below));
    [below, low] = [above, high];
  }
  return low;
}

export interface TraceOptions {
  readonly seconds: number;
  readonly seed: number;
  /** Conversations a second, as a multiple of the trace's. */
  readonly rate?: number;
  /**
   * System prompts, of which each conversation begins with one. The trace has a single one of one block; several longer
   * ones are what a gateway sees that serves several applications. The first has as much as all others, and so on.
   */
  readonly systemPrompts?: number;
  readonly systemPages?: number;
}

/** A trace of that shape. */
export function makeTrace({
  seconds,
  seed,
  rate = 1,
  systemPrompts = 1,
  systemPages = 1,
}: TraceOptions): TraceRequest[] {
  const random = createRandom(seed);
  const requests: TraceRequest[] = [];
  let nextId = systemPrompts * systemPages;
  const newPage = (): number => nextId++;

  function converse(startMs: number): void {
    const system = systemOf(random, systemPrompts);
    const pages = Array.from({ length: systemPages }, (_, at) => system * systemPages + at);
    let tokens = Math.round(drawFrom(shape.firstPromptTokens, random)) + (systemPages - 1) * pageTokens;
    let atMs = startMs;
    for (let turn = 0; turn < shape.turnsMax && atMs < seconds * 1000; turn += 1) {
      while (pages.length < Math.floor(tokens / pageTokens)) pages.push(newPage());
      const output = Math.round(drawFrom(shape.outputTokens, random));
      const hashIds = tokens % pageTokens === 0 ? [...pages] : [...pages, newPage()];
      requests.push({ timestamp: Math.round(atMs), input_length: tokens, output_length: output, hash_ids: hashIds });
      if (random() >= (shape.nextTurn[turn] ?? 0.5)) return;
      tokens += output + Math.round(drawFrom(shape.addedTokens, random));
      atMs += drawFrom(shape.pauseSeconds, random) * 1000;
    }
  }

  const perMs = (shape.conversationsPerSecond * rate) / 1000;
  for (let atMs = 0; atMs < seconds * 1000; atMs += -Math.log(1 - random()) / perMs) converse(atMs);
  return requests.toSorted((a, b) => a.timestamp - b.timestamp);
}

function systemOf(random: () => number, systemPrompts: number): number {
  for (let system = 0; system < systemPrompts - 1; system += 1) if (random() < 0.5) return system;
  return systemPrompts - 1;
}
