import type { z } from 'zod';
import { readYaml, type YamlOptions } from '#core/catalog/catalog.ts';
import { FailedError } from '#edge/cli/shell/shell.ts';

/** Parses the text of another program's configuration. @throws FailedError */
export function readConfiguration(text: string, prepare?: YamlOptions['prepare']): unknown {
  const read = readYaml(text, { merge: true, ...(prepare !== undefined && { prepare }) });
  if (read.ok) return read.source.value;
  const [first] = read.problems;
  throw new FailedError((first?.message ?? 'not valid YAML').replace(': ', `: line ${first?.line ?? 1}: `));
}

/** Describes the first field that does not match the other program's format. */
export function noConfiguration(program: string, { issues }: z.ZodError): FailedError {
  const [issue] = issues;
  const path = issue?.path.join('.') ?? '';
  const message = issue === undefined ? 'unknown format' : sentence(issue);
  return new FailedError(`this is not a configuration of ${program}: ${path === '' ? '' : `${path}: `}${message}`);
}

function sentence(issue: z.core.$ZodIssue): string {
  if (issue.code === 'invalid_union') return 'expected a string or a number';
  if (issue.code !== 'invalid_type') return issue.message;
  if (issue.message.endsWith('received undefined')) return 'this field is missing';
  return `expected ${['record', 'object'].includes(issue.expected) ? 'a map' : issue.expected}`;
}
