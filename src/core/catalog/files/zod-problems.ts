import type { z } from 'zod';
import type { YamlSource } from './yaml-source.ts';

/** A problem of a field of a file. */
export interface FileProblem {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

const fieldCharsMax = 200;
const messageCharsMax = 500;

const clipped = (text: string, charsMax: number): string =>
  text.length > charsMax ? `${text.slice(0, charsMax)}…` : text;

/** Adds the place in the file to a problem, and clips quotes, which may be as long as the file. */
export function located(file: string, source: YamlSource, { path, message }: FileProblem) {
  const field = path.length === 0 ? null : clipped(fieldText(path), fieldCharsMax);
  return { file, line: source.lineOf(path), field, message: clipped(message, messageCharsMax) };
}

function fieldText(path: readonly PropertyKey[]): string {
  return path
    .map((part, index) => (typeof part === 'number' ? `[${part}]` : (index > 0 ? '.' : '') + String(part)))
    .join('');
}

/**
 * Converts zod's issues to one sentence per field, in terms of the file instead of JavaScript.
 * @param instead what to do instead of unknown fields at the top level, by their names
 */
export function issueProblems(
  issues: readonly z.core.$ZodIssue[],
  input: unknown,
  instead: ReadonlyMap<string, string> = new Map(),
): FileProblem[] {
  return issues.flatMap((issue): FileProblem[] => {
    if (issue.code === 'unrecognized_keys') {
      const isWholeFile = issue.path.length === 0;
      return issue.keys.map((key) => {
        const hint = isWholeFile ? instead.get(key) : undefined;
        return { path: [...issue.path, key], message: hint === undefined ? 'unknown field' : `unknown field: ${hint}` };
      });
    }
    if (issue.path.length === 0) return [{ path: [], message: 'expected fields such as "id: my-model"' }];
    if (valueAt(input, issue.path) === undefined) return [{ path: issue.path, message: 'this field is missing' }];
    return [{ path: issue.path, message: problemText(issue) }];
  });
}

function problemText(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return typeText(issue);
    case 'invalid_value':
      return `expected ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`;
    case 'invalid_union':
      return 'expected "process", "docker", "swarm" or "external"';
    case 'invalid_key':
      return issue.issues[0]?.message ?? issue.message;
    case 'too_small':
      return measuresLength(issue.origin) ? 'must not be empty' : `must be at least ${issue.minimum}`;
    case 'too_big':
      return `must ${measuresLength(issue.origin) ? 'not be longer than' : 'be at most'} ${issue.maximum}`;
    default:
      return issue.message;
  }
}

function typeText({ expected, message }: z.core.$ZodIssueInvalidType): string {
  // A schema's own message for a wrong type is more exact than the name of the type.
  if (!message.startsWith('Invalid input')) return message;
  if (expected === 'record') return 'expected a map of names to values';
  // YAML's numbers and booleans are the usual cause.
  return expected === 'string' ? 'expected text: put the value in quotes' : `expected ${expected}`;
}

function measuresLength(origin: string): boolean {
  return origin === 'string' || origin === 'array';
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value: unknown = input;
  for (const part of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Reflect.get(value, part);
  }
  return value;
}
