import { z } from 'zod';

export const inputTypes = ['string', 'number', 'bool', 'list', 'map'] as const;
export type InputType = (typeof inputTypes)[number];

/** A value of an input, as JSON. */
export type InputValue =
  | string
  | number
  | boolean
  | null
  | readonly InputValue[]
  | { readonly [key: string]: InputValue };

const numberText = /^-?\d+(\.\d+)?$/;

/** Returns true if a value has a type. A number may be text, which keeps all digits: Terraform converts it. */
export function fits(type: InputType, value: InputValue): boolean {
  switch (type) {
    case 'string':
      return typeof value === 'string';
    case 'number':
      return typeof value === 'string' ? numberText.test(value) : Number.isFinite(value);
    case 'bool':
      return typeof value === 'boolean';
    case 'list':
      return Array.isArray(value);
    case 'map':
      return typeof value === 'object' && value !== null && !Array.isArray(value);
  }
}

/** Deeper than any Terraform type that people write. */
const depthMax = 64;

/** Schema of a JSON value. Checked level by level, so that endless nesting is reported too. */
export const jsonValue = z.custom<InputValue>(isJson, `must be a JSON value with at most ${depthMax} nested levels`);

function isJson(value: unknown): boolean {
  let level: readonly unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > depthMax || !level.every(isPartOfJson)) return false;
    level = level.flatMap((one) => (typeof one === 'object' && one !== null ? (Object.values(one) as unknown[]) : []));
  }
  return true;
}

function isPartOfJson(value: unknown): boolean {
  if (typeof value === 'object') return value === null || Array.isArray(value) || isPlainObject(value);
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}

function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}
