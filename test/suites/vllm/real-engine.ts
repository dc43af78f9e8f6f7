import { expect } from 'vitest';
import { type Body, eventually, readMetric, useInference } from '#test/inference/inference-gateway.ts';
import { vllmFile } from '#test/inference/vllm-file.ts';

const tools = ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'];
/** With this one vLLM mostly hangs on SIGTERM while a client of a JSON request stays. */
const hanging = ['--shutdown-timeout', '8'];
/** A model of few layers would write spaces between the parts of a JSON object without end. */
const compact = ['--structured-outputs-config', '{"backend":"xgrammar","disable_any_whitespace":true}'];
const lines = ['media_domains: [media.example.org]', 'idle_seconds: 20', 'tools: { unserved: drop }'];

/** A gateway with one real vLLM, which takes most of a minute to start, for all tests of a version. */
export const bench = useInference(() => ({
  engines: { chat: vllmFile({ flags: [...tools, ...hanging, ...compact], lines }) },
}));

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

/** The engine's counts since then, once it has nothing to do. */
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
