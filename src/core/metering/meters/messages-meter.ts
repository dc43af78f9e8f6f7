import { type JsonMember, scanDocument, spliceText } from '#base/json/json.ts';
import { type Frame, FrameMeter } from './frame-meter.ts';
import { HeldFrames } from './held-frames.ts';
import type { BrokenSign } from './json-meter.ts';
import { messagesUsage, placeAtEnd, type ShownBill, type UsagePlace } from './shown-usage.ts';
import type { StreamMeter, StreamMeterOptions } from './stream-meter.ts';
import { madeBytes, TextCount, writtenChars } from './text-count.ts';
import { modelSplices, type PublicName, publicNameOf } from './usage-member.ts';
import { type EngineCount, largest, parseMessageUsage, parseObject } from './usage.ts';
import type { Seen } from './usage-of.ts';

/**
 * Reads a stream of `/v1/messages` on its way to the client. Each frame is one event, named by its member `type`. The
 * prompt's count comes with the first event and the final one with `message_delta`; `message_stop` ends the stream.
 * Tokens are counted by the events that bring text, including the first one and starts of blocks: each is at least one.
 */
export function createMessagesMeter(options: StreamMeterOptions): StreamMeter {
  return new MessagesMeter(options);
}

/** Matches such an event as vLLM begins it: the type first, then the delta, with a text that is not empty. */
const deltaAtStart =
  /^\{"type": ?"content_block_delta",(?: ?"index": ?\d+,)? ?"delta": ?\{"type": ?"[a-z_]+", ?"(?:text|thinking|partial_json)": ?"[^"]/;
const deltaCharsMax = 160;
const OPEN_BRACE = 0x7b;

/** Maximum length of a first event that is held back; a longer one is passed on. */
const openingCharsMax = 1_048_576;
/** Maximum length of events between the final count and the end: pings, and unexpected ones. */
const endingCharsMax = 1_048_576;

type Members = readonly JsonMember[];

/** The state of one stream. */
class MessagesMeter extends FrameMeter implements StreamMeter {
  readonly remark = null;
  inputTokens = 0;
  cachedTokens = 0;
  readonly #counted = new TextCount();
  readonly #publicName: PublicName | null;
  /** The first event, held back until there is output: until then another replica can be asked. */
  #opening = '';
  #isStarted = false;
  /** Frames from the final count on. */
  readonly #held = new HeldFrames(messagesUsage);
  /** The `usage` of the first event, as its text. */
  #firstCount = '{}';
  #last: EngineCount | null = null;
  #abortExpected = false;

  constructor({ rename }: StreamMeterOptions) {
    super();
    this.#publicName = rename === null ? null : publicNameOf(rename);
  }

  get outputTokens(): number {
    return Math.max(this.#last?.outputTokens ?? 0, this.#counted.least);
  }

  get likelyTokens(): number {
    const { outputTokens } = this.#last ?? { outputTokens: null };
    return (outputTokens ?? 0) > 0 ? (outputTokens ?? 0) : this.#counted.likely;
  }

  get isOpening(): boolean {
    return this.#opening !== '' && this.pending === '' && !this.done && this.failure === null;
  }

  get lacksEmptyLine(): boolean {
    return /"type": ?"message_stop"\}\s*$/.test(this.pending);
  }

  /** True once the client has all of the text, and the count comes next. */
  get finished(): boolean {
    return this.done;
  }

  expectAbort(): void {
    this.#abortExpected = true;
  }

  lastFrames(bill: ShownBill | null): string {
    return this.#held.write(bill);
  }

  seen(): Seen {
    const begun = parseMessageUsage(this.#firstCount);
    // Some engines count one output token there, before any is generated.
    const running = begun === null || begun.inputTokens === null ? null : { ...begun, outputTokens: null };
    return { last: this.#last, running, text: this.#counted.made };
  }

  protected override endMark(): string {
    return this.fail('garbage');
  }

  protected override object(frame: Frame): string {
    const head = frame.text.slice(frame.start, Math.min(frame.end, frame.start + deltaCharsMax));
    const found = deltaAtStart.exec(head);
    if (found === null) return this.#scanned(frame);
    // Starts at the quote before the first character, which the pattern matched last.
    const quoteAt = frame.start + found[0].length - 2;
    return this.#token(frame.text, writtenChars(frame.text, quoteAt, frame.end));
  }

  /** Returns the text for the client: the frames held back before, and this one. */
  #shown(text: string): string {
    if (!this.#held.isEmpty) {
      this.#held.add(text);
      return this.#held.chars > endingCharsMax ? this.fail('garbage') : '';
    }
    const out = this.#opening + text;
    this.#opening = '';
    return out;
  }

  #scanned(frame: Frame): string {
    const scan = scanDocument(frame.text.slice(frame.start, frame.end));
    if (!scan.ok) return this.fail('garbage');
    const type = valueOf(frame, scan.members, 'type')?.slice(1, -1) ?? '';
    const error = valueOf(frame, scan.members, 'error');
    if (type === 'error' || (error !== null && error !== 'null')) return this.fail('error_frame');
    switch (type) {
      case 'message_start':
        return this.#start(frame, scan.members);
      case 'message_delta':
        return this.#count(frame, scan.members);
      case 'message_stop':
        return this.#end(frame.text);
      case 'content_block_start':
        return this.#token(frame.text, madeBytes(valueOf(frame, scan.members, 'content_block') ?? ''));
      case 'content_block_delta':
        return this.#token(frame.text, madeBytes(valueOf(frame, scan.members, 'delta') ?? ''));
      default:
        return this.#shown(frame.text);
    }
  }

  /** Counts a text. A text after the final count is invalid, since no count includes it. */
  #token(text: string, chars: number): string {
    if (chars > 0 && !this.#held.isEmpty) return this.fail('garbage');
    this.#counted.add(chars);
    return this.#shown(text);
  }

  #start(frame: Frame, members: Members): string {
    const message = members.find(({ key }) => key === 'message');
    if (message === undefined || frame.text.charCodeAt(frame.start + message.valueStart) !== OPEN_BRACE) {
      return this.fail('garbage');
    }
    const start = frame.start + message.valueStart;
    const end = frame.start + message.valueEnd;
    const scan = scanDocument(frame.text.slice(start, end));
    if (!scan.ok) return this.fail('garbage');
    const isFirst = !this.#isStarted;
    this.#isStarted = true;
    this.#counted.add(madeBytes(valueOf({ text: frame.text, start, end }, scan.members, 'content') ?? ''));
    this.#firstCount = valueOf({ text: frame.text, start, end }, scan.members, 'usage') ?? '{}';
    const begun = parseMessageUsage(this.#firstCount);
    this.inputTokens = begun?.inputTokens ?? 0;
    this.cachedTokens = begun?.cachedTokens ?? 0;
    const renaming = this.#publicName === null ? [] : modelSplices(frame.text, start, end, this.#publicName);
    if (renaming === null) return this.fail('garbage');
    const text = spliceText(frame.text, renaming);
    if (!isFirst || text.length > openingCharsMax) return this.#shown(text);
    this.#opening = text;
    return '';
  }

  /** Reads the final count. Engines that do not repeat the prompt's count there sent it at the start. */
  #count(frame: Frame, members: Members): string {
    const json = valueOf(frame, members, 'usage');
    const { output_tokens: _begun, ...first } = parseObject(this.#firstCount) ?? {};
    if (json !== null && json.startsWith('{')) {
      this.#last = largest(this.#last, parseMessageUsage(JSON.stringify({ ...first, ...parseObject(json) })));
      this.inputTokens = this.#last?.inputTokens ?? this.inputTokens;
    }
    // vLLM sends no reason for an aborted answer.
    const reason = parseObject(valueOf(frame, members, 'delta') ?? '')?.['stop_reason'] ?? null;
    if (reason === null && !this.#abortExpected) return this.fail('engine_abort');
    this.#held.add(this.#opening);
    this.#opening = '';
    this.#held.add(frame.text, [], { ...placeIn(frame, members), before: first });
    return '';
  }

  #end(text: string): string {
    // An end without its reason is invalid.
    if (this.#held.isEmpty) return this.fail('garbage');
    this.#held.add(text);
    this.done = true;
    return '';
  }
}

function placeIn({ text, start, end }: Frame, members: Members): UsagePlace {
  const member = members.find(({ key }) => key === 'usage');
  if (member === undefined) return placeAtEnd(text, start, end);
  return { start: start + member.valueStart, end: start + member.valueEnd, prefix: '' };
}

/** Returns the JSON of a member of the object that begins at the frame's start. */
function valueOf({ text, start }: Frame, members: Members, name: string): string | null {
  const member = members.find(({ key }) => key === name);
  return member === undefined ? null : text.slice(start + member.valueStart, start + member.valueEnd);
}

/** Sign of an aborted message in JSON: it has no reason for its end. */
export const brokenMessage: BrokenSign = {
  member: 'stop_reason',
  isBroken: (json) => json === null || json === 'null',
};
