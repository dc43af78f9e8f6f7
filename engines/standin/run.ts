import type { Options } from './args.ts';
import { ENGINE_DEAD, errorFrame, refusal } from './errors.ts';
import type { Exchange } from './http.ts';
import type { Knobs } from './knobs.ts';
import { observe, type Metrics } from './metrics.ts';
import type { Params } from './params.ts';
import type { CacheUse, createPrefixCache } from './prefix-cache.ts';
import type { FinishReason, Scheduler, Sequence } from './scheduler.ts';
import type { Script } from './script.ts';
import type { PromptScan } from './tokenizer.ts';
import type { Totals } from './usage.ts';

/** An answer under way, as the end of the engine sees it. */
export interface OpenAnswer {
  /** Ends it as the death of the engine does: an error frame, or a 500. */
  die: () => void;
  /** Cuts a stream as the end of a drain does; a JSON answer is left hanging. */
  cutStream: () => void;
}

/** State that all requests share. */
export interface Engine {
  options: Options;
  metrics: Metrics;
  scheduler: Scheduler;
  cache: ReturnType<typeof createPrefixCache>;
  fingerprint: string;
  /** Requests that are being answered, notified when the engine dies. */
  runs: Set<OpenAnswer>;
  now: () => number;
  /** Parts that are not in the GPU's memory: by vLLM's names `weights`, `kv_cache`; it sleeps while there is any. */
  asleep: Set<string>;
  paused: boolean;
  /** Set once a draining engine takes no new work. */
  refusing: boolean;
}

/** One choice while it is generated. */
export interface Choice {
  index: number;
  script: Script;
  sequence: Sequence;
  prompt: PromptScan;
  /** Text that no frame has carried yet; for a JSON answer the whole text. */
  text: string;
  reasoning: string;
  /** Tokens since the last frame, kept only where they are printed. */
  tokens: string[];
  /** Tokens generated when the last frame left. */
  framedAt: number;
  thoughts: number;
  finish: FinishReason | null;
  stopReason: string | null;
}

/** The part of a choice that a frame carries. */
export interface Part {
  text: string;
  reasoning: string;
  tool: string | null;
  tokens: readonly string[];
  /** Index of the first of `tokens`. */
  from: number;
  thinking: boolean;
}

/** How an endpoint prints what the engine makes. */
export interface Format {
  /** Frames before the first token's. */
  opening: (choices: readonly Choice[]) => string[];
  /** The frame for a part, or null where vLLM sends none. */
  frame: (choice: Choice, part: Part) => string | null;
  usageFrame: (totals: Totals) => string;
  body: (choices: readonly Choice[], totals: Totals) => string;
}

interface RunOptions {
  engine: Engine;
  exchange: Exchange;
  params: Params;
  knobs: Knobs;
  format: Format;
  choices: Choice[];
  /** Prompt tokens as usage says them: each prompt once. */
  promptTokens: number;
  cacheUse: CacheUse;
}

const DONE = 'data: [DONE]\n\n';
const JSON_BURST_TOKENS = 64;
const GARBAGE_BODY = '{"id":"chatcmpl-garbage","choices":[{"ind';
const GARBAGE_FRAME = `data: ${GARBAGE_BODY}\n\n`;
/** A chunk that promises more bytes than follow. */
const HALF_FRAME = '1ff\r\ndata: {"id":"chatcmpl-';
const HALF_ANSWER = 'HTTP/1.1 200 OK\r\ncontent-length: 700\r\ncontent-type: application/json\r\n\r\n{"id":"chatcmpl-';

/** Makes a choice; `id` is what `/abort_requests` knows it by. */
export function createChoice(options: {
  index: number;
  id: string;
  script: Script;
  prompt: PromptScan;
  cachedTokens: number;
  params: Params;
  knobs: Knobs;
}): Choice {
  const { knobs, params, prompt } = options;
  const sequence: Sequence = {
    id: options.id,
    promptTokens: prompt.count,
    cachedTokens: options.cachedTokens,
    pace: { ttftMs: knobs.ttft_ms ?? 0, tpotMs: knobs.tpot_ms ?? 0, jitter: knobs.jitter ?? 0 },
    burst: params.stream ? 1 : JSON_BURST_TOKENS,
    step: () => true,
    aborted: () => undefined,
    generated: 0,
    state: 'new',
    submittedMs: 0,
    dueMs: 0,
  };
  return {
    index: options.index,
    script: options.script,
    sequence,
    prompt,
    text: '',
    reasoning: '',
    tokens: [],
    framedAt: 0,
    thoughts: 0,
    finish: null,
    stopReason: null,
  };
}

/** Looks for a stop string in the text that is not out yet; cuts the text there. */
function findStop(choice: Choice, params: Params, added: number): string | null {
  for (const stop of params.stop) {
    const from = Math.max(0, choice.text.length - added - stop.length);
    const at = choice.text.indexOf(stop, from);
    if (at < 0) continue;
    choice.text = choice.text.slice(0, params.includeStop ? at + stop.length : at);
    return stop;
  }
  return null;
}

function faultPoint(knobs: Knobs): number {
  const points = [knobs.error_after, knobs.cut_after, knobs.garbage_after, knobs.abort_after];
  points.push(knobs.reset_after, knobs.die_after);
  if (knobs.hang === 'after_tokens') points.push(knobs.hang_after ?? 1);
  return Math.min(...points.map((point) => point ?? Number.POSITIVE_INFINITY));
}

/** One request from its first token to the end of its answer. */
class Run implements OpenAnswer {
  readonly #options: RunOptions;
  readonly #startedMs: number;
  readonly #holdChars: number;
  readonly #keepTokens: boolean;
  #faultAt: number;
  #made = 0;
  #opened = false;
  #open: number;
  #over = false;

  constructor(options: RunOptions) {
    const { params, knobs, engine, choices } = options;
    this.#options = options;
    this.#startedMs = engine.now();
    this.#holdChars = params.stop.reduce((most, stop) => Math.max(most, stop.length - 1), 0);
    this.#keepTokens = params.logprobs !== null || params.returnTokenIds;
    this.#faultAt = faultPoint(knobs);
    this.#open = choices.length;
  }

  start(): void {
    const { engine, exchange, params, knobs, choices } = this.#options;
    engine.runs.add(this);
    exchange.onGone(() => this.#close());
    if (knobs.one_write === true) exchange.holdFrames();
    if (knobs.comments === true) exchange.sendComments();
    if ((knobs.reset_after === 0 || knobs.die_after === 0) && this.#misbehave()) return;
    if (params.stream && knobs.hang !== 'before_headers') exchange.openStream();
    if (knobs.hang === 'before_headers' || knobs.hang === 'after_headers') return;
    if (this.#faultAt === 0 && this.#misbehave()) return;
    for (const choice of choices) {
      choice.sequence.step = (generated) => this.#step(choice, generated);
      choice.sequence.aborted = () => {
        this.#finish(choice, 'abort');
        if (this.#open === 0) this.#complete();
      };
      engine.scheduler.submit(choice.sequence);
    }
  }

  /** Ends the answer as the death of the engine does. */
  die(): void {
    this.#breakOff(ENGINE_DEAD);
  }

  cutStream(): void {
    const { engine, exchange, params, choices } = this.#options;
    for (const choice of choices) if (choice.finish === null) engine.scheduler.drop(choice.sequence);
    if (!params.stream) return;
    this.#close();
    exchange.destroy();
  }

  #totals(): Totals {
    const { choices, promptTokens, cacheUse } = this.#options;
    return {
      promptTokens,
      completionTokens: choices.reduce((sum, choice) => sum + choice.sequence.generated, 0),
      reasoningTokens: choices.reduce((sum, choice) => sum + choice.thoughts, 0),
      cachedTokens: cacheUse.cachedTokens,
      createdTokens: cacheUse.createdTokens,
    };
  }

  #close(): void {
    const { engine, choices } = this.#options;
    this.#over = true;
    engine.runs.delete(this);
    for (const choice of choices) if (choice.finish === null) engine.scheduler.drop(choice.sequence);
  }

  #openAnswer(): void {
    if (this.#opened || !this.#options.params.stream) return;
    this.#opened = true;
    for (const frame of this.#options.format.opening(this.#options.choices)) this.#options.exchange.frame(frame);
  }

  #complete(): void {
    const { exchange, params, format, choices } = this.#options;
    this.#close();
    if (!params.stream) {
      exchange.json(200, format.body(choices, this.#totals()));
      return;
    }
    this.#openAnswer();
    if (params.usage !== 'none') exchange.frame(format.usageFrame(this.#totals()));
    exchange.frame(DONE);
    exchange.endStream();
  }

  #step(choice: Choice, generated: number): boolean {
    const { params } = this.#options;
    const { script } = choice;
    const index = generated - 1;
    const piece = script.next(index);
    const channel = script.channel(index);
    this.#made += 1;
    if (!this.#opened) this.#openAnswer();
    if (this.#keepTokens) choice.tokens.push(piece);
    if (index < script.thoughts) choice.thoughts += 1;
    if (channel === 'content') choice.text += piece;
    else if (channel === 'reasoning') choice.reasoning += piece;
    let reason: FinishReason | null = generated >= script.length ? script.end : null;
    if (channel === 'content' && this.#stopped(choice, piece.length)) reason = 'stop';
    if (reason !== null) this.#finish(choice, reason);
    else if (params.stream) this.#stream(choice, script.toolDelta(index));
    if (this.#made >= this.#faultAt && this.#misbehave()) return true;
    if (this.#open === 0) this.#complete();
    return reason !== null;
  }

  #stopped(choice: Choice, added: number): boolean {
    const { params } = this.#options;
    if (params.stop.length === 0 || choice.sequence.generated < params.minTokens) return false;
    choice.stopReason = findStop(choice, params, added);
    return choice.stopReason !== null;
  }

  #stream(choice: Choice, tool: string | null): void {
    if (tool === null) {
      this.#emit(choice);
      return;
    }
    const { format, exchange } = this.#options;
    const part = {
      text: '',
      reasoning: '',
      tool,
      tokens: choice.tokens,
      from: choice.sequence.generated - 1,
      thinking: false,
    };
    const frame = format.frame(choice, part);
    choice.tokens = [];
    if (frame !== null) exchange.frame(frame);
  }

  #emit(choice: Choice): void {
    const { params, exchange, format } = this.#options;
    const { generated } = choice.sequence;
    const ended = choice.finish !== null;
    const ready = ended || generated === 1 || generated - choice.framedAt >= params.streamInterval;
    // A slow reader gets the tokens that it kept waiting together, as it does from vLLM.
    if (!ready || (!ended && exchange.congested())) return;
    const cut = ended ? choice.text.length : Math.max(0, choice.text.length - this.#holdChars);
    const frame = format.frame(choice, {
      text: choice.text.slice(0, cut),
      reasoning: choice.reasoning,
      tool: null,
      tokens: choice.tokens,
      from: generated - choice.tokens.length,
      thinking: choice.script.channel(Math.max(0, generated - 1)) === 'reasoning',
    });
    choice.framedAt = generated;
    if (frame === null) return;
    choice.text = choice.text.slice(cut);
    choice.reasoning = '';
    if (this.#keepTokens) choice.tokens = [];
    exchange.frame(frame);
  }

  #finish(choice: Choice, reason: FinishReason): void {
    const { engine, params } = this.#options;
    choice.finish = reason;
    this.#open -= 1;
    if (reason !== 'abort') {
      const { metrics } = engine;
      metrics.finished[reason] += 1;
      observe(metrics.requestSeconds, (engine.now() - this.#startedMs) / 1000);
      observe(metrics.requestPromptTokens, choice.prompt.count);
      observe(metrics.requestGenerationTokens, choice.sequence.generated);
    }
    if (params.stream && choice.sequence.generated > 0) this.#emit(choice);
  }

  #breakOff(message: string): void {
    const { exchange, params } = this.#options;
    this.#close();
    if (params.stream) {
      exchange.frame(errorFrame(message));
      exchange.frame(DONE);
      exchange.endStream();
      return;
    }
    const refused = refusal(500, 'InternalServerError', message);
    exchange.json(refused.status, refused.body);
  }

  #cutOff(): void {
    const { exchange, params, knobs } = this.#options;
    this.#close();
    if (knobs.cut_mid_frame !== true) exchange.destroy();
    else if (params.stream) exchange.destroy(HALF_FRAME);
    else exchange.destroy(HALF_ANSWER);
  }

  #reset(): void {
    this.#close();
    this.#options.exchange.reset();
  }

  /** Does what the knobs say for this many tokens; true when the answer is over by it. */
  #misbehave(): boolean {
    const { exchange, params, knobs, choices, engine } = this.#options;
    const due = (point: number | undefined): boolean => point !== undefined && this.#made >= point;
    this.#faultAt = Number.POSITIVE_INFINITY;
    if (due(knobs.die_after)) process.kill(process.pid, 'SIGKILL');
    else if (due(knobs.reset_after)) this.#reset();
    else if (due(knobs.error_after)) this.#breakOff('Internal server error');
    else if (due(knobs.cut_after)) this.#cutOff();
    else if (knobs.hang === 'after_tokens' && due(knobs.hang_after ?? 1)) {
      this.#over = true;
      for (const choice of choices) engine.scheduler.drop(choice.sequence);
    } else if (due(knobs.abort_after)) {
      for (const choice of choices) if (choice.finish === null) this.#abortUnasked(choice);
      this.#complete();
    } else if (params.stream) exchange.frame(GARBAGE_FRAME);
    else {
      this.#close();
      exchange.json(200, GARBAGE_BODY);
    }
    return this.#over;
  }

  #abortUnasked(choice: Choice): void {
    this.#options.engine.scheduler.drop(choice.sequence);
    this.#finish(choice, 'abort');
  }
}

/** Answers one request. */
export function startRun(options: RunOptions): void {
  new Run(options).start();
}
