import { basename } from 'node:path';
import { parseImage } from './container-file-schema.ts';
import type { EngineKind } from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/** What the command of an engine file means, beyond its shape. */

type ProcessFile = Extract<EngineFile, { driver: 'process' }>;

export interface EnvironmentReference {
  readonly path: readonly PropertyKey[];
  readonly name: string;
}

/** Of a flag that is shortened; two letters more than its dashes begin many. */
const shortenedCharsMin = 5;

const referencePattern = /\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g;

/** What the file says, else `vllm` for a program of that name and for images such as `vllm/vllm-openai`. */
export function engineKindOf(engine: EngineFile): EngineKind {
  if (engine.kind !== undefined) return engine.kind;
  if (engine.driver === 'external') return 'openai';
  if (engine.driver === 'process') return basename(engine.command[0] ?? '') === 'vllm' ? 'vllm' : 'openai';
  return basename(parseImage(engine.image)?.repository ?? '').startsWith('vllm') ? 'vllm' : 'openai';
}

/**
 * Where a command has one of vLLM's flags, written `--a-flag value`, `--a-flag=value`, with underscores, or shortened:
 * Python's argparse takes any beginning that no other flag has, and refuses the others.
 * @returns the index of the argument and its value ('' for a switch at the end), or null
 */
export function findFlag(command: readonly string[], flag: string): { index: number; value: string } | null {
  for (const [index, argument] of command.entries()) {
    if (!argument.startsWith('--')) continue;
    const equals = argument.indexOf('=');
    const name = (equals === -1 ? argument : argument.slice(0, equals)).replaceAll('_', '-');
    if (name !== flag && (name.length < shortenedCharsMin || !flag.startsWith(name))) continue;
    return { index, value: equals === -1 ? (command[index + 1] ?? '') : argument.slice(equals + 1) };
  }
  return null;
}

/** Puts the gateway's variables in place of `${NAME}`; null when one of them is not set. */
export function fillReferences(text: string, env: Readonly<Record<string, string | undefined>>): string | null {
  let complete = true;
  const filled = text.replace(referencePattern, (_, name: string) => {
    const value = env[name];
    if (value === undefined || value === '') complete = false;
    return value ?? '';
  });
  return complete ? filled : null;
}

/** Every variable of the gateway that the file refers to. */
export function environmentReferences(engine: EngineFile): EnvironmentReference[] {
  if (engine.driver === 'external') {
    return engine.api_key_env === undefined ? [] : [{ path: ['api_key_env'], name: engine.api_key_env }];
  }
  return Object.entries(engine.env).flatMap(([variable, value]) =>
    [...value.matchAll(referencePattern)].map(([, name = '']) => ({ path: ['env', variable], name })),
  );
}

/** What would keep the gateway from finding or understanding the program once it runs. */
export function commandProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'process') return [];
  if ((engine.command[0] ?? '').trim() === '') return [{ path: ['command', 0], message: 'the program is missing' }];
  const hasSocket = engine.command.some((argument) => argument.includes('{socket}'));
  const hasPort = engine.command.some((argument) => argument.includes('{port}'));
  if (hasSocket && hasPort) return [{ path: ['command'], message: 'use either {socket} or {port}, not both' }];
  if (engineKindOf(engine) === 'vllm') return vllmProblems(engine);
  if (hasSocket || hasPort) return [];
  return [{ path: ['command'], message: 'must hold {socket} or {port}, so that Headgate knows where it listens' }];
}

function vllmProblems(engine: ProcessFile): FileProblem[] {
  const problems: FileProblem[] = [];
  for (const [flag, placeholder] of [
    ['--uds', '{socket}'],
    ['--port', '{port}'],
  ] as const) {
    const found = findFlag(engine.command, flag);
    if (found === null || found.value.includes(placeholder)) continue;
    problems.push({ path: ['command', found.index], message: `${flag} needs ${placeholder} as its value` });
  }
  const servedName = findFlag(engine.command, '--served-model-name');
  if (servedName !== null && servedName.value !== engine.id) {
    problems.push({
      path: ['command', servedName.index],
      message: `the first --served-model-name must be the id (${engine.id}): answers call the model so`,
    });
  }
  const apiKey = findFlag(engine.command, '--api-key');
  if (apiKey !== null) {
    problems.push({
      path: ['command', apiKey.index],
      message: '--api-key: leave it out, only Headgate reaches the engine',
    });
  }
  return [...problems, ...joinedArguments(engine.command, 'command')];
}

/** One item that holds an option and its value reaches the program as one word, which it does not know. */
export function joinedArguments(items: readonly string[], field: string): FileProblem[] {
  return items.flatMap((item, index) => {
    const [option = '', value = ''] = item.split(/[ \t]+/, 2);
    if (!/^--?[A-Za-z][\w.-]*$/.test(option) || value === '') return [];
    return [
      { path: [field, index], message: `two words in one item: write ${option} and its value as items of their own` },
    ];
  });
}
