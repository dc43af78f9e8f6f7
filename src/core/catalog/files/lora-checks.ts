import { findFlag } from './find-flag.ts';
import { engineKindOf } from './process-command-checks.ts';
import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/** Checks of the LoRA adapters of an engine file, beyond their shape. */

/** Matches `owner/name` as on Hugging Face; anything else is a folder. */
const repositoryPattern = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** Options that Headgate sets for vLLM itself if the file has adapters. */
const ownFlags = {
  '--lora-modules': 'leave it out, Headgate makes it of lora',
  '--no-enable-lora': 'contradicts lora; leave one of them out',
  '--max-loras': 'leave it out and write max_loras',
  '--max-lora-rank': 'leave it out and write max_lora_rank',
} as const;

export function loraProblems(engine: EngineFile): FileProblem[] {
  if (engine.lora.length === 0) {
    return (['max_loras', 'max_lora_rank'] as const)
      .filter((field) => engine[field] !== undefined)
      .map((field) => ({ path: [field], message: 'only where lora lists adapters' }));
  }
  if (engine.driver === 'external') return externalProblems(engine);
  if (engineKindOf(engine) !== 'vllm') {
    return [{ path: ['lora'], message: 'only vLLM serves adapters; kind: vllm says that the engine is one' }];
  }
  return [...engine.lora.flatMap((one, index) => pathProblems(one, index, engine.driver)), ...flagProblems(engine)];
}

function externalProblems({ lora, ...engine }: EngineFile): FileProblem[] {
  const theirs = 'leave it out: whoever runs the engine loads its adapters';
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
    problems.push({ path: ['lora', index, 'upstream_model'], message: 'leave it out: the engine is told the id' });
  }
  const message = path === undefined ? 'this field is missing' : pathProblem(path, driver);
  if (message !== null) problems.push({ path: ['lora', index, 'path'], message });
  return problems;
}

function pathProblem(path: string, driver: EngineFile['driver']): string | null {
  // vLLM parses name=path, and treats a value with a comma or a leading brace as JSON.
  if (/[=,{}]/.test(path)) return 'vLLM cannot be told of a path with = , { or }';
  if (repositoryPattern.test(path)) return null;
  const isRelative = /^\.\.?\//.test(path);
  if (isRelative && driver !== 'process') return 'relative to what? write the absolute path within the container';
  if (isRelative) return null;
  if (!path.startsWith('/')) return 'expected an absolute folder, or a repository as owner/name';
  return path.split('/').includes('..') ? 'expected an absolute folder without ..' : null;
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
