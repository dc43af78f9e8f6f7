import { scanDocument, spliceText } from '#base/json/json.ts';
import type { JsonMeterOptions, ShownBill } from '#core/metering/metering.ts';
import { isObject } from '#edge/inference/json-member.ts';
import type { AnswerText } from './large-answer.ts';
import type { AnswerFormat } from './openai-answers.ts';

/** The answer to a part: its vectors, and the text that the engine wrote around them. */
export interface AnsweredPart {
  readonly last: AnswerText;
  readonly around: string;
}

export type WholeAnswer =
  | {
      readonly ok: true;
      readonly write: (bill: ShownBill | null) => readonly Buffer[];
    }
  | { readonly ok: false };

/**
 * Joins the answers to all parts: the first answer with usage, with the vectors of all answers and the sum of their
 * usage.
 * @param parts in their order
 */
export function joinAnswers(
  parts: readonly AnsweredPart[],
  answers: Pick<AnswerFormat, 'meterJson'>,
  options: Pick<JsonMeterOptions, 'rename'>,
): WholeAnswer {
  const metered = answers.meterJson(withSum(parts), options);
  if (!metered.ok) return { ok: false };
  if (dataAt(metered.write(null)) === null) return { ok: false };
  const vectors = parts.flatMap(({ last }) => (typeof last === 'string' ? [Buffer.from(last, 'latin1')] : last));
  const write = (bill: ShownBill | null): readonly Buffer[] => {
    const text = metered.write(bill);
    const at = dataAt(text) ?? text.length;
    return [Buffer.from(text.slice(0, at), 'latin1'), ...vectors, Buffer.from(text.slice(at), 'latin1')];
  };
  return { ok: true, write };
}

/** Returns the offset after the bracket that opens the list of vectors. */
function dataAt(text: string): number | null {
  const scan = scanDocument(text);
  const data = scan.ok ? scan.members.find(({ key }) => key === 'data') : undefined;
  return data === undefined ? null : data.valueStart + 1;
}

/**
 * Returns the text of the first engine that reported usage, with the usage of all; if none did, the text of the first.
 */
function withSum(parts: readonly AnsweredPart[]): string {
  const usages = parts.flatMap(({ around }) => usageOf(around) ?? []);
  const [first] = usages;
  if (first === undefined) return parts[0]?.around ?? '';
  const sum = usages.map(({ value }) => value).reduce(plus);
  const text = Buffer.from(JSON.stringify(sum), 'utf8').toString('latin1');
  return spliceText(first.around, [{ start: first.start, end: first.end, text }]);
}

interface UsageText {
  readonly around: string;
  readonly start: number;
  readonly end: number;
  readonly value: unknown;
}

/** @param around JSON, as latin1 */
function usageOf(around: string): UsageText | null {
  const scan = scanDocument(around);
  const member = scan.ok ? scan.members.find(({ key }) => key === 'usage') : undefined;
  if (member === undefined) return null;
  const { valueStart: start, valueEnd: end } = member;
  return { around, start, end, value: JSON.parse(Buffer.from(around.slice(start, end), 'latin1').toString('utf8')) };
}

/** Adds numbers that are in both values, at any depth. A value that is in only one, or is no number, stays as it is. */
function plus(a: unknown, b: unknown): unknown {
  if (typeof a === 'number' && typeof b === 'number') return a + b;
  if (!isObject(a) || !isObject(b)) return a ?? b;
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return Object.fromEntries(names.map((name) => [name, plus(a[name], b[name])]));
}
