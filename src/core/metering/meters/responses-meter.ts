import {
  type JsonMember,
  type MemberValues,
  memberSplices,
  scanDocument,
  type Splice,
  spliceText,
} from '#base/json/json.ts';
import { type Frame, FrameMeter } from './frame-meter.ts';
import { HeldFrames } from './held-frames.ts';
import type { BrokenSign } from './json-meter.ts';
import { placeAtEnd, responsesUsage, type ShownBill, type UsagePlace } from './shown-usage.ts';
import type { StreamMeter, StreamMeterOptions } from './stream-meter.ts';
import { answerBytes, madeBytes, TextCount, writtenChars } from './text-count.ts';
import { modelSplices, type PublicName, publicNameOf } from './usage-member.ts';
import { type EngineCount, parseUsage } from './usage.ts';
import type { Seen } from './usage-of.ts';

/**
 * Reads a stream of `/v1/responses` on its way to the client. Each frame is one event, named by its member `type`. Only
 * the last event has the count, and no `[DONE]` follows; an engine that aborts just closes the connection. Until then
 * tokens are counted by the deltas: each with text is at least one token. If the events that end a text, or the
 * response at the end, have more text than the deltas, the rest is counted by its length.
 */
export function createResponsesMeter(options: StreamMeterOptions): StreamMeter {
  return new EventMeter(options);
}

/** Events that come before the engine has generated anything. */
const openings: ReadonlySet<string> = new Set(['response.created', 'response.queued', 'response.in_progress']);
const ends: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete']);
const failures: ReadonlySet<string> = new Set(['response.failed', 'error']);
/** Statuses of aborted answers, whatever the event is called. */
const brokenStatus: ReadonlySet<string> = new Set(['"cancelled"', '"failed"']);
/** Matches the type as the last member of an event, where vLLM writes it: only the outermost object can end with it. */
const typeAtEnd = /"type": ?"([a-z_.]+)"\}$/;
const typeCharsMax = 96;
const deltaMark = '"delta":';
/**
 * Maximum length of an opening that is held back; a longer one is passed on. vLLM repeats the request in each of its
 * events, and many may be waiting.
 */
const openingCharsMax = 1_048_576;
const SPACE = 0x20;
const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;

type Members = readonly JsonMember[];

/** Changes of an event with a response, and the place of its count. */
interface ReadResponse {
  readonly splices: readonly Splice[];
  readonly usage: UsagePlace | null;
}

const unchanged: ReadResponse = { splices: [], usage: null };

/** The state of one stream. */
class EventMeter extends FrameMeter implements StreamMeter {
  readonly remark = null;
  inputTokens = 0;
  readonly cachedTokens = 0;
  readonly #counted = new TextCount();
  /** The last event, which has the count. */
  readonly #held = new HeldFrames(responsesUsage);
  readonly #publicName: PublicName | null;
  readonly #responseMembers: MemberValues;
  /** Events that are held back until there is output: until then another replica can be asked. */
  #opening = '';
  /** Types of events that were held back. If an engine repeats one, the events are passed on. */
  readonly #opened = new Set<string>();
  #isShown = false;
  #last: EngineCount | null = null;
  #abortExpected = false;

  constructor({ rename, responseMembers = [] }: StreamMeterOptions) {
    super();
    this.#responseMembers = responseMembers;
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
    const type = /"type": ?"(response\.[a-z_]+)"\}\s*$/.exec(this.pending)?.[1];
    return type !== undefined && ends.has(type);
  }

  /** The count comes with the end. */
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
    return { last: this.#last, running: null, text: this.#counted.made };
  }

  protected override endMark(): string {
    return this.fail('garbage');
  }

  protected override object(frame: Frame): string {
    const tail = frame.text.slice(Math.max(frame.start, frame.end - typeCharsMax), frame.end);
    const type = typeAtEnd.exec(tail)?.[1];
    if (type?.endsWith('.delta') !== true) return this.#scanned(frame);
    this.#countDelta(frame);
    return this.#shown(frame.text);
  }

  /** Counts a delta. An object, or a delta that is not found, is one token; an empty text is none. */
  #countDelta({ text, start, end }: Frame): void {
    let at = text.indexOf(deltaMark, start);
    if (at !== -1) at += deltaMark.length;
    while (text.charCodeAt(at) === SPACE) at += 1;
    const isText = at !== -1 && at < end && text.charCodeAt(at) === QUOTE;
    this.#counted.add(isText ? writtenChars(text, at, end) : 1);
  }

  /** Returns the text for the client: the frames held back before, and this one. */
  #shown(text: string): string {
    const out = this.#opening + text;
    this.#opening = '';
    this.#isShown = true;
    return out;
  }

  #scanned(frame: Frame): string {
    const scan = scanDocument(frame.text.slice(frame.start, frame.end));
    if (!scan.ok) return this.fail('garbage');
    const value = valueOf(frame, scan.members, 'type');
    const type = value === null ? '' : value.slice(1, -1);
    const response = scan.members.find(({ key }) => key === 'response');
    const isObject = response !== undefined && frame.text.charCodeAt(frame.start + response.valueStart) === OPEN_BRACE;
    if (failures.has(type) || isError(valueOf(frame, scan.members, 'error'))) {
      if (isObject) this.#response(frame, response, true);
      return this.fail('error_frame');
    }
    if (type.endsWith('.delta')) this.#countDelta(frame);
    if (type.endsWith('.done')) this.#counted.addElsewhere(type, madeBytes(frame.text.slice(frame.start, frame.end)));
    // An end without its response has no count.
    if (ends.has(type)) return isObject ? this.#end(frame, response) : this.fail('garbage');
    const read = isObject ? this.#response(frame, response, false) : unchanged;
    if (read === null) return this.fail('garbage');
    const text = spliceText(frame.text, read.splices);
    return openings.has(type) ? this.#opens(type, text) : this.#shown(text);
  }

  #opens(type: string, text: string): string {
    const isLong = this.#opening.length + text.length > openingCharsMax;
    if (this.#isShown || isLong || this.#opened.has(type)) return this.#shown(text);
    this.#opened.add(type);
    this.#opening += text;
    return '';
  }

  #end(frame: Frame, response: JsonMember): string {
    const read = this.#response(frame, response, true);
    if (read === null) return this.failure === null ? this.fail('garbage') : '';
    // The text is counted only if needed: the response contains all of it.
    if ((this.#last?.outputTokens ?? 0) === 0) {
      const json = frame.text.slice(frame.start + response.valueStart, frame.start + response.valueEnd);
      this.#counted.addElsewhere('response', answerBytes(json, 'output'));
    }
    this.#held.add(this.#shown(''));
    this.#held.add(frame.text, read.splices, read.usage);
    this.done = true;
    return '';
  }

  /**
   * Reads an event with the whole response: its count if it is the end, and the public model name.
   * @returns null if the response is invalid
   */
  #response(frame: Frame, { valueStart, valueEnd }: JsonMember, isEnd: boolean): ReadResponse | null {
    const start = frame.start + valueStart;
    const end = frame.start + valueEnd;
    const scan = scanDocument(frame.text.slice(start, end));
    if (!scan.ok) return null;
    const usage = isEnd ? this.#count({ text: frame.text, start, end }, scan.members) : null;
    if (this.failure !== null) return null;
    const renaming = this.#publicName === null ? [] : modelSplices(frame.text, start, end, this.#publicName);
    if (renaming === null) return null;
    return { splices: [...renaming, ...memberSplices(scan.members, this.#responseMembers, start)], usage };
  }

  /** Reads the count. @returns its place */
  #count(response: Frame, members: Members): UsagePlace {
    const json = valueOf(response, members, 'usage');
    this.#last = json === null ? null : parseUsage(json);
    this.inputTokens = this.#last?.inputTokens ?? 0;
    const status = valueOf(response, members, 'status') ?? '';
    if (brokenStatus.has(status) && !this.#abortExpected) this.fail('engine_abort');
    const member = members.find(({ key }) => key === 'usage');
    if (member === undefined) return placeAtEnd(response.text, response.start, response.end);
    return { start: response.start + member.valueStart, end: response.start + member.valueEnd, prefix: '' };
  }
}

/** Returns the JSON of a member of the object that begins at the frame's start. */
function valueOf({ text, start }: Frame, members: Members, name: string): string | null {
  const member = members.find(({ key }) => key === name);
  return member === undefined ? null : text.slice(start + member.valueStart, start + member.valueEnd);
}

const isError = (value: string | null): boolean => value !== null && value !== 'null';

/** Sign of an aborted response in JSON: its status. */
export const brokenResponse: BrokenSign = {
  member: 'status',
  isBroken: (json) => json !== null && brokenStatus.has(json),
};
