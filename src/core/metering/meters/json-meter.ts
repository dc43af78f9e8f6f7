import { scanDocument, spliceText } from '#base/json/json.ts';
import { answerBytes, type MadeMember, textOfLength } from './text-count.ts';
import { finishReasonsOf } from './finish-reasons.ts';
import {
  openaiUsage,
  placeAtEnd,
  type ShownBill,
  type UsageForm,
  type UsagePlace,
  usageSplices,
} from './shown-usage.ts';
import type { EngineCount } from './usage.ts';
import { type MadeText, noText, type Seen } from './usage-of.ts';
import { findUsage, modelSplices, publicNameOf, type UsageMember } from './usage-member.ts';

/** The member of an answer that shows whether its engine aborted the answer. */
export interface BrokenSign {
  readonly member: string;
  /** @param json the member's value, null if it is absent */
  readonly isBroken: (json: string | null) => boolean;
}

export interface JsonMeterOptions {
  /** Model name that clients know, if the engine uses another one. */
  readonly rename: string | null;
  /** Form of `usage`; null for answers without a bill, whose usage is neither read nor written. Default: OpenAI's. */
  readonly form?: UsageForm | null;
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

/** Result of `meterJson`. `write` returns the text for the client; null keeps the engine's usage. */
export type JsonMeterResult =
  | (MeteredJson & { readonly write: (bill: ShownBill | null) => string })
  | { readonly ok: false };

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

function placeOf(text: string, found: UsageMember, end: number): UsagePlace {
  return found.kind === 'found' ? { start: found.start, end: found.end, prefix: '' } : placeAtEnd(text, 0, end);
}

/**
 * Reads a complete JSON answer: its usage, and whether the engine aborted it.
 * @param text the answer's bytes as latin1
 */
export function meterJson(text: string, options: JsonMeterOptions): JsonMeterResult {
  const { form = openaiUsage } = options;
  let end = text.length;
  while (end > 0 && text.charCodeAt(end - 1) <= 0x20) end -= 1;
  const found = findUsage(text, 0, end);
  if (found.kind === 'broken') return { ok: false };
  const last = found.kind === 'found' && form !== null ? form.read(text.slice(found.start, found.end)) : null;
  if (!hasFigures(last) && !isAnswer(text)) return { ok: false };
  const renaming = options.rename === null ? [] : modelSplices(text, 0, end, publicNameOf(options.rename));
  if (renaming === null) return { ok: false };
  const write = (bill: ShownBill | null): string => {
    const usage = form === null ? [] : usageSplices(text, placeOf(text, found, end), bill, form);
    return spliceText(text, [...renaming, ...usage]);
  };
  const aborted = isBrokenOff(text, options.brokenSign) || tellsError(text);
  const seen = { last, running: null, text: textBeside(text, last, options.made) };
  return { ok: true, seen, aborted, write };
}
