import type { StackInputAnswer } from '#edge/contract/stacks.ts';
import {
  area,
  field,
  type Form,
  html,
  type Html,
  type MaybeHtml,
  problemOf,
  type Refusal,
} from '#edge/portal/ui/ui.ts';
import { chooser, secretField } from './widgets.ts';

/** Shows a stack's declared inputs as form fields, and converts the typed texts to API values. */

/** Returns the field name, which the API uses in its problems and the form in its body. */
const fieldName = ({ name }: StackInputAnswer): string => `inputs.${name}`;

/** Field texts by name. */
export type Typed = Readonly<Record<string, string>>;

/** Formats a JSON value; texts are shown without quotes. */
export function valueText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

const isText = (value: unknown): value is string => typeof value === 'string';

/**
 * Formats a default for its field: lists one item per line, maps as `key = value`. Values that need it are shown as
 * JSON.
 */
function shownText({ type, default: value }: StackInputAnswer): string {
  if (value === null || value === undefined) return '';
  if (type === 'list' && Array.isArray(value)) {
    const isPlain = value.every((one) => isText(one) && one === one.trim() && one !== '' && !/[\n\r]/.test(one));
    return isPlain && !/^[[]/.test(String(value[0] ?? '')) ? value.join('\n') : JSON.stringify(value);
  }
  if (type === 'map') {
    const entries = Object.entries(value);
    const isPlain = entries.every(
      ([key, one]) => isText(one) && /^[\w.-]+$/.test(key) && one === one.trim() && !/[\n\r]/.test(one),
    );
    return isPlain ? entries.map(([key, one]) => `${key} = ${String(one)}`).join('\n') : JSON.stringify(value, null, 2);
  }
  return valueText(value);
}

/** Returns the initial texts of the form. Secrets are empty. */
export function defaultTexts(inputs: readonly StackInputAnswer[]): Typed {
  return Object.fromEntries(inputs.map((input) => [fieldName(input), input.sensitive ? '' : shownText(input)]));
}

/** Returns the typed texts, to show the form again. Secrets are left out. */
export function typedTexts(inputs: readonly StackInputAnswer[], form: Form): Typed {
  return Object.fromEntries(
    inputs.map((input) => [
      fieldName(input),
      input.sensitive ? '' : form.text(fieldName(input)).replaceAll('\r\n', '\n'),
    ]),
  );
}

const numberPattern = /^-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,2})?$/i;

/** Converts a number. Other texts stay as typed, and the API rejects them with the field's name. */
const toNumber = (text: string): number | string => (numberPattern.test(text.trim()) ? Number(text) : text);

const elementWord = ({ type_expression: expression }: StackInputAnswer): string =>
  /^\s*(?:list|set|map)\(\s*([a-z]+)\s*\)\s*$/.exec(expression ?? '')?.[1] ?? 'string';

function toElement(input: StackInputAnswer, text: string): unknown {
  const word = elementWord(input);
  if (word === 'number') return toNumber(text);
  return word === 'bool' && /^(?:true|false)$/.test(text) ? text === 'true' : text;
}

const linesOf = (text: string): string[] =>
  text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '');

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The API reports the expected type.
    return text;
  }
}

function toMap(input: StackInputAnswer, text: string): unknown {
  if (text.trimStart().startsWith('{')) return fromJson(text);
  const entries = linesOf(text).map((line) => /^([^=]*?)\s*=\s*(.*)$/.exec(line));
  if (!entries.every((entry) => entry !== null)) return text;
  return Object.fromEntries(entries.map(([, key = '', value = '']) => [key, toElement(input, value)]));
}

/** Converts a typed text to the input's value. @returns undefined for no value, so that the default applies */
function toValue(input: StackInputAnswer, typed: string): unknown {
  const { type, default: otherwise, sensitive } = input;
  // Browsers send line breaks as CR LF.
  const text = typed.replaceAll('\r\n', '\n');
  if (text === '') {
    if (sensitive) return undefined;
    // An empty field means an empty value if the input has a default: the visitor deleted the default.
    if (type === 'string') return isText(otherwise) ? '' : undefined;
    if (type === 'list') return Array.isArray(otherwise) ? [] : undefined;
    return type === 'map' && typeof otherwise === 'object' && otherwise !== null ? {} : undefined;
  }
  switch (type) {
    case 'string':
      return text;
    case 'number':
      return toNumber(text);
    case 'bool':
      return text === 'true' || text === 'false' ? text === 'true' : text;
    case 'list':
      return text.trimStart().startsWith('[') ? fromJson(text) : linesOf(text).map((line) => toElement(input, line));
    case 'map':
      return toMap(input, text);
  }
}

/** Returns the `inputs` of an apply request. */
export function inputsOf(inputs: readonly StackInputAnswer[], form: Form): Readonly<Record<string, unknown>> {
  // Leaves out unchanged defaults, so that Terraform uses the module's own value.
  const isDefault = (input: StackInputAnswer): boolean =>
    !input.sensitive && form.text(fieldName(input)).replaceAll('\r\n', '\n') === shownText(input);
  const values = inputs.map((input): [string, unknown] => [
    input.name,
    isDefault(input) ? undefined : toValue(input, form.text(fieldName(input))),
  ]);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

function hintOf({
  type,
  description,
  sensitive,
  required,
  default: otherwise,
  type_expression,
}: StackInputAnswer): string {
  const said = description === '' ? [] : [description];
  if (type === 'list') said.push('One item per line, or a JSON array.');
  if (type === 'map') said.push('One "key = value" per line, or a JSON object.');
  if (type_expression !== null && /object|tuple|any/.test(type_expression)) said.push(`Type: ${type_expression}.`);
  if (sensitive) said.push('Secret. It is never shown again.');
  if (!required && (otherwise === null || otherwise === undefined)) said.push('Optional.');
  if (sensitive && !required && otherwise !== null) said.push('If empty, the stack default applies.');
  return said.join(' ');
}

/** Renders one field per input, required inputs first. */
export function inputFields(inputs: readonly StackInputAnswer[], typed: Typed, refusal: Refusal | null): MaybeHtml {
  const sorted = inputs.toSorted((a, b) => Number(b.required) - Number(a.required));
  return sorted.map((input) => inputField(input, typed[fieldName(input)] ?? '', refusal));
}

function inputField(input: StackInputAnswer, value: string, refusal: Refusal | null): Html {
  const { type, required, sensitive } = input;
  const [name, text] = [fieldName(input), hintOf(input)];
  const label = required ? `${input.name} (required)` : input.name;
  const common = { name, label, hint: text === '' ? null : text, refusal, isRequired: required };
  if (sensitive && type !== 'list' && type !== 'map') return secretField(common);
  switch (type) {
    case 'bool': {
      const none = { value: '', label: required ? 'Choose…' : 'Stack default' };
      const options = [
        ...(value === '' || required ? [none] : []),
        { value: 'true', label: 'Yes' },
        { value: 'false', label: 'No' },
      ];
      return chooser({ ...common, options, chosen: value, problem: problemOf(refusal, name, label) });
    }
    case 'list':
    case 'map':
      return area({ ...common, value, rows: Math.min(10, Math.max(2, value.split('\n').length + 1)) });
    case 'number':
      return field({ ...common, value, inputMode: 'decimal', maxLength: 40 });
    case 'string':
      return value.includes('\n')
        ? area({ ...common, value })
        : html`${field({ ...common, value, maxLength: 20_000 })}`;
  }
}
