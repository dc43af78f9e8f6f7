import { findFlag } from './find-flag.ts';
import { engineKindOf } from './process-command-checks.ts';
import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/** Checks of the LoRA adapters of an engine file, beyond their shape. */

/** Matches `owner/name` as on Hugging Face; anything else is a folder. */
const repositoryPattern = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** Options that Headgate sets for vLLM itself if the file has adapters. */
const ownFlags = {
  '--lora-modules': 'remove it; Headgate sets it from lora',
  '--no-enable-lora': 'contradicts lora; remove one of them',
  '--max-loras': 'remove it and set max_loras',
  '--max-lora-rank': 'remove it and set max_lora_rank',
} as const;

export function loraProblems(engine: EngineFile): FileProblem[] {
  if (engine.lora.length === 0) {
    return (['max_loras', 'max_lora_rank'] as const)
      .filter((field) => engine[field] !== undefined)
      .map((field) => ({ path: [field], message: 'allowed only if lora lists adapters' }));
  }
  if (engine.driver === 'external') return externalProblems(engine);
  if (engineKindOf(engine) !== 'vllm') {
    return [{ path: ['lora'], message: 'supported by vLLM only; set kind: vllm if the engine runs vLLM' }];
  }
  return [...engine.lora.flatMap((one, index) => pathProblems(one, index, engine.driver)), ...flagProblems(engine)];
}

function externalProblems({ lora, ...engine }: EngineFile): FileProblem[] {
  const theirs = 'remove it; an external engine loads its own adapters';
  const limits = (['max_loras', 'max_lora_rank'] as const)
    .filter((field) => engine[field] !== undefined)
    .map((field) => ({ path: [field], message: theirs }));
  const paths = lora.flatMap(({ path }, index) =>
    path === undefined ? [] : [{ path: ['lora', index, 'path'], message: theirs }],
  );
  return [...limits, ...paths];
}

function pathProblems(
  { path, upstream_model: upstream }: EngineFile['lora'][number],
  index: number,
  driver: EngineFile['driver'],
): FileProblem[] {
  const problems: FileProblem[] = [];
  if (upstream !== undefined) {
    problems.push({
      path: ['lora', index, 'upstream_model'],
      message: 'remove it; Headgate uses the id in the engine',
    });
  }
  const message = path === undefined ? 'this field is missing' : pathProblem(path, driver);
  if (message !== null) problems.push({ path: ['lora', index, 'path'], message });
  return problems;
}

function pathProblem(path: string, driver: EngineFile['driver']): string | null {
  // vLLM parses name=path, and treats a value with a comma or a leading brace as JSON.
  if (/[=,{}]/.test(path)) return 'must not contain = , { or }, which vLLM cannot parse in a path';
  if (repositoryPattern.test(path)) return null;
  const isRelative = /^\.\.?\//.test(path);
  if (isRelative && driver !== 'process') return 'must not be relative: write the absolute path in the container';
  if (isRelative) return null;
  if (!path.startsWith('/')) return 'expected an absolute path of a folder, or a repository such as owner/name';
  return path.split('/').includes('..') ? 'expected an absolute path of a folder without ..' : null;
}

function flagProblems(engine: Exclude<EngineFile, { driver: 'external' }>): FileProblem[] {
  const [field, words] =
    engine.driver === 'process' ? (['command', engine.command] as const) : (['args', engine.args] as const);
  return Object.entries(ownFlags).flatMap(([flag, why]) => {
    const found = findFlag(words, flag);
    return found === null ? [] : [{ path: [field, found.index], message: `${flag}: ${why}` }];
  });
}

/** Returns the repository that a path names; null for a folder. */
export function repositoryOf(path: string): string | null {
  return repositoryPattern.test(path) ? path : null;
}
