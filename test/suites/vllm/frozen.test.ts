import { expect, it } from 'vitest';
import { listDescendants, listProcesses } from '#test/process-tree.ts';
import { askEngine, eventually, useInference } from '#test/inference/inference-gateway.ts';
import { vllmFile } from '#test/inference/vllm-file.ts';

/** A real vLLM whose engine core is frozen. Its API server stays alive, as with a dead GPU (vllm 39863). */
const bench = useInference(() => ({ engines: { chat: vllmFile({ lines: ['wedged_seconds: 5'] }) } }));

it('is restarted, and the request that waits in it is answered', async () => {
  expect((await bench.chat({})).status).toBe(200);
  const socket = bench.socketOf('chat');
  // Other files run a vLLM of their own at the same time.
  const core = listDescendants(process.pid).find(({ name }) => name.startsWith('VLLM::EngineCor'));
  if (core === undefined) throw new Error('vLLM has no engine core');
  process.kill(core.pid, 'SIGSTOP');
  const answering = bench.chat({});
  expect((await askEngine(socket, '/health')).status).toBe(200);
  const answer = await answering;
  expect(answer.status).toBe(200);
  expect(bench.socketOf('chat')).not.toBe(socket);
  expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', usage_source: 'engine' });
  await eventually(() => Promise.resolve(!listProcesses().some(({ pid }) => pid === core.pid)));
});
