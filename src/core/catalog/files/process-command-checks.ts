import { basename } from 'node:path';
import { parseImage } from './container-file-schema.ts';
import type { EngineKind } from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import { findFlag } from './find-flag.ts';
import { foreignQueueProblems, vllmFlagProblems } from './vllm-flag-checks.ts';
import type { FileProblem } from './zod-problems.ts';

/** Checks of the command of an engine file, beyond its shape. */

type ProcessFile = Extract<EngineFile, { driver: 'process' }>;

export interface EnvironmentReference {
  readonly path: readonly PropertyKey[];
  readonly name: string;
}

const referencePattern = /\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g;

/**
 * Returns the kind in the file, or else `vllm` for a program of that name and for images such as `vllm/vllm-openai`.
 */
export function engineKindOf(engine: EngineFile): EngineKind {
  if (engine.kind !== undefined) return engine.kind;
  if (engine.driver === 'external') return 'openai';
  if (engine.driver === 'process') return basename(engine.command[0] ?? '') === 'vllm' ? 'vllm' : 'openai';
  return basename(parseImage(engine.image)?.repository ?? '').startsWith('vllm') ? 'vllm' : 'openai';
}

/** Replaces `${NAME}` with the gateway's variables; null if one of them is not set. */
export function fillReferences(text: string, env: Readonly<Record<string, string | undefined>>): string | null {
  let complete = true;
  const filled = text.replace(referencePattern, (_, name: string) => {
    const value = env[name];
    if (value === undefined || value === '') complete = false;
    return value ?? '';
  });
  return complete ? filled : null;
}

/** Returns every variable of the gateway that the file refers to. */
export function environmentReferences(engine: EngineFile): EnvironmentReference[] {
  if (engine.driver === 'external') {
    const own = (engine.deployments ?? []).map((one, index) => {
      return { path: ['deployments', index, 'api_key_env'], name: one.api_key_env };
    });
    return [{ path: ['api_key_env'], name: engine.api_key_env }, ...own].flatMap(({ path, name }) =>
      name === undefined ? [] : [{ path, name }],
    );
  }
  return Object.entries(engine.env).flatMap(([variable, value]) =>
    [...value.matchAll(referencePattern)].map(([, name = '']) => ({ path: ['env', variable], name })),
  );
}

/** Reports what would keep the gateway from reaching or understanding the program once it runs. */
export function commandProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'process') return [];
  if ((engine.command[0] ?? '').trim() === '') return [{ path: ['command', 0], message: 'the program is missing' }];
  const hasSocket = engine.command.some((argument) => argument.includes('{socket}'));
  const hasPort = engine.command.some((argument) => argument.includes('{port}'));
  if (hasSocket && hasPort) return [{ path: ['command'], message: 'use either {socket} or {port}, not both' }];
  if (engineKindOf(engine) === 'vllm') return vllmProblems(engine);
  const foreign = foreignQueueProblems(engine);
  if (hasSocket || hasPort) return foreign;
  return [
    ...foreign,
    { path: ['command'], message: 'must contain {socket} or {port}, which Headgate replaces with the listen address' },
  ];
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
      message: `the first --served-model-name must be the id (${engine.id}), because responses contain it`,
    });
  }
  const apiKey = findFlag(engine.command, '--api-key');
  if (apiKey !== null) {
    problems.push({
      path: ['command', apiKey.index],
      message: '--api-key: remove it; only Headgate can reach the engine',
    });
  }
  return [...problems, ...vllmFlagProblems(engine, engine.command, 'command')];
}
