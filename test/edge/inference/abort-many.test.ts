import { expect, it } from 'vitest';
import { eventually, readMetric, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const prompts = 700;
const bench = useInference(() => ({
  engines: { chat: standinFile('chat', { flags: ['--max-num-seqs', '1000', '--tpot-ms', '20'] }) },
  env: { HEADGATE_MAX_SEQUENCES: '1000' },
}));

it('aborts every prompt of a request whose client leaves, however many it has', async () => {
  const leave = new AbortController();
  const prompt = Array.from({ length: prompts }, (_, index) => `prompt ${index}`);
  const body = { model: 'chat', stream: true, prompt, max_tokens: 5000, standin: { output_tokens: 5000 } };
  const answer = await bench.post('/v1/completions', body, { signal: leave.signal });
  expect(answer.status).toBe(200);
  const running = () => readMetric(bench.socketOf('chat'), 'vllm:num_requests_running');
  await eventually(async () => (await running()) === prompts);
  leave.abort();
  await eventually(async () => (await running()) === 0);
  const record = await bench.recordOf(answer);
  expect(record).toMatchObject({ outcome: 'aborted' });
  expect(record.output_tokens).toBeGreaterThan(0);
});
