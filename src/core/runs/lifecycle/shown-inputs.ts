import { createMask } from './mask.ts';
import { shownText } from './outputs.ts';

/** Maximum length of a run's shown inputs as JSON; values beyond it are not shown. */
const inputsCharsMax = 65_536;

/** An input as the API shows it: without its value if it is sensitive, not set, or too large. */
export interface ShownInput {
  readonly sensitive: boolean;
  /** False if neither the request nor the stack's manifest has a value: Terraform uses the module's default. */
  readonly set: boolean;
  readonly value?: unknown;
}

/** An input that the stack declares. */
export interface DeclaredInput {
  readonly name: string;
  readonly sensitive: boolean;
}

/** Returns the inputs that may be shown, by name. Values of sensitive inputs are masked in the others too. */
export function shownInputs(
  declared: readonly DeclaredInput[],
  inputs: Readonly<Record<string, unknown>>,
): Readonly<Record<string, ShownInput>> {
  const mask = createMask(declared.filter(({ sensitive }) => sensitive).flatMap(({ name }) => textsIn(inputs[name])));
  let chars = 0;
  return Object.fromEntries(
    declared.map(({ name, sensitive }): [string, ShownInput] => {
      const value = inputs[name] ?? null;
      const text = sensitive || value === null ? null : shownText(value, mask);
      if (text === null || chars + text.length > inputsCharsMax) return [name, { sensitive, set: value !== null }];
      chars += text.length;
      return [name, { sensitive, set: true, value: JSON.parse(text) as unknown }];
    }),
  );
}

/** Returns all texts in a value that is a secret. The keys of a secret map may be secrets too. */
export function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (typeof value === 'number') return [String(value)];
  if (typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return Object.entries(value).flatMap(([key, one]) => [key, ...textsIn(one)]);
}
