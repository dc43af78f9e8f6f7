import { AppError } from '#base/errors.ts';
import type { BodyText, JsonMember } from '#base/json/json.ts';

/** Returns the bytes of a member's value, as latin1. */
export function valueText(text: BodyText, member: JsonMember): string {
  return text.slice(member.valueStart, member.valueEnd);
}

export function isNull(text: BodyText, { valueStart, valueEnd }: JsonMember): boolean {
  return valueEnd - valueStart === 4 && text.slice(valueStart, valueEnd) === 'null';
}

/**
 * Longest value that is parsed. Fields that are read have a few hundred bytes; longer values are not worth the time.
 */
const parsedBytesMax = 65_536;

/**
 * Parses one member's value. The scanner does not check nested values, so parsing may still fail.
 * @throws AppError invalid_request_error, also for a value above `bytesMax` (64 KiB by default)
 */
export function parseMember(text: BodyText, member: JsonMember, bytesMax = parsedBytesMax): unknown {
  if (member.valueEnd - member.valueStart > bytesMax) {
    throw new AppError('invalid_request_error', {
      message: `The value of "${member.key}" is longer than ${bytesMax} bytes.`,
      param: member.key,
    });
  }
  try {
    return JSON.parse(Buffer.from(valueText(text, member), 'latin1').toString('utf8')) as unknown;
  } catch {
    throw new AppError('invalid_request_error', {
      message: `The value of "${member.key}" is not valid JSON.`,
      param: member.key,
    });
  }
}

/** Members of a parsed JSON object by name. */
export type Members = Readonly<Record<string, unknown>>;

/** True for a parsed JSON object; false for a list and null. */
export const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
