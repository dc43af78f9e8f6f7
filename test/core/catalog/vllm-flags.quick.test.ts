import { describe, expect, it } from 'vitest';
import { checkEngineText } from '#core/catalog/catalog.ts';

const common = {
  version: 1,
  id: 'chat',
  name: 'Chat',
  hugging_face_id: 'acme/chat',
  task_type: 'chat',
  context_length: 4096,
};

function problems(fields: object): string[] {
  const text = JSON.stringify({ ...common, ...fields });
  return checkEngineText(text, 'chat.yaml').map(({ field, message }) => `${field}: ${message}`);
}

const processOf = (flags: string, fields: object = {}): string[] =>
  problems({ driver: 'process', command: ['vllm', 'serve', 'acme/chat', ...flags.split(' ')], ...fields });

const containerOf = (flags: string, gpus?: number): string[] =>
  problems({
    driver: 'docker',
    image: 'vllm/vllm-openai:v0.11.0',
    args: ['acme/chat', ...flags.split(' ')],
    ...(gpus !== undefined && { gpus: { count: gpus } }),
  });

describe('a vLLM flag that is given twice', () => {
  it.each([
    '--max-model-len 32768 --max-model-len 100',
    '--max-model-len 32768 --max-model-len=100',
    '--max-model-len 32768 --max_model_len=100',
    '--max-model-len=32768 --max-m 100',
  ])('is judged by its last occurrence: rejects %s', (flags) => {
    const message = expect.stringContaining('--max-model-len 100 is below context_length 4096');
    expect(processOf(flags)).toEqual([message]);
    expect(containerOf(flags)).toEqual([message]);
  });

  it('is judged by its last occurrence: accepts a last value that fits', () => {
    expect(processOf('--max-model-len 100 --max-model-len 32768')).toEqual([]);
    expect(containerOf('--tensor-parallel-size 4 -tp 2', 2)).toEqual([]);
  });

  it.each(['--tensor-parallel-size 1 -tp 4', '-tp 1 --tensor-parallel-size=4', '-tp=1 -tp=4', '-tp 1 -t 4'])(
    'is judged by its last occurrence in any form: rejects %s for one GPU',
    (flags) => {
      expect(containerOf(flags, 1)).toEqual([expect.stringContaining('the parallel sizes multiply to 4')]);
    },
  );
});

describe('a vLLM flag in a short form or an abbreviation', () => {
  it.each([
    ['--nnodes 2', '--nnodes'],
    ['--nnod 2', '--nnodes'],
    ['-n 2', '--nnodes'],
    ['-n2', '--nnodes'],
    ['-n=2', '--nnodes'],
    ['--node 1', '--node-rank'],
    ['-r1', '--node-rank'],
    ['--master-a host', '--master-addr'],
    ['-dpa host', '--data-parallel-address'],
    ['--data-parallel-ext', '--data-parallel-external-lb'],
    ['--data_parallel_m', '--data-parallel-multi-port-external-lb'],
    ['--ssl-k key.pem', '--ssl-keyfile'],
    ['--ssl-of-tomorrow x', '--ssl-of-tomorrow'],
    ['--data_parallel_of_tomorrow=1', '--data-parallel-of-tomorrow'],
  ])('is rejected like its long name: %s', (flags, name) => {
    const message = expect.stringContaining(`${name}: remove it`);
    expect(processOf(flags)).toEqual([message]);
    expect(containerOf(flags)).toEqual([message]);
  });

  it.each(['--data-parallel-size 1', '-dp 1', '-dpl 1', '-dpb mp', '--ssl-ciphers x', '--numa-bind-nodes 0'])(
    'is accepted when its long name is: %s',
    (flags) => {
      expect(containerOf(flags)).toEqual([]);
    },
  );
});

describe('a variable of a vLLM process', () => {
  it.each([
    ['VLLM_API_KEY', '${ENGINE_KEY}'],
    ['VLLM_USE_RUST_FRONTEND', '1'],
  ])('is rejected when the engine may not have it: %s', (name, value) => {
    expect(processOf('--enforce-eager', { env: { [name]: value } })).toEqual([
      expect.stringContaining(`env.${name}: remove it; `),
    ]);
  });
});
