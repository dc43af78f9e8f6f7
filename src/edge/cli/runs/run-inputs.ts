import { z } from 'zod';
import { type CommandContext, listFlag, parseAnswer, readText, textFlag, UsageError } from '#edge/cli/shell/shell.ts';
import { stackPath, versionNumber } from '#edge/cli/stacks.ts';

/** Reads the inputs of a stack from the words of a command. */

const declared = async () => (await import('#edge/contract/stacks.ts')).stackSchema;

/** Reads inputs from a file and from single options, which override the file. @throws UsageError, FailedError */
export async function readInputs(context: CommandContext, stack: string): Promise<Record<string, unknown>> {
  const file = textFlag(context, 'inputs');
  const single = listFlag(context, 'input').map(split);
  const ofFile = file === null ? {} : readFile(file);
  if (single.length === 0) return ofFile;
  const version = textFlag(context, 'stack-version');
  const path = `${stackPath(stack)}${version === null ? '' : `?version=${versionNumber('--stack-version', version)}`}`;
  const { inputs } = await parseAnswer(declared, await context.api.call('GET', path));
  const types = new Map(inputs.map(({ name, type }) => [name, type]));
  const given = single.map(([name, text]): [string, unknown] => [name, readValue(name, text, types.get(name))]);
  return { ...ofFile, ...Object.fromEntries(given) };
}

function split(word: string): [string, string] {
  const equals = word.indexOf('=');
  if (equals > 0) return [word.slice(0, equals), word.slice(equals + 1)];
  throw new UsageError(`--input ${word}: must be NAME=VALUE`);
}

function readFile(path: string): Record<string, unknown> {
  try {
    return z.record(z.string(), z.unknown()).parse(JSON.parse(readText(path)));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${path} must contain a JSON object: {"name": value}`);
  }
}

/**
 * Parses an input's value. The value stays text if the input is a string, or unknown to the stack, which the gateway
 * reports. @throws UsageError
 */
function readValue(name: string, text: string, type: string | undefined): unknown {
  if (type === undefined || type === 'string') return text;
  try {
    const value: unknown = JSON.parse(text);
    // The text of a long number keeps all digits; the gateway accepts numbers as texts.
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? text : value;
  } catch {
    const examples: Readonly<Record<string, string>> = { bool: 'true', list: '["a"]', map: '{"a": 1}' };
    throw new UsageError(`--input ${name}=…: must be a ${type}, such as ${examples[type] ?? '1'}`);
  }
}
