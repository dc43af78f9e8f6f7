import { scanDocument, spliceText, type Splice } from '#base/json-scan.ts';
import { noUsage, parseUsage, readCount, type Usage } from './usage.ts';
import { findUsage } from './usage-member.ts';

/**
 * Reads a stream of chat or text completion chunks on its way to the client: counts usage, takes out the usage that
 * was not asked for, and notes how the stream ends. Frames keep the engine's bytes in everything else.
 *
 * What engines send is described by vLLM's OpenAI server: every frame is one `data:` line; with forced usage each
 * carries the running count of its own choice, and a last one with no choices the sum; an error is a frame of its own
 * under status 200, and `[DONE]` follows it just the same.
 */
export interface StreamMeterOptions {
  /** The client asked for the final usage chunk. */
  readonly wantsUsage: boolean;
  /** The client asked for usage on every chunk. */
  readonly wantsRunningUsage: boolean;
  /** Text of `usage.cost` for a final usage chunk, where the client asked for it. */
  readonly costText: ((usage: Usage) => string) | null;
  /** The name that clients know, where the engine calls the model otherwise. */
  readonly rename: string | null;
  /** Choices per prompt (`n`). */
  readonly choices: number;
  /** Prompts in this request; more than one only for text completions. */
  readonly prompts: number;
}

export type UsageSource = 'engine' | 'last_seen' | 'none';
export type StreamFailure = 'error_frame' | 'garbage' | 'engine_abort';

export interface StreamMeter {
  /** Takes what one read of the engine's answer brought; returns what the client gets of it, '' for nothing. */
  feed(text: string): string;
  /** `[DONE]` was seen; it is never part of what feed returns. */
  readonly done: boolean;
  /** Why the stream is no good, once that is known; nothing after it is returned. */
  readonly failure: StreamFailure | null;
  /** Every choice's finish chunk was seen. */
  readonly finished: boolean;
  /** Tokens that the engine is known to have made so far, over all choices. */
  readonly outputTokens: number;
  /** Tokens of the prompt as the engine counted them, 0 before the first count. */
  readonly inputTokens: number;
  /** An end with `finish_reason: "abort"` is what we asked for, from now on. */
  expectAbort(): void;
  /** The best count there is, and where it is from. */
  usage(): { usage: Usage; source: UsageSource };
}

interface Frame {
  readonly text: string;
  /** Range of the JSON object inside the text. */
  readonly start: number;
  readonly end: number;
}

export function createStreamMeter(options: StreamMeterOptions): StreamMeter {
  const expected = options.choices * options.prompts;
  /** Last running usage by choice index, as text: it is read whole only when the stream ends without a sum. */
  const running: (string | undefined)[] = [];
  const counted: number[] = [];
  const finishedChoices = new Set<number>();
  let pending = '';
  let finalUsage: Usage | null = null;
  let done = false;
  let failure: StreamFailure | null = null;
  let outputTokens = 0;
  let inputTokens = 0;
  let abortExpected = false;

  function fail(reason: StreamFailure): string {
    failure = reason;
    return '';
  }

  function noteRunning(index: number, json: string): void {
    const output = readCount(json, 'completion_tokens');
    outputTokens += output - (counted[index] ?? 0);
    counted[index] = output;
    running[index] = json;
    if (inputTokens === 0) inputTokens = readCount(json, 'prompt_tokens');
  }

  function usageChunk(frame: Frame, start: number, end: number): string {
    const usage = parseUsage(frame.text.slice(start, end));
    if (usage === null) return fail('garbage');
    finalUsage = usage;
    outputTokens = usage.outputTokens;
    inputTokens = usage.inputTokens;
    if (!options.wantsUsage) return '';
    const splices: Splice[] = [];
    if (options.costText !== null) {
      splices.push({ start: end - 1, end: end - 1, text: `,"cost":${options.costText(usage)}` });
    }
    return renamed(frame, splices);
  }

  /** Applies the splices, and the model's public name where the engine uses another. */
  function renamed(frame: Frame, splices: Splice[]): string {
    if (options.rename !== null) {
      const scan = scanDocument(frame.text.slice(frame.start, frame.end));
      const model = scan.ok ? scan.members.find(({ key }) => key === 'model') : undefined;
      if (model !== undefined) {
        const text = Buffer.from(JSON.stringify(options.rename), 'utf8').toString('latin1');
        splices.push({ start: frame.start + model.valueStart, end: frame.start + model.valueEnd, text });
      }
    }
    return splices.length === 0 ? frame.text : spliceText(frame.text, splices);
  }

  function choiceIndex(frame: Frame, choicesAt: number): number {
    if (expected === 1) return 0;
    const at = frame.text.indexOf('"index":', choicesAt);
    return at === -1 || at >= frame.end ? 0 : readCount(frame.text.slice(at, at + 24), 'index');
  }

  function noteFinish(frame: Frame, choicesAt: number): boolean {
    const at = frame.text.indexOf('"finish_reason":"', choicesAt);
    if (at === -1 || at >= frame.end) return true;
    if (frame.text.startsWith('abort"', at + 17) && !abortExpected) return false;
    finishedChoices.add(choiceIndex(frame, choicesAt));
    return true;
  }

  function chunk(frame: Frame): string {
    const choicesAt = frame.text.indexOf('"choices":', frame.start);
    if (choicesAt === -1 || choicesAt >= frame.end) return oddFrame(frame);
    const usage = findUsage(frame.text, frame.start, frame.end);
    if (usage.kind === 'broken') return fail('garbage');
    const isObject = usage.kind === 'found' && frame.text.charCodeAt(usage.start) === 0x7b;
    if (isObject && /^\s*\[\s*\]/.test(frame.text.slice(choicesAt + 10, choicesAt + 20))) {
      return usageChunk(frame, usage.start, usage.end);
    }
    if (isObject) noteRunning(choiceIndex(frame, choicesAt), frame.text.slice(usage.start, usage.end));
    if (!noteFinish(frame, choicesAt)) return fail('engine_abort');
    const cut = usage.kind === 'found' && !options.wantsRunningUsage && (isObject || !options.wantsUsage);
    if (!cut && options.rename === null) return frame.text;
    return renamed(frame, cut ? [{ start: usage.cutStart, end: usage.cutEnd, text: '' }] : []);
  }

  /** A frame without choices: an error, or something that this gateway has no reason to hold back. */
  function oddFrame(frame: Frame): string {
    const scan = scanDocument(frame.text.slice(frame.start, frame.end));
    if (!scan.ok) return fail('garbage');
    if (scan.members.some(({ key }) => key === 'error')) return fail('error_frame');
    return renamed(frame, []);
  }

  function oneFrame(text: string): string {
    let lineStart = 0;
    while (!text.startsWith('data:', lineStart)) {
      const lineEnd = text.indexOf('\n', lineStart);
      if (lineEnd === -1 || lineEnd + 1 >= text.length) return text;
      lineStart = lineEnd + 1;
    }
    let start = lineStart + 5;
    if (text.charCodeAt(start) === 0x20) start += 1;
    let end = text.indexOf('\n', start);
    if (end === -1) end = text.length;
    while (end > start && text.charCodeAt(end - 1) <= 0x20) end -= 1;
    if (text.startsWith('[DONE]', start)) {
      done = true;
      return '';
    }
    if (text.charCodeAt(start) !== 0x7b) return fail('garbage');
    return chunk({ text, start, end });
  }

  function feed(text: string): string {
    const input = pending === '' ? text : pending + text;
    pending = '';
    let out = '';
    let from = 0;
    while (from < input.length && !done && failure === null) {
      const next = frameEnd(input, from);
      if (next === -1) {
        pending = input.slice(from);
        if (pending.length > frameBytesMax) fail('garbage');
        break;
      }
      out += oneFrame(from === 0 && next === input.length ? input : input.slice(from, next));
      from = next;
    }
    return out;
  }

  function usage(): { usage: Usage; source: UsageSource } {
    if (finalUsage !== null) return { usage: finalUsage, source: 'engine' };
    if (running.length === 0) return { usage: noUsage, source: 'none' };
    return { usage: sumRunning(running, options.choices), source: 'last_seen' };
  }

  return {
    feed,
    usage,
    expectAbort: () => {
      abortExpected = true;
    },
    get done() {
      return done;
    },
    get failure() {
      return failure;
    },
    get finished() {
      return finishedChoices.size >= expected;
    },
    get outputTokens() {
      return outputTokens;
    },
    get inputTokens() {
      return inputTokens;
    },
  };
}

/** A frame longer than this is no chunk of any answer: 64 MiB. */
const frameBytesMax = 67_108_864;

/** Offset after the empty line that ends the frame at `from`, or -1 while it is not complete. */
function frameEnd(text: string, from: number): number {
  const plain = text.indexOf('\n\n', from);
  const carriage = text.indexOf('\n\r\n', from);
  if (carriage !== -1 && (plain === -1 || carriage < plain)) return carriage + 3;
  return plain === -1 ? -1 : plain + 2;
}

/** Running usage counts one choice each, and its own prompt: a prompt is counted once, whatever its choices. */
function sumRunning(running: readonly (string | undefined)[], choices: number): Usage {
  const prompts = new Map<number, number>();
  let cachedTokens = 0;
  let outputTokens = 0;
  let reasoningTokens = 0;
  running.forEach((json, index) => {
    const usage = json === undefined ? null : parseUsage(json);
    if (usage === null) return;
    const prompt = Math.floor(index / choices);
    if (!prompts.has(prompt)) cachedTokens += usage.cachedTokens;
    prompts.set(prompt, usage.inputTokens);
    outputTokens += usage.outputTokens;
    reasoningTokens += usage.reasoningTokens;
  });
  const inputTokens = [...prompts.values()].reduce((sum, tokens) => sum + tokens, 0);
  return { inputTokens, cachedTokens: Math.min(cachedTokens, inputTokens), outputTokens, reasoningTokens };
}
