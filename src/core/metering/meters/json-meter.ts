import { scanDocument, spliceText } from '#base/json/json.ts';
import { answerBytes, type MadeMember, textOfLength } from './text-count.ts';
import { type EngineCount, parseUsage } from './usage.ts';
import { finishReasonsOf } from './finish-reasons.ts';
import { type MadeText, noText, type Seen } from './usage-of.ts';
import { costSplice, findUsage, modelSplices, publicNameOf } from './usage-member.ts';

/** The member of an answer that shows whether its engine aborted the answer. */
export interface BrokenSign {
  readonly member: string;
  /** @param json the member's value, null if it is absent */
  readonly isBroken: (json: string | null) => boolean;
}

export interface JsonMeterOptions {
  /** Model name that clients know, if the engine uses another one. */
  readonly rename: string | null;
  /** Reads the text of a `usage` object. Default: OpenAI's form. */
  readonly readUsage?: (json: string) => EngineCount | null;
  /** The member with the text. Default: `choices`. */
  readonly made?: MadeMember;
  /** Shows an aborted answer. Default: the finish reason of any choice. */
  readonly brokenSign?: BrokenSign;
}

/** Usage and state of a complete JSON answer. */
export interface MeteredJson {
  readonly ok: true;
  readonly seen: Seen;
  readonly aborted: boolean;
}

/** Result of `meterJson`. `write` returns the text for the client, with the cost if the client asked for it. */
export type JsonMeterResult =
  | (MeteredJson & { readonly write: (costText: string | null) => string })
  | { readonly ok: false };

const OPEN_BRACE = 0x7b;

/** Matches every answer of an aborted choice: others need no second reading. */
const mayBeAborted = /"(?:abort|error)"/;

function isBrokenOff(text: string, sign: BrokenSign | undefined): boolean {
  if (sign === undefined) return mayBeAborted.test(text) && finishReasonsOf(text).isBroken;
  const scan = scanDocument(text);
  const member = scan.ok ? scan.members.find(({ key }) => key === sign.member) : undefined;
  return sign.isBroken(member === undefined ? null : text.slice(member.valueStart, member.valueEnd));
}

/** True if the answer has an error. Some engines report one with status 200, also beside a count. */
export function tellsError(text: string): boolean {
  if (!text.includes('"error"')) return false;
  const scan = scanDocument(text);
  const error = scan.ok ? scan.members.find(({ key }) => key === 'error') : undefined;
  return error !== undefined && text.slice(error.valueStart, error.valueEnd) !== 'null';
}

export function hasFigures(count: EngineCount | null): boolean {
  return count !== null && (count.inputTokens !== null || count.outputTokens !== null);
}

/** Returns the text of an answer to count if its engine has counted no output. */
function textBeside(text: string, last: EngineCount | null, made: MadeMember = 'choices'): MadeText {
  return (last?.outputTokens ?? 0) > 0 ? noText : textOfLength(answerBytes(text, made));
}

/** True if an answer without a count is accepted. */
function isAnswer(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && (Reflect.get(value, 'error') ?? null) === null;
  } catch {
    return false;
  }
}

/**
 * Reads a complete JSON answer: its usage, and whether the engine aborted it.
 * @param text the answer's bytes as latin1
 */
export function meterJson(text: string, options: JsonMeterOptions): JsonMeterResult {
  const { readUsage = parseUsage } = options;
  let end = text.length;
  while (end > 0 && text.charCodeAt(end - 1) <= 0x20) end -= 1;
  const found = findUsage(text, 0, end);
  if (found.kind === 'broken') return { ok: false };
  const last = found.kind === 'found' ? readUsage(text.slice(found.start, found.end)) : null;
  if (!hasFigures(last) && !isAnswer(text)) return { ok: false };
  const renaming = options.rename === null ? [] : modelSplices(text, 0, end, publicNameOf(options.rename));
  if (renaming === null) return { ok: false };
  const range = found.kind === 'found' && text.charCodeAt(found.start) === OPEN_BRACE ? found : null;
  const write = (costText: string | null): string => {
    const cost = costText === null || range === null ? [] : [costSplice(text, range, costText)];
    return spliceText(text, [...renaming, ...cost]);
  };
  const aborted = isBrokenOff(text, options.brokenSign) || tellsError(text);
  const seen = { last, running: null, text: textBeside(text, last, options.made) };
  return { ok: true, seen, aborted, write };
}
