const size = ['--dtype', 'bfloat16', '--max-model-len', '2048', '--max-num-seqs', '8', '--enforce-eager'];

export interface VllmFileOptions {
  /** Further arguments of `vllm serve`. */
  readonly flags?: readonly string[];
  /** Further lines, such as `idle_seconds: 8`. */
  readonly lines?: readonly string[];
}

/** The engine file of the vLLM that `VLLM_BIN` names, with the small model of `VLLM_MODEL`. */
export function vllmFile({ flags = [], lines = [] }: VllmFileOptions = {}): string {
  const { VLLM_BIN: program = '', VLLM_MODEL: model = '' } = process.env;
  return [
    'version: 1',
    'id: chat',
    'name: SmolLM2 135M Instruct',
    'hugging_face_id: HuggingFaceTB/SmolLM2-135M-Instruct',
    'task_type: chat',
    'context_length: 2048',
    'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }',
    'driver: process',
    'kind: vllm',
    `command: ${JSON.stringify([program, 'serve', model, ...size, ...flags])}`,
    'start_timeout_seconds: 900',
    ...lines,
    '',
  ].join('\n');
}
