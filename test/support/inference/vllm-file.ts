const size = ['--dtype', 'bfloat16', '--max-model-len', '2048', '--enforce-eager'];
/**
 * The engine's core runs the model itself, as on one GPU. On a CPU vLLM starts a worker process for it unless the
 * variable is 0; core and worker then wait for each other in a busy loop, which takes as much as the model.
 */
const oneProcess = { flag: ['--distributed-executor-backend', 'uni'], env: 'VLLM_ENABLE_V1_MULTIPROCESSING: "0"' };

export interface VllmFileOptions {
  readonly id?: string;
  /** The task of the model; only `chat` has a price of output. */
  readonly taskType?: 'chat' | 'embedding' | 'rerank';
  readonly maxSequences?: number;
  /** Further arguments of `vllm serve`. */
  readonly flags?: readonly string[];
  /** Further lines, such as `idle_seconds: 8`. */
  readonly lines?: readonly string[];
}

/** The engine file of the vLLM that `VLLM_BIN` names, with the small model of `VLLM_MODEL`. */
export function vllmFile(options: VllmFileOptions = {}): string {
  const { id = 'chat', taskType = 'chat', maxSequences = 8, flags = [], lines = [] } = options;
  const { VLLM_BIN: program = '', VLLM_MODEL: model = '' } = process.env;
  return [
    'version: 1',
    `id: ${id}`,
    `name: SmolLM2 135M for ${id}`,
    `hugging_face_id: test/${id}`,
    `task_type: ${taskType}`,
    'context_length: 2048',
    `pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: ${taskType === 'chat' ? '0.40' : '0'} }`,
    'driver: process',
    'kind: vllm',
    `command: ${JSON.stringify([program, 'serve', model, ...size, '--max-num-seqs', String(maxSequences), ...oneProcess.flag, ...flags])}`,
    `env: { ${oneProcess.env} }`,
    'start_timeout_seconds: 900',
    ...lines,
    '',
  ].join('\n');
}
