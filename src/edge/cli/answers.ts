import type { z } from 'zod';
import { FailedError } from './errors.ts';

/** What commands do with the gateway's answers. */

export const jsonText = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** @throws FailedError where the gateway is of another version than this command */
export function parseAnswer<Schema extends z.ZodType>(schema: Schema, answer: unknown): z.output<Schema> {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  throw new FailedError('the gateway answers in a form that this command does not know: their versions differ');
}

/** Of these members, those that are known, as a query with its `?`; empty where none is. */
export function queryText(members: Readonly<Record<string, string | null>>): string {
  const known = Object.entries(members).flatMap(([name, value]) => (value === null ? [] : [[name, value] as const]));
  return known.length === 0 ? '' : `?${new URLSearchParams(Object.fromEntries(known)).toString()}`;
}
