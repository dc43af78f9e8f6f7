import type { ReplicaExit } from './driver.ts';
import { isCalm, lastTellingOf, tellingLine, wordsOf } from './telling-line.ts';

/** Why an engine does not run. `publicText` may be shown to anybody: it names no path, address or program. */
export interface FailureCause {
  readonly kind: FailureKind;
  readonly publicText: string;
  /** More of it for operators, never for clients. */
  readonly detail?: string;
}

export type FailureKind =
  | 'bad_arguments'
  | 'canary_failed'
  | 'crashed'
  | 'disk_full'
  | 'ended'
  | 'gpu_in_use'
  | 'held'
  | 'host_unreachable'
  | 'image_denied'
  | 'image_not_found'
  | 'image_not_loaded'
  | 'memory'
  | 'memory_settings'
  | 'missing_setting'
  | 'mount_not_found'
  | 'no_accelerator'
  | 'no_node'
  | 'no_room'
  | 'not_executable'
  | 'port_in_use'
  | 'probe_failed'
  | 'program_not_found'
  | 'spawn_failed'
  | 'timeout'
  | 'token'
  | 'unreachable'
  | 'vanished'
  | 'weights_not_found';

const publicTexts: Record<FailureKind, string> = {
  bad_arguments: 'The engine of this model refused its settings.',
  canary_failed: 'The engine of this model does not answer as it should.',
  crashed: 'The engine of this model ended unexpectedly.',
  disk_full: 'There is no space left where this model should run.',
  ended: 'The engine of this model ended by itself.',
  gpu_in_use: 'The memory of the GPU that this model needs is in use by something else.',
  held: 'This model was stopped by its operator.',
  host_unreachable: 'The machine that runs this model cannot be reached.',
  image_denied: 'The image of the engine of this model needs a login that is missing or not accepted.',
  image_not_found: 'The image of the engine of this model was not found.',
  image_not_loaded: 'The image of the engine of this model could not be loaded.',
  memory: 'There is not enough memory to run this model.',
  memory_settings: 'The settings of this model leave it too little memory.',
  missing_setting: 'The engine of this model lacks a setting that it needs.',
  mount_not_found: 'A folder that the engine of this model needs is not there.',
  no_accelerator: 'There is no GPU of the kind that this model needs.',
  no_node: 'There is no machine of the kind that this model needs.',
  no_room: 'What this model needs to run is in use by other models.',
  not_executable: 'The program that runs this model may not be started.',
  port_in_use: 'The address that the engine of this model listens on is in use.',
  probe_failed: 'The engine of this model does not answer requests as it should.',
  program_not_found: 'The program that runs this model is not installed.',
  spawn_failed: 'The program that runs this model could not be started.',
  timeout: 'The engine of this model was not ready in time.',
  token: 'The weights of this model need a token that is missing or not allowed to read them.',
  unreachable: 'The engine of this model does not answer any more.',
  vanished: 'The engine of this model was removed.',
  weights_not_found: 'The weights of this model were not found.',
};

/** @param detail for operators; '' when there is no more to say */
export function failureCause(kind: FailureKind, detail = ''): FailureCause {
  return detail === '' ? { kind, publicText: publicTexts[kind] } : { kind, publicText: publicTexts[kind], detail };
}

/** A start error code of our own: the engine's file refers to an environment variable that is not set. */
export const missingVariableCode = 'MISSING_VARIABLE';

const startErrors: Readonly<Record<string, FailureKind>> = {
  ENOENT: 'program_not_found',
  EACCES: 'not_executable',
  EPERM: 'not_executable',
  ENOMEM: 'memory',
  EAGAIN: 'memory',
  EADDRINUSE: 'port_in_use',
  [missingVariableCode]: 'missing_setting',
  HOST_UNREACHABLE: 'host_unreachable',
  ENOSPC: 'disk_full',
  IMAGE_DENIED: 'image_denied',
  IMAGE_NOT_FOUND: 'image_not_found',
  IMAGE_PULL_FAILED: 'image_not_loaded',
  MOUNT: 'mount_not_found',
  NO_SUCH_DEVICE: 'no_accelerator',
  NO_SUITABLE_NODE: 'no_node',
};

/**
 * What engines write when they fail, in the order of trust: the first match wins. The texts are those of vLLM 0.29,
 * PyTorch, transformers, huggingface_hub, uvicorn and Node. A repository that does not exist and one that is private
 * look the same to huggingface_hub (401), so only its words about gated repositories count as a token's fault.
 */
const logSigns: readonly (readonly [FailureKind, RegExp])[] = [
  [
    'token',
    /GatedRepoError|Cannot access gated repo|You are trying to access a gated repo|awaiting a review from the repo authors/,
  ],
  [
    'weights_not_found',
    /RepositoryNotFoundError|Repository Not Found|is not a valid model identifier|Invalid repository ID or local directory|does not appear to have (?:a file named|files named)|Can't load the configuration of|Cannot find any model weights|LocalEntryNotFoundError|We couldn't connect to|Repo id must be in the form/,
  ],
  // Whatever else runs: vLLM counts what it may take itself.
  ['memory_settings', /No available memory for the cache blocks|larger than the available KV cache memory/],
  [
    'memory',
    /out of memory|OutOfMemoryError|less than desired GPU memory utilization|less than requested memory for kv|can't allocate memory|Cannot allocate memory|std::bad_alloc|^MemoryError/im,
  ],
  ['port_in_use', /EADDRINUSE|[Aa]ddress already in use/],
  [
    'no_accelerator',
    /No CUDA GPUs are available|Failed to infer device type|Found no NVIDIA driver|invalid device ordinal|no CUDA-capable device/,
  ],
  [
    'bad_arguments',
    /error: unrecognized arguments|error: argument |error: the following arguments are required|invalid tool call parser|invalid reasoning parser|ValidationError: .* validation error/,
  ],
];

const detailCharsMax = 500;

/** Tells causes apart by how a process ended and by what it wrote last; the line that says it is for operators. */
export function explainExit(exit: ReplicaExit): FailureCause {
  const lines = linesOf(exit.logTail);
  const errors = linesOf(exit.errorTail ?? '');
  const detail = (text: string): string => text.trim().slice(0, detailCharsMax);
  const told = detail(tellingLine(lines, errors) || wordsOf(lines.at(-1) ?? ''));
  if (exit.startErrorCode !== null) return failureCause(startErrors[exit.startErrorCode] ?? 'spawn_failed', told);
  if (exit.oomKilled) return failureCause('memory');
  const grave = lines.filter((line) => !isCalm(line)).join('\n');
  for (const [kind, sign] of logSigns) {
    if (!sign.test(grave)) continue;
    return failureCause(kind, detail(lastTellingOf(lines, (line) => sign.test(line)) || told));
  }
  return failureCause(kindOfEnd(exit), told);
}

function linesOf(text: string): string[] {
  return text.split(/\r?\n/).filter((line) => line.trim() !== '');
}

function kindOfEnd(exit: ReplicaExit): FailureKind {
  // 137 is a shell's way to say SIGKILL; nobody but the kernel, short of memory, sends that unasked.
  if (exit.signal === 'SIGKILL' || exit.exitCode === 137) return 'memory';
  // argparse, and so vLLM, ends with 2 on a command line that it does not understand.
  if (exit.exitCode === 2) return 'bad_arguments';
  // What a shell, and the init of a container, end with when there is no such program, or it may not run.
  if (exit.exitCode === 127) return 'program_not_found';
  if (exit.exitCode === 126) return 'not_executable';
  if (exit.exitCode === 0) return 'ended';
  return 'crashed';
}
