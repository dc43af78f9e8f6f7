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
  | 'ended'
  | 'gpu_in_use'
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
  adapter_missing: 'A LoRA adapter of this model was not found.',
  bad_arguments: 'The engine of this model rejected its settings.',
  canary_failed: 'The engine of this model does not answer as it should.',
  crashed: 'The engine of this model exited unexpectedly.',
  disk_full: 'The disk of the machine for this model is full.',
  ended: 'The engine of this model exited.',
  gpu_in_use: 'Another program uses the GPU memory that this model needs.',
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
  no_accelerator: 'No GPU fits the requirements of this model.',
  no_node: 'No machine fits the requirements of this model.',
  no_room: 'Other models use the resources that this model needs.',
  not_executable: 'The program that runs this model is not executable by the gateway.',
  port_in_use: "The listen address of this model's engine is already in use.",
  probe_failed: 'The engine of this model does not answer requests as it should.',
  program_not_found: 'The program that runs this model is not installed.',
  spawn_failed: 'The program that runs this model could not be started.',
  timeout: 'The engine of this model did not become ready in time.',
  token: 'The weights of this model require a token that is missing or has no access.',
  unreachable: 'The engine of this model stopped answering.',
  vanished: 'The engine of this model was removed.',
  weights_not_found: 'The weights of this model were not found.',
};

/** @param detail for operators; '' if there is none */
export function failureCause(kind: FailureKind, detail = ''): FailureCause {
  return detail === '' ? { kind, publicText: publicTexts[kind] } : { kind, publicText: publicTexts[kind], detail };
}

/**
 * Causes that the owner of the engine's file or of the machine must fix: another try fails the same way. Any other
 * cause may pass by itself.
 */
const operatorsKinds: ReadonlySet<FailureKind> = new Set([
  'adapter_missing',
  'bad_arguments',
  'held',
  'image_denied',
  'image_not_found',
  'memory',
  'memory_settings',
  'missing_setting',
  'mount_not_found',
  'no_accelerator',
  'no_node',
  'not_executable',
  'program_not_found',
  'token',
  'weights_not_found',
]);

export function needsOperator({ kind }: FailureCause): boolean {
  return operatorsKinds.has(kind);
}
