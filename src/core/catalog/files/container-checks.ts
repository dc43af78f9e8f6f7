import { findFlag } from './find-flag.ts';
import { engineKindOf } from './process-command-checks.ts';
import { parseImage, parseVolume } from './container-file-schema.ts';
import type { TaskType } from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import {
  foreignQueueProblems,
  refusedProblems,
  unmountedProblems,
  variableProblems,
  vllmFlagProblems,
} from './vllm-flag-checks.ts';
import type { FileProblem } from './zod-problems.ts';

/** Checks of a container's engine file that involve several fields, beyond the shape of each field. */

export type ContainerFile = Extract<EngineFile, { driver: 'docker' | 'swarm' }>;

/** Options of vLLM that Headgate sets for containers itself, or that remove what Headgate bills and routes by. */
const ownFlags: Readonly<Record<string, string>> = {
  '--served-model-name': 'remove it; Headgate serves the model as id, name and hugging_face_id',
  '--api-key': 'remove it; Headgate creates a key for each replica',
  '--host': 'remove it; Headgate sets the listen address',
  '--port': 'remove it; set the field port instead',
  '--uds': 'remove it; Headgate sets the listen address',
  '--enable-force-include-usage': 'remove it; Headgate adds it',
  '--no-enable-force-include-usage': 'remove it; Headgate bills by the usage that this option hides',
  '--enable-prompt-tokens-details': 'remove it; Headgate adds it',
  '--no-enable-prompt-tokens-details': 'remove it; Headgate bills cached tokens by the details that this option hides',
  '--disable-log-stats': 'remove it; Headgate routes by the statistics that this option hides',
  '--shutdown-timeout': 'remove it; set drain_seconds, which Headgate applies before it stops the engine',
  '--hf-token': 'remove it; set HF_TOKEN by reference under env',
};

/** Variables that Headgate sets itself. */
const ownVariables: Readonly<Record<string, string>> = {
  VLLM_SERVER_DEV_MODE: 'remove it; Headgate sets it where only the gateway can connect',
};

/** Variables that would give a container other devices than the ones assigned to it. */
const deviceVariables: Readonly<Record<string, string>> = {
  CUDA_VISIBLE_DEVICES: 'remove it; Headgate assigns devices to each replica (see gpus)',
  NVIDIA_VISIBLE_DEVICES: 'remove it; Headgate assigns devices to each replica (see gpus)',
  HIP_VISIBLE_DEVICES: 'remove it; Headgate assigns devices to each replica (see gpus)',
};

export function containerProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'docker' && engine.driver !== 'swarm') return [];
  return [
    ...(engineKindOf(engine) === 'vllm'
      ? vllmProblems(engine)
      : [...openaiProblems(engine), ...foreignQueueProblems(engine)]),
    ...volumeProblems(engine),
    ...canaryProblems(engine),
  ];
}

function vllmProblems(engine: ContainerFile): FileProblem[] {
  return [
    ...modelProblems(engine),
    ...refusedProblems(engine.args, ownFlags, 'args'),
    ...vllmFlagProblems(engine, engine.args, 'args'),
    ...unmountedProblems(engine),
    ...variableProblems(engine, { ...ownVariables, ...deviceVariables }),
    ...parallelProblems(engine),
    ...sleepProblems(engine),
  ];
}

/**
 * Requires a model in `args`: without one, vLLM serves a model of its own choice, which would be billed as this one.
 */
function modelProblems({ args, entrypoint, hugging_face_id: repository }: ContainerFile): FileProblem[] {
  if (entrypoint !== undefined) return [];
  const [first] = args;
  if (first === undefined) return [{ path: ['args'], message: `the model is missing: put ${repository} first` }];
  if (first === 'vllm' || first === 'serve') {
    const message = `the image already runs "vllm serve": put the model first, ${repository}`;
    return [{ path: ['args', 0], message }];
  }
  if (!first.startsWith('-') || findFlag(args, '--model') !== null) return [];
  return [{ path: ['args', 0], message: `the model is missing: put ${repository} first` }];
}

function openaiProblems(engine: ContainerFile): FileProblem[] {
  const fields = ['tensor_parallel_size', 'sleep_level'] as const;
  const unknown = fields
    .filter((field) => engine[field] !== undefined && engine[field] !== 0)
    .map((field) => ({ path: [field], message: 'supported by vLLM only; set kind: vllm if the image runs vLLM' }));
  return [...unknown, ...variableProblems(engine, deviceVariables)];
}

const parallelFlags = {
  tensor: ['--tensor-parallel-size', '-tp'],
  pipeline: ['--pipeline-parallel-size', '-pp'],
  data: ['--data-parallel-size', '-dp'],
  prefill: ['--prefill-context-parallel-size', '-pcp'],
} as const;

/** Returns the value of a vLLM option for several GPUs; null if absent. */
function parallelSize(
  args: readonly string[],
  kind: keyof typeof parallelFlags,
): { index: number; size: number } | null {
  const found = findFlag(args, ...parallelFlags[kind]);
  return found === null ? null : { index: found.index, size: Number(found.value) };
}

/**
 * Returns the number of GPUs over which vLLM splits each layer: the number in the file, or else all GPUs that pipeline
 * and data parallelism leave. The result may be a fraction if these do not fit; `containerProblems` reports that.
 */
export function tensorParallelSize({ args, gpus, tensor_parallel_size: size }: ContainerFile): number {
  return size ?? parallelSize(args, 'tensor')?.size ?? (gpus?.count ?? 1) / otherParallelSizes(args);
}

/** True if the arguments themselves set the size. */
export function givesTensorParallelSize(args: readonly string[]): boolean {
  return parallelSize(args, 'tensor') !== null;
}

/** True if the arguments say how vLLM uses several GPUs. */
export function givesParallelSize(args: readonly string[]): boolean {
  return Object.values(parallelFlags).some((names) => findFlag(args, ...names) !== null);
}

function otherParallelSizes(args: readonly string[]): number {
  return (['pipeline', 'data', 'prefill'] as const).reduce(
    (all, kind) => all * (parallelSize(args, kind)?.size ?? 1),
    1,
  );
}

/**
 * Returns the problem of vLLM's options for several GPUs given a replica's number of GPUs, with the index of the
 * argument; null if they match.
 */
export function parallelProblem(words: readonly string[], gpus: number): { index: number | null; text: string } | null {
  const given = parallelSize(words, 'tensor');
  const used = (given?.size ?? 1) * otherParallelSizes(words);
  return used === gpus ? null : { index: given?.index ?? null, text: parallelText(used, gpus) };
}

function parallelText(used: number, gpus: number): string {
  return Number.isInteger(used)
    ? `the parallel sizes multiply to ${used}, but gpus.count is ${gpus}: make them equal`
    : 'a parallel size is not a whole number: set it to a number of GPUs';
}

function parallelProblems(engine: ContainerFile): FileProblem[] {
  const { args, gpus, tensor_parallel_size: size } = engine;
  const given = parallelSize(args, 'tensor');
  if (given !== null && size !== undefined && given.size !== size) {
    return [{ path: ['tensor_parallel_size'], message: 'contradicts args; remove one of them' }];
  }
  if (gpus === undefined) {
    return unplacedProblems(engine, (size ?? given?.size ?? 1) * otherParallelSizes(args), given?.index ?? null);
  }
  const used = tensorParallelSize(engine) * otherParallelSizes(args);
  if (Number.isInteger(tensorParallelSize(engine)) && used === gpus.count) return [];
  const message = parallelText(used, gpus.count);
  if (size !== undefined) return [{ path: ['tensor_parallel_size'], message }];
  if (given !== null) return [{ path: ['args', given.index], message }];
  const undivided = `${gpus.count} is not divisible by the pipeline and data parallel sizes in args`;
  return [{ path: ['gpus', 'count'], message: undivided }];
}

/**
 * Checks a file without `gpus`. An image for CPUs splits layers over the machine's sockets, which are not counted here.
 */
function unplacedProblems({ image, tensor_parallel_size: size }: ContainerFile, used: number, index: number | null) {
  if (used === 1 || /cpu/.test(parseImage(image)?.repository ?? '')) return [];
  const path = size !== undefined ? ['tensor_parallel_size'] : index !== null ? ['args', index] : ['args'];
  const message = Number.isInteger(used)
    ? `the parallel sizes need ${used} GPUs, but the file has no gpus: add gpus with count: ${used}`
    : 'a parallel size is not a whole number: set it to a number of GPUs';
  return [{ path, message }];
}

function sleepProblems({ sleep_level: level, gpus, args }: ContainerFile): FileProblem[] {
  if (level === 0) return [];
  if (gpus === undefined) return [{ path: ['sleep_level'], message: 'requires gpus: vLLM cannot sleep on a CPU' }];
  const refused = findFlag(args, '--no-enable-sleep-mode');
  if (refused === null) return [];
  return [{ path: ['args', refused.index], message: '--no-enable-sleep-mode contradicts sleep_level' }];
}

function volumeProblems({ volumes }: ContainerFile): FileProblem[] {
  const targets = volumes.map((volume) => parseVolume(volume)?.target.replace(/\/+$/, ''));
  return targets.flatMap((target, index) =>
    targets.indexOf(target) === index
      ? []
      : [{ path: ['volumes', index], message: `${target ?? ''} is already mounted` }],
  );
}

const textless: readonly string[] = ['embeddings', 'rerank', 'score'];

/** Returns the routes that serve models of a task. */
function canaryRoutes(task: TaskType): readonly string[] {
  if (task === 'embedding') return ['embeddings'];
  if (task === 'rerank') return ['rerank', 'score'];
  return task === 'completion' ? ['completions'] : ['chat/completions', 'completions', 'responses', 'messages'];
}

function canaryProblems({ canaries, task_type: task }: ContainerFile): FileProblem[] {
  const routes = canaryRoutes(task);
  return canaries.flatMap(({ route, body, contains }, index) => {
    const problems = ['model', 'stream']
      .filter((key) => body[key] !== undefined)
      .map((key) => ({ path: ['canaries', index, 'body', key], message: 'remove it; Headgate sets this field' }));
    if (!routes.includes(route)) {
      problems.unshift({
        path: ['canaries', index, 'route'],
        message: `this route does not serve ${task} models: use ${routes.join(' or ')}`,
      });
    }
    if (textless.includes(route) && contains !== undefined) {
      problems.push({
        path: ['canaries', index, 'contains'],
        message: 'remove it; responses of this route have no text',
      });
    }
    return problems;
  });
}
