import { type Document, isMap, isScalar, isSeq, parseDocument, stringify, visit } from 'yaml';

/** The fields of the form for an engine file, and the text of a file with them. */

export const drivers = ['docker', 'process', 'swarm', 'external'] as const;
export type Driver = (typeof drivers)[number];

export interface FileField {
  /** Path in the file, such as `gpus.count`. */
  readonly name: string;
  readonly label: string;
  /** `words`: a list of texts, one per line. */
  readonly kind: 'text' | 'number' | 'words' | 'choice';
  readonly hint?: string;
  readonly placeholder?: string;
  readonly choices?: readonly string[];
  /** Drivers whose files have the field; absent: all. */
  readonly drivers?: readonly Driver[];
}

export interface FieldGroup {
  readonly title: string;
  readonly fields: readonly FileField[];
}

const containers: readonly Driver[] = ['docker', 'swarm'];
const ours: readonly Driver[] = ['docker', 'process', 'swarm'];
const external: readonly Driver[] = ['external'];

const taskTypes = ['chat', 'vision', 'code', 'completion', 'embedding', 'rerank'];

/** In the order of the file. */
export const groups: readonly FieldGroup[] = [
  {
    title: 'Model',
    fields: [
      { name: 'id', label: 'Id', kind: 'text', placeholder: 'qwen3-4b', hint: 'Name of the model in the API.' },
      { name: 'name', label: 'Name', kind: 'text', placeholder: 'Qwen3 4B', hint: 'Display name.' },
      {
        name: 'hugging_face_id',
        label: 'Repository',
        kind: 'text',
        placeholder: 'Qwen/Qwen3-4B-Instruct-2507',
        hint: 'On Hugging Face.',
      },
      { name: 'task_type', label: 'Task', kind: 'choice', choices: taskTypes },
      {
        name: 'context_length',
        label: 'Context length',
        kind: 'number',
        placeholder: '32768',
        hint: 'Most tokens of prompt and output together.',
      },
    ],
  },
  {
    title: 'Prices',
    fields: [
      { name: 'pricing.input_per_million', label: 'Input', kind: 'number', hint: 'USD per million tokens.' },
      { name: 'pricing.cached_input_per_million', label: 'Cached input', kind: 'number' },
      { name: 'pricing.output_per_million', label: 'Output', kind: 'number' },
    ],
  },
  {
    title: 'Engine',
    fields: [
      {
        name: 'image',
        label: 'Image',
        kind: 'text',
        placeholder: 'vllm/vllm-openai:v0.32.0',
        hint: 'With a fixed version or a digest.',
        drivers: containers,
      },
      {
        name: 'args',
        label: 'Arguments',
        kind: 'words',
        hint: 'One word per line: for vLLM the model, then the options.',
        drivers: containers,
      },
      {
        name: 'command',
        label: 'Command',
        kind: 'words',
        hint: 'Program and arguments, one word per line. Headgate fills in {socket} and {port}.',
        drivers: ['process'],
      },
      {
        name: 'volumes',
        label: 'Volumes',
        kind: 'words',
        placeholder: 'hf-cache:/root/.cache/huggingface',
        hint: 'One per line.',
        drivers: containers,
      },
      {
        name: 'url',
        label: 'Address',
        kind: 'text',
        placeholder: 'http://10.0.0.7:8000',
        hint: 'Of the API of the engine, without /v1.',
        drivers: external,
      },
      {
        name: 'upstream_model',
        label: 'Name in the engine',
        kind: 'text',
        hint: 'If empty, the id.',
        drivers: external,
      },
      {
        name: 'api_key_env',
        label: 'Variable with the key',
        kind: 'text',
        placeholder: 'ENGINE_API_KEY',
        hint: "Name of the gateway's environment variable with the API key of the engine.",
        drivers: external,
      },
    ],
  },
  {
    title: 'Resources',
    fields: [
      { name: 'gpus.count', label: 'GPUs', kind: 'number', hint: 'Per replica. If empty, none.', drivers: ours },
      {
        name: 'gpus.memory_gib',
        label: 'GPU memory',
        kind: 'number',
        hint: 'Of each, at least, in GiB.',
        drivers: ours,
      },
      {
        name: 'gpus.profile',
        label: 'GPU',
        kind: 'text',
        placeholder: 'H100',
        hint: 'Part of its name.',
        drivers: ours,
      },
      { name: 'memory_gib', label: 'Memory', kind: 'number', hint: 'Per replica, in GiB.', drivers: ['process'] },
      { name: 'replicas.min', label: 'Replicas, minimum', kind: 'number', hint: 'If empty, 0.', drivers: ours },
      { name: 'replicas.max', label: 'Replicas, maximum', kind: 'number', hint: 'If empty, 1.', drivers: ours },
      {
        name: 'idle_seconds',
        label: 'Idle time',
        kind: 'number',
        hint: 'Seconds after which a replica stops. If empty, 300.',
        drivers: ours,
      },
      {
        name: 'start_timeout_seconds',
        label: 'Start timeout',
        kind: 'number',
        hint: 'Seconds that a start may take.',
        drivers: ours,
      },
      {
        name: 'max_concurrent',
        label: 'Max requests',
        kind: 'number',
        hint: 'At which the engine is full. If empty, no limit.',
      },
    ],
  },
];

export const fieldsOf = (driver: Driver): readonly FileField[] =>
  groups.flatMap(({ fields }) => fields).filter((field) => field.drivers?.includes(driver) ?? true);

/** The texts of the form's fields by name, and all other settings as YAML. */
export interface FileForm {
  readonly driver: Driver;
  readonly values: Readonly<Record<string, string>>;
  readonly more: string;
}

/** Returns the text of the file. Whatever the form has is written, and the parser of engine files judges it. */
export function textOf({ driver, values, more }: FileForm): string {
  const lines = ['version: 1', `driver: ${driver}`];
  let group = '';
  for (const field of fieldsOf(driver)) {
    const value = values[field.name] ?? '';
    if (value.trim() === '') continue;
    const [first = '', second] = field.name.split('.');
    if (second !== undefined && group !== first) lines.push(`${first}:`);
    group = second === undefined ? '' : first;
    lines.push(...linesOf(field, second === undefined ? first : `  ${second}`, value));
  }
  const rest = more.trim();
  return `${lines.join('\n')}\n${rest === '' ? '' : `${rest}\n`}`;
}

function linesOf({ kind }: FileField, key: string, value: string): readonly string[] {
  if (kind === 'words') return [`${key}:`, ...wordsOf(value).map((word) => `  - ${quoted(word)}`)];
  // A number stays as it was written; other text is quoted, so that the parser says what it expects.
  const text = value.trim();
  return [`${key}: ${kind === 'number' && number.test(text) ? text : quoted(text)}`];
}

const number = /^-?\d+(?:\.\d+)?$/;
/** A text that a field can show: one line without spaces around. */
const line = /^\S(?:.*\S)?$/;

const wordsOf = (text: string): readonly string[] =>
  text
    .split('\n')
    .map((word) => word.trim())
    .filter((word) => word !== '');
const quoted = (text: string): string => stringify(text, { lineWidth: 0, blockQuote: false }).trimEnd();

/** Reads a file into the form. Settings that have no field of their own keep their text. */
export function formOf(text: string): FileForm {
  const document = parseDocument(text, { version: '1.2', logLevel: 'error' });
  const map = document.contents;
  const given = isMap(map) ? map.get('driver') : undefined;
  const driver = drivers.find((one) => one === String(given)) ?? 'docker';
  if (!isMap(map) || document.errors.length > 0) return { driver, values: {}, more: text };
  // A field without its anchor, or an alias in a field, would be something else.
  const values = hasAlias(document) ? {} : takeValues(document, driver);
  for (const name of ['version', 'driver']) map.delete(name);
  const more = map.items.length === 0 ? '' : document.toString({ lineWidth: 0 });
  return { driver, values, more: more.replace(/^# yaml-language-server:.*\n/, '').trim() };
}

function hasAlias(document: Document): boolean {
  let found = false;
  visit(document, {
    Alias() {
      found = true;
      return visit.BREAK;
    },
  });
  return found;
}

/** Removes the fields of the form from the document. */
function takeValues(document: Document, driver: Driver): Record<string, string> {
  const values: Record<string, string> = {};
  const fields = fieldsOf(driver);
  for (const field of fields) {
    const [first = '', second] = field.name.split('.');
    // A map with settings that have no field stays together.
    if (second !== undefined && !isWhole(document.get(first, true), first, fields)) continue;
    const value = valueOf(field, document.getIn(field.name.split('.'), true));
    if (value === null) continue;
    values[field.name] = value;
    document.deleteIn(field.name.split('.'));
    const rest = document.get(first, true);
    if (second !== undefined && isMap(rest) && rest.items.length === 0) document.delete(first);
  }
  return values;
}

function isWhole(node: unknown, group: string, fields: readonly FileField[]): boolean {
  if (!isMap(node)) return false;
  return node.items.every(({ key, value }) => {
    const field = fields.find(({ name }) => name === `${group}.${String(isScalar(key) ? key.value : key)}`);
    return field !== undefined && valueOf(field, value) !== null;
  });
}

/** Returns the text of a field; null if the form cannot show it. */
function valueOf({ kind, choices }: FileField, node: unknown): string | null {
  if (kind === 'words') {
    if (!isSeq(node)) return null;
    const words = node.items.map((item) => (isScalar(item) && typeof item.value === 'string' ? item.value : ''));
    return words.length > 0 && words.every((word) => line.test(word)) ? words.join('\n') : null;
  }
  if (!isScalar(node)) return null;
  const { value, source = '' } = node;
  if (kind === 'number') return typeof value === 'number' && number.test(source) ? source : null;
  return typeof value === 'string' && line.test(value) && (choices === undefined || choices.includes(value))
    ? value
    : null;
}
