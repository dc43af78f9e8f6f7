import { type MemberValues, scanDocument, scanObject, skipSpace, type Splice, spliceText } from '#base/json/json.ts';
import { finishReasonsOf } from './finish-reasons.ts';
import { type Frame, FrameMeter, type StreamFailure } from './frame-meter.ts';
import { HeldFrames } from './held-frames.ts';
import { tellsError } from './json-meter.ts';
import { choiceTexts, TextCount } from './text-count.ts';
import { openaiUsage, type ShownBill, shownUsage } from './shown-usage.ts';
import { type EngineCount, largest, parseObject, parseUsage, readCount } from './usage.ts';
import type { Seen } from './usage-of.ts';
import { findUsage, modelSplices, type PublicName, publicNameOf, type UsageMember } from './usage-member.ts';

/**
 * Reads a stream of chat or text completion chunks on its way to the client: counts usage, removes usage that was not
 * asked for, ends with the usage chunk that was asked for, and notes how the stream ends. Apart from that, frames keep
 * the engine's bytes.
 *
 * vLLM's OpenAI server sends every frame as one `data:` line. With forced usage each frame has the running count of its
 * own choice, and a last one without choices has the sum. An error is a separate frame with status 200, and `[DONE]`
 * follows it too. Other engines send their count only at the end, or never, or one that does not grow: then each frame
 * that brings text without a larger count is counted by its text, as at least one token.
 */
export interface StreamMeterOptions {
  /** True if the client asked for the final usage chunk. */
  readonly wantsUsage: boolean;
  /** True if the client asked for usage on every chunk. */
  readonly wantsRunningUsage: boolean;
  /** Model name that clients know, if the engine uses another one. */
  readonly rename: string | null;
  /** Choices per prompt (`n`). */
  readonly choices: number;
  /** Prompts in this request; more than one only for text completions. */
  readonly prompts: number;
  /**
   * Treats a first count on the chunk that ends the only choice as the final one, for APIs that send no separate usage
   * chunk. vLLM's text completions of one token look the same, but a usage chunk follows.
   */
  readonly mayCountOnFinish: boolean;
  /** Members that the response in each event of `/v1/responses` shows in place of the engine's. */
  readonly responseMembers?: MemberValues;
}

export interface StreamMeter {
  /** Takes the text of one read of the engine's answer; returns the text for the client, '' for none. */
  feed(text: string): string;
  /** True once the end of the stream was read: `[DONE]`, or its equivalent. `feed` never returns the end. */
  readonly done: boolean;
  /**
   * Returns the frames that the client gets with the end, if there are more than an end mark; to be sent once the
   * database has the usage.
   * @param bill what their usage shows; null keeps the engine's usage
   */
  lastFrames(bill: ShownBill | null): string;
  /**
   * True if all frames so far only say that the engine accepted the request: the client got none of them, and the
   * request may still wait.
   */
  readonly isOpening: boolean;
  /** True if the last text is the end without its empty line, as some engines end their answers. */
  readonly lacksEmptyLine: boolean;
  /** Reason why the stream is invalid, once known; nothing after it is returned. */
  readonly failure: StreamFailure | null;
  /** Oddity of a complete stream, as the reason of its record; null for none. */
  readonly remark: string | null;
  /** True once every choice's finish chunk was read. */
  readonly finished: boolean;
  /** Tokens that the engine is known to have generated so far, over all choices. */
  readonly outputTokens: number;
  /** Guess of these tokens, which a hold shall pay for: the same number, or more. */
  readonly likelyTokens: number;
  /** Tokens of the prompt as the engine counted them, 0 before the first count. */
  readonly inputTokens: number;
  /** Those of them that the engine had cached, if that count included it. */
  readonly cachedTokens: number;
  /** From now on, treats an end with `finish_reason: "abort"` as requested by the gateway. */
  expectAbort(): void;
  /** Returns everything known so far about the engine's use. */
  seen(): Seen;
}

/** Reason of a completed record whose stream had text and an end mark, but no finish reason (vllm-mlx). */
const noFinishReason = 'no_finish_reason';

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const COLON = 0x3a;
const QUOTE = 0x22;
const choicesMark = '"choices":';
const errorMark = '"error"';
const finishMark = '"finish_reason"';
export function createStreamMeter(options: StreamMeterOptions): StreamMeter {
  return new ChunkMeter(options);
}

/** The state of one stream. */
class ChunkMeter extends FrameMeter implements StreamMeter {
  readonly isOpening = false;
  remark: string | null = null;
  inputTokens = 0;
  cachedTokens = 0;
  /** Output tokens as the engine counted them. */
  #engineTokens = 0;
  /** Chunks whose text the engine has not counted: they have no count, or one that does not grow. */
  readonly #texts = new TextCount();
  /** The engine's latest usage chunk. Some engines send one with the prompt's count before the text. */
  #usageChunk = new HeldFrames(openaiUsage);
  /** The latest chunk with choices. */
  #latest: Frame | null = null;
  readonly #options: StreamMeterOptions;
  readonly #choicesExpected: number;
  readonly #publicName: PublicName | null;
  /** Last running usage by choice index, as text: it is parsed only when the stream ends. */
  readonly #running: string[] = [];
  /** First running usage by choice index, as text. Some engines count the prompt, or its cached part, only there. */
  readonly #firstRunning: string[] = [];
  readonly #counted: number[] = [];
  readonly #finishedChoices: number[] = [];
  #last: EngineCount | null = null;
  #abortExpected = false;

  constructor(options: StreamMeterOptions) {
    super();
    this.#options = options;
    this.#choicesExpected = options.choices * options.prompts;
    this.#publicName = options.rename === null ? null : publicNameOf(options.rename);
  }

  get outputTokens(): number {
    return Math.max(this.#engineTokens, this.#texts.least);
  }

  get likelyTokens(): number {
    const { tokens, leastTokens } = this.#texts.made;
    return this.#engineTokens < leastTokens ? tokens : this.#engineTokens;
  }

  get lacksEmptyLine(): boolean {
    return /(?:^|[\r\n])data:[ \t]*\[DONE\]\s*$/.test(this.pending);
  }

  get finished(): boolean {
    return this.#finishedChoices.length >= this.#choicesExpected;
  }

  expectAbort(): void {
    this.#abortExpected = true;
  }

  lastFrames(bill: ShownBill | null): string {
    if (bill === null || !this.#options.wantsUsage || !this.#usageChunk.isEmpty) return this.#usageChunk.write(bill);
    return this.#madeUsageChunk(bill);
  }

  /** Makes the usage chunk that the engine has not sent. */
  #madeUsageChunk(bill: ShownBill): string {
    const { text, start, end } = this.#latest ?? { text: '', start: 0, end: 0 };
    const { id, object, created, model } = parseObject(text.slice(start, end)) ?? {};
    const head = JSON.stringify({ id, object, created, model, choices: [] });
    const frame = `data: ${head.slice(0, -1)},"usage":${shownUsage('', bill, openaiUsage)}}\n\n`;
    return this.#renamed({ text: frame, start: 'data: '.length, end: frame.length - 2 }, []);
  }

  seen(): Seen {
    const counts = this.#running.map((json, index) =>
      largest(parseUsage(this.#firstRunning[index] ?? json), parseUsage(json)),
    );
    // A last count shows whether an engine counts each choice or all of them on its chunks; a last count of zero does
    // not.
    const isSumKnown = (this.#last?.outputTokens ?? 0) > 0;
    const running = isSumKnown ? counts.reduce(largest, null) : sumRunning(counts, this.#options.choices);
    return { last: this.#last, running, text: this.#texts.made };
  }

  protected override endMark(): string {
    if (this.#finishedChoices.length === 0 && !this.#abortExpected) {
      // vLLM sends no finish chunk if it aborts before the first token.
      if (this.outputTokens === 0) return this.fail('engine_abort');
      this.remark = noFinishReason;
    }
    this.done = true;
    return '';
  }

  protected override object(frame: Frame): string {
    const mark = frame.text.indexOf(choicesMark, frame.start);
    if (mark === -1 || mark >= frame.end) return this.#oddFrame(frame);
    return this.#choices(frame, mark + choicesMark.length);
  }

  #choices(frame: Frame, choicesAt: number): string {
    const usage = findUsage(frame.text, frame.start, frame.end);
    if (usage.kind === 'broken') return this.fail('garbage');
    const isCount = usage.kind === 'found' && frame.text.charCodeAt(usage.start) === OPEN_BRACE;
    if (isCount && isEmptyList(frame.text, choicesAt)) return this.#lastCount(frame, usage, true);
    const isFirstCount = isCount && this.#running.length === 0;
    const isCounted = isCount && this.#noteRunning(frame, choicesAt, frame.text.slice(usage.start, usage.end));
    if (!isCounted) this.#noteTexts(frame);
    if (!this.#noteFinish(frame, choicesAt)) return this.fail('engine_abort');
    if (!isCount && hasError(frame)) return this.fail('error_frame');
    if (isFirstCount) this.#noteFirst(frame, usage);
    return this.#chunk(frame, usage, isCount);
  }

  /** Notes the first count as the last one if it ends the only choice. */
  #noteFirst(frame: Frame, usage: TextRange): void {
    const isOnly = this.#options.mayCountOnFinish && this.#choicesExpected === 1;
    if (isOnly && this.finished) this.#count(frame, usage);
  }

  #chunk(frame: Frame, usage: UsageMember, isCount: boolean): string {
    const { wantsUsage, wantsRunningUsage } = this.#options;
    if (wantsUsage) this.#latest = frame;
    const cut = usage.kind === 'found' && !wantsRunningUsage && (isCount || !wantsUsage);
    if (this.#publicName !== null)
      return this.#renamed(frame, cut ? [{ start: usage.cutStart, end: usage.cutEnd, text: '' }] : []);
    return cut ? frame.text.slice(0, usage.cutStart) + frame.text.slice(usage.cutEnd) : frame.text;
  }

  /** Handles a count beside no choice. @param isUsageChunk true if it has the form that clients read at the end */
  #lastCount(frame: Frame, { start, end }: TextRange, isUsageChunk: boolean): string {
    if (!this.#count(frame, { start, end })) return this.fail('garbage');
    if (!this.#options.wantsUsage || !isUsageChunk) return '';
    const renaming = this.#renaming(frame);
    if (renaming === null) return this.fail('garbage');
    this.#usageChunk = new HeldFrames(openaiUsage);
    this.#usageChunk.add(frame.text, renaming, { start, end, prefix: '' });
    return '';
  }

  /** @returns false for an invalid count */
  #count({ text }: Frame, { start, end }: TextRange): boolean {
    const usage = parseUsage(text.slice(start, end));
    if (usage === null) return false;
    this.#last = largest(this.#last, usage);
    this.#engineTokens = Math.max(this.#engineTokens, usage.outputTokens ?? 0);
    if ((usage.inputTokens ?? 0) > this.inputTokens) this.#notePrompt(usage.inputTokens ?? 0, usage.cachedTokens);
    return true;
  }

  #notePrompt(tokens: number, cachedTokens: number): void {
    this.inputTokens = tokens;
    this.cachedTokens = cachedTokens;
  }

  /**
   * Handles a frame without choices: an error, a last count, or something that this gateway has no reason to hold back.
   */
  #oddFrame(frame: Frame): string {
    const scan = scanDocument(frame.text.slice(frame.start, frame.end));
    if (!scan.ok) return this.fail('garbage');
    const find = (name: string) => scan.members.find(({ key }) => key === name);
    if (find('error') !== undefined) return this.fail('error_frame');
    const choices = find('choices');
    if (choices !== undefined) return this.#choices(frame, frame.start + choices.valueStart);
    const usage = find('usage');
    if (usage === undefined || frame.text.charCodeAt(frame.start + usage.valueStart) !== OPEN_BRACE) {
      return this.#renamed(frame, []);
    }
    return this.#lastCount(frame, { start: frame.start + usage.valueStart, end: frame.start + usage.valueEnd }, false);
  }

  /** Applies the splices, and the model's public name if the engine uses another. */
  #renamed(frame: Frame, splices: Splice[]): string {
    const renaming = this.#renaming(frame);
    return renaming === null ? this.fail('garbage') : spliceText(frame.text, [...splices, ...renaming]);
  }

  /** Returns null if the frame is not an object. */
  #renaming({ text, start, end }: Frame): readonly Splice[] | null {
    return this.#publicName === null ? [] : modelSplices(text, start, end, this.#publicName);
  }

  /** @returns -1 for a choice that was not requested */
  #choiceIndex(frame: Frame, choicesAt: number): number {
    if (this.#choicesExpected === 1) return 0;
    const index = firstIndex(frame.text, choicesAt);
    return index < this.#choicesExpected ? index : -1;
  }

  /**
   * Notes a running count. A count that decreases is ignored.
   * @returns true if the choice has more output tokens than before
   */
  #noteRunning(frame: Frame, choicesAt: number, json: string): boolean {
    const index = this.#choiceIndex(frame, choicesAt);
    if (index === -1) return false;
    if (this.inputTokens === 0) this.#notePrompt(readCount(json, 'prompt_tokens'), readCount(json, 'cached_tokens'));
    const output = readCount(json, 'completion_tokens');
    const before = this.#counted[index] ?? 0;
    if (output < before) return false;
    this.#engineTokens += output - before;
    this.#counted[index] = output;
    this.#running[index] = json;
    this.#firstRunning[index] ??= json;
    return output > before;
  }

  #noteTexts({ text, start, end }: Frame): void {
    for (const { deltaChars, messageChars } of choiceTexts(text.slice(start, end), this.#choicesExpected)) {
      this.#texts.add(deltaChars);
      this.#texts.addElsewhere('message', messageChars);
    }
  }

  /** @returns false for an abort that this gateway did not request */
  #noteFinish(frame: Frame, choicesAt: number): boolean {
    if (!mayFinish(frame.text, choicesAt)) return true;
    const { found: reasons } = finishReasonsOf(frame.text.slice(frame.start, frame.end));
    if (reasons.size === 0) return true;
    if (reasons.has('abort') && !this.#abortExpected) return false;
    // Engines that send this reason add the cause, in their own words.
    if (reasons.has('error')) return false;
    const index = this.#choiceIndex(frame, choicesAt);
    if (!this.#finishedChoices.includes(index)) this.#finishedChoices.push(index);
    return true;
  }
}

type TextRange = Pick<Frame, 'start' | 'end'>;

/** True if the frame has an error besides choices. Frames with a count are not checked. */
function hasError({ text, start, end }: Frame): boolean {
  const at = text.indexOf(errorMark, start);
  return at !== -1 && at < end && tellsError(text.slice(start, end));
}

/** True if the list that begins at or after `at` is empty. */
function isEmptyList(text: string, at: number): boolean {
  const open = skipSpace(text, at);
  return text.charCodeAt(open) === OPEN_BRACKET && text.charCodeAt(skipSpace(text, open + 1)) === OPEN_BRACKET + 2;
}

/** Returns the `index` of the first choice, 0 if there is none; vLLM begins each choice with it. */
function firstIndex(text: string, choicesAt: number): number {
  const open = text.indexOf('{', choicesAt);
  if (text.startsWith('"index":', open + 1)) return readCount(text.slice(open, open + 24), 'index');
  const scan = scanObject(text, open);
  const member = scan.ok ? scan.members.find(({ key }) => key === 'index') : undefined;
  return member === undefined ? 0 : Number.parseInt(text.slice(member.valueStart, member.valueEnd), 10) || 0;
}

/** True if the text may have a finish reason, anywhere in it; vLLM writes null for none, others "". */
function mayFinish(text: string, from: number): boolean {
  for (let at = text.indexOf(finishMark, from); at !== -1; at = text.indexOf(finishMark, at)) {
    at = skipSpace(text, at + finishMark.length);
    if (text.charCodeAt(at) !== COLON) continue;
    at = skipSpace(text, at + 1);
    if (text.charCodeAt(at) === QUOTE && text.charCodeAt(at + 1) !== QUOTE) return true;
  }
  return false;
}

/**
 * Sums running usage. Each count covers one choice and its prompt; a prompt is counted once, whatever its choices.
 * @returns null if nothing was counted
 */
function sumRunning(counts: readonly (EngineCount | null)[], choices: number): EngineCount | null {
  const prompts = new Set<number>();
  let sum: EngineCount | null = null;
  counts.forEach((count, index) => {
    if (count === null) return;
    const prompt = Math.floor(index / choices);
    const isFirst = !prompts.has(prompt);
    prompts.add(prompt);
    sum = plus(sum, isFirst ? count : { ...count, inputTokens: null, cachedTokens: 0, cacheWriteTokens: 0 });
  });
  return sum;
}

function plus(a: EngineCount | null, b: EngineCount): EngineCount {
  if (a === null) return b;
  const add = (x: number | null, y: number | null): number | null => (x === null ? y : x + (y ?? 0));
  return {
    inputTokens: add(a.inputTokens, b.inputTokens),
    cachedTokens: a.cachedTokens + b.cachedTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    outputTokens: add(a.outputTokens, b.outputTokens),
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  };
}
