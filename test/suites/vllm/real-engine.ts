import { expect } from 'vitest';
import { type Body, eventually, readMetric, useInference } from '../../edge/inference/inference-gateway.ts';

/** A gateway with one real vLLM, for all who ask it by another route. */
export const bench = useInference(() => ({ engines: { chat: vllmFile() } }));

function vllmFile(): string {
  const { VLLM_BIN: program = '', VLLM_MODEL: model = '' } = process.env;
  const size = ['--dtype', 'bfloat16', '--max-model-len', '2048', '--max-num-seqs', '8', '--enforce-eager'];
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
    `command: ${JSON.stringify([program, 'serve', model, ...size])}`,
    'start_timeout_seconds: 900',
    '',
  ].join('\n');
}

export interface Counters {
  readonly prompt: number;
  readonly output: number;
}

export async function counters(): Promise<Counters> {
  const socket = bench.socketOf('chat');
  const [prompt, output] = await Promise.all([
    readMetric(socket, 'vllm:prompt_tokens_total'),
    readMetric(socket, 'vllm:generation_tokens_total'),
  ]);
  return { prompt, output };
}

/** What the engine has counted since then, once it has nothing to do. */
async function countedSince(before: Counters): Promise<Counters> {
  await eventually(async () => (await readMetric(bench.socketOf('chat'), 'vllm:num_requests_running')) === 0);
  const now = await counters();
  return { prompt: now.prompt - before.prompt, output: now.output - before.output };
}

export async function expectExact(record: Body, before: Counters, outcome: string): Promise<void> {
  const { prompt, output } = await countedSince(before);
  expect(output).toBeGreaterThan(0);
  expect(record).toMatchObject({ outcome, usage_source: 'engine', input_tokens: prompt, output_tokens: output });
}
