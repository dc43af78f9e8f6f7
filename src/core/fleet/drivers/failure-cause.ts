/** Why an engine does not run. `publicText` may be shown to anybody: it names no path, address or program. */
export interface FailureCause {
  readonly kind: FailureKind;
  readonly publicText: string;
  /** Details for operators, never for clients. */
  readonly detail?: string;
}

export type FailureKind =
  | 'adapter_missing'
  | 'bad_arguments'
  | 'canary_failed'
  | 'crashed'
  | 'disk_full'
  | 'driver_mismatch'
  | 'driver_too_old'
  | 'ended'
  | 'gpu_in_use'
  | 'gpu_unsupported'
  | 'held'
  | 'host_unreachable'
  | 'image_denied'
  | 'image_not_found'
  | 'image_not_loaded'
  | 'killed'
  | 'memory'
  | 'memory_settings'
  | 'missing_setting'
  | 'mount_not_found'
  | 'nccl_timeout'
  | 'no_accelerator'
  | 'no_node'
  | 'no_room'
  | 'not_executable'
  | 'off'
  | 'port_in_use'
  | 'probe_failed'
  | 'program_not_found'
  | 'shm_too_small'
  | 'spawn_failed'
  | 'stalled'
  | 'timeout'
  | 'token'
  | 'unknown_argument'
  | 'unreachable'
  | 'vanished'
  | 'wedged'
  | 'weights_not_found';

const publicTexts: Record<FailureKind, string> = {
  adapter_missing: 'A LoRA adapter of this model was not found.',
  bad_arguments: 'The engine of this model rejected its settings.',
  canary_failed: 'The engine of this model does not answer as it should.',
  crashed: 'The engine of this model exited unexpectedly.',
  disk_full: 'The disk of the machine for this model is full.',
  driver_mismatch: 'The GPU driver of the machine for this model does not match its libraries.',
  driver_too_old: 'The GPU driver of the machine for this model is too old.',
  ended: 'The engine of this model exited.',
  gpu_in_use: 'Another program uses the GPU memory that this model needs.',
  gpu_unsupported: 'The engine of this model does not support the GPU of its machine.',
  held: 'This model was stopped by its operator.',
  host_unreachable: 'The machine that runs this model is unreachable.',
  image_denied: "The image of this model's engine requires a registry login that is missing or was rejected.",
  image_not_found: "The image of this model's engine was not found.",
  image_not_loaded: "The image of this model's engine could not be loaded.",
  killed: 'The engine of this model was stopped from outside the gateway.',
  memory: 'There is not enough memory to run this model.',
  memory_settings: 'The settings of this model leave it too little memory.',
  missing_setting: 'A setting that the engine of this model requires is missing.',
  mount_not_found: 'A folder that the engine of this model requires does not exist.',
  nccl_timeout: 'The GPUs of this model did not answer each other in time.',
  no_accelerator: 'No GPU fits the requirements of this model.',
  no_node: 'No machine fits the requirements of this model.',
  no_room: 'Other models use the resources that this model needs.',
  not_executable: 'The program that runs this model is not executable by the gateway.',
  off: 'The schedule of this model keeps it off at this time.',
  port_in_use: "The listen address of this model's engine is already in use.",
  probe_failed: 'The engine of this model does not answer requests as it should.',
  program_not_found: 'The program that runs this model is not installed.',
  shm_too_small: 'The shared memory of this model is too small.',
  spawn_failed: 'The program that runs this model could not be started.',
  stalled: 'The start of this model made no progress.',
  timeout: 'The engine of this model did not become ready in time.',
  token: 'The weights of this model require a token that is missing or has no access.',
  unknown_argument: 'The engine of this model rejected its settings.',
  unreachable: 'The engine of this model stopped answering.',
  vanished: 'The engine of this model was removed.',
  wedged: 'The engine of this model stopped generating.',
  weights_not_found: 'The weights of this model were not found.',
};

/** Cures for operators, one sentence each. Messages of engines rarely contain them. */
const cures: Partial<Record<FailureKind, string>> = {
  disk_full: 'Free space on the disk of the host, or move the cache of the weights to a larger one.',
  driver_mismatch:
    'Reboot the host if its NVIDIA driver was updated; otherwise set LD_LIBRARY_PATH under env to /usr/local/nvidia/lib64:/usr/local/nvidia/lib, so that the image uses the libraries of the host.',
  driver_too_old: 'Update the NVIDIA driver of the host, or use an image for an older version of CUDA.',
  gpu_unsupported: 'Use an image that is built for this GPU, or name another GPU in gpus.profile.',
  nccl_timeout:
    'Check the GPUs and their links with "nvidia-smi topo -m" and the kernel log of the host, or set NCCL_P2P_DISABLE: "1" under env.',
  shm_too_small: 'Raise shm_size, such as shm_size: 16gb.',
  stalled:
    'Check the network of the host and the log of the engine, or raise stalled_seconds if the engine is only slow.',
  token: 'Accept the terms of the model on its page, and set HF_TOKEN under env to a token of that account.',
  unknown_argument: 'Remove the argument, or use a version of the engine that has it.',
};

/**
 * @param detail for operators; '' if there is none. The cure comes first, because details may be cut.
 */
export function failureCause(kind: FailureKind, detail = ''): FailureCause {
  const full = [cures[kind] ?? '', detail].filter((text) => text !== '').join(' ');
  return { kind, publicText: publicTexts[kind], ...(full !== '' && { detail: full }) };
}

/** Causes that stay until the owner of the engine's file or of the machine acts: a restart fails in the same way. */
const lastingKinds: ReadonlySet<FailureKind> = new Set([
  'adapter_missing',
  'bad_arguments',
  'disk_full',
  'driver_mismatch',
  'driver_too_old',
  'gpu_unsupported',
  'image_denied',
  'image_not_found',
  'memory_settings',
  'missing_setting',
  'mount_not_found',
  'not_executable',
  'program_not_found',
  'shm_too_small',
  'token',
  'unknown_argument',
]);

/** True if no restart helps, so that none is tried before an operator's command or a changed file. */
export function isLasting({ kind }: FailureCause): boolean {
  return lastingKinds.has(kind);
}

/** Causes that may pass by themselves, but which a client need not wait for. */
const operatorsKinds: ReadonlySet<FailureKind> = new Set([
  'held',
  'memory',
  'no_accelerator',
  'no_node',
  'off',
  'weights_not_found',
]);

/** True if the owner of the engine's file or of the machine must act: a client that waits gets no answer. */
export function needsOperator(cause: FailureCause): boolean {
  return isLasting(cause) || operatorsKinds.has(cause.kind);
}
