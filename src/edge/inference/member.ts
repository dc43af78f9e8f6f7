import { AppError } from '#base/errors.ts';
import type { BodyText } from '#base/body-text.ts';
import type { JsonMember } from '#base/json-scan.ts';

/** The bytes of a member's value, as latin1. */
export function valueText(text: BodyText, member: JsonMember): string {
  return text.slice(member.valueStart, member.valueEnd);
}

export function isNull(text: BodyText, { valueStart, valueEnd }: JsonMember): boolean {
  return valueEnd - valueStart === 4 && text.slice(valueStart, valueEnd) === 'null';
}

/** A field that is read has a few hundred bytes at most: what is longer is not worth the time that it takes to read. */
const parsedBytesMax = 65_536;

/**
 * JSON.parse of one member's value; the scanner does not look into nested values, so it may still fail.
 * @throws AppError invalid_request_error, also for a value above `bytesMax`, which is 64 KiB where nothing else is said
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
