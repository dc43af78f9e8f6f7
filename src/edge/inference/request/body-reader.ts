import { AppError } from '#base/errors.ts';
import { forEachElement, type JsonMember } from '#base/json/json.ts';
import { parseMember, valueText } from '#edge/inference/json-member.ts';

/** A body with the offsets of its members; single members are read on demand. */
export interface BodyReader {
  /** As latin1. */
  readonly text: string;
  readonly members: ReadonlyMap<string, JsonMember>;
}

export const invalidValue = (param: string, message: string): AppError =>
  new AppError('invalid_value', { message, param });

const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;

/** Matches strings without escapes and non-ASCII characters, as nearly all needed values are: they need no parsing. */
const plainString = /^"[\x20\x21\x23-\x5b\x5d-\x7e]*"$/;
const plainBytesMax = 1024;

/** Returns a member that exists and is not null. */
export function present(reader: BodyReader, key: string): JsonMember | null {
  const member = reader.members.get(key);
  return member === undefined || valueText(reader.text, member) === 'null' ? null : member;
}

/** @throws AppError invalid_value, as all functions here that read a value of one type */
export function readString(reader: BodyReader, key: string): string | null {
  const member = present(reader, key);
  if (member === null) return null;
  const value = valueText(reader.text, member);
  if (value.length <= plainBytesMax && plainString.test(value)) return value.slice(1, -1);
  const parsed = parseMember(reader.text, member);
  if (typeof parsed !== 'string') throw invalidValue(key, `"${key}" must be a string.`);
  return parsed;
}

export function readBoolean(reader: BodyReader, key: string): boolean {
  const member = present(reader, key);
  if (member === null) return false;
  const value = valueText(reader.text, member);
  if (value !== 'true' && value !== 'false') throw invalidValue(key, `"${key}" must be true or false.`);
  return value === 'true';
}

export function readInteger(reader: BodyReader, key: string, min: number): number | null {
  const member = present(reader, key);
  if (member === null) return null;
  const value = valueText(reader.text, member);
  const number = integerOf(value);
  if (number === null) throw invalidValue(key, `"${key}" must be an integer.`);
  if (number < min) throw invalidValue(key, `"${key}" must be at least ${min}.`);
  return number;
}

/** Longest JSON number, in characters, that can be a count. */
const numberCharsMax = 32;
const integerMax = 1e15;

/**
 * Reads an integer from a JSON number: `4`, and also `4.0` and `4e0`, as JSON Schema and vLLM read them.
 * @returns null if it is not a number, has a fraction, or is 10^15 or more
 */
export function integerOf(json: string): number | null {
  if (json.length > numberCharsMax || !/^-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?$/.test(json)) return null;
  const number = Number(json);
  return Number.isInteger(number) && Math.abs(number) < integerMax ? number : null;
}

/** Reads the members of an option object. Returns {} for any other value, which the engine may reject. */
export function readOptions(reader: BodyReader, key: string): Readonly<Record<string, unknown>> {
  const member = present(reader, key);
  if (member === null || reader.text.charCodeAt(member.valueStart) !== OPEN_BRACE) return {};
  return parseMember(reader.text, member) as Record<string, unknown>;
}

/** Reads options as `readOptions` does, but rejects a value that is not an object. */
export function requireOptions(reader: BodyReader, key: string): Readonly<Record<string, unknown>> {
  const member = present(reader, key);
  if (member !== null && reader.text.charCodeAt(member.valueStart) !== OPEN_BRACE) {
    throw invalidValue(key, `"${key}" must be an object.`);
  }
  return readOptions(reader, key);
}

export const isList = ({ text }: BodyReader, { valueStart }: JsonMember): boolean =>
  text.charCodeAt(valueStart) === OPEN_BRACKET;

export const invalidJson = (key: string): AppError =>
  new AppError('invalid_request_error', { message: `The value of "${key}" is not valid JSON.`, param: key });

/**
 * Counts the prompts in a member: one, or one per element of its list. A list of numbers is one prompt of token ids.
 * @param max counting stops above this number
 * @throws AppError invalid_request_error for a list that is not valid JSON
 */
export function countList(reader: BodyReader, key: string, max: number): number {
  const member = present(reader, key);
  if (member === null || !isList(reader, member)) return 1;
  let count = 0;
  const end = forEachElement(reader.text, member.valueStart, (start) => {
    if (count === 0 && /[-\d]/.test(reader.text.charAt(start))) return false;
    count += 1;
    return count <= max;
  });
  if (end === -1) throw invalidJson(key);
  return Math.max(1, count);
}
