import { describe, expect, it } from 'vitest';
import { chat, external, load, problems, write, useEnginesFolder } from './engines-folder.ts';

useEnginesFolder();

const vllm = chat.replace('driver: process', 'driver: process\nkind: vllm');
const limits = 'max_num_queued_reqs: 8\nmax_num_queued_tokens: 20000\n';
const found = (text: string): string[] => {
  write('chat.yaml', text);
  return problems().map((problem) => problem.replace(/^engines\/chat.yaml:\d+: /, ''));
};

describe("limits of vLLM's queue in an engine file", () => {
  it('are read, and none without the fields', () => {
    write('chat.yaml', vllm + limits);
    expect(load()[0]).toMatchObject({ queuedRequestsMax: 8, queuedTokensMax: 20_000 });
    write('chat.yaml', vllm);
    expect(load()[0]).toMatchObject({ queuedRequestsMax: null, queuedTokensMax: null });
  });

  it('are rejected below 1, and where vLLM does not get them', () => {
    expect(found(`${vllm}max_num_queued_reqs: 0\n`)).toEqual(['max_num_queued_reqs: must be at least 1']);
    expect(found(chat + limits)).toEqual([
      'max_num_queued_reqs: supported by vLLM only; set kind: vllm if the engine runs vLLM',
      'max_num_queued_tokens: supported by vLLM only; set kind: vllm if the engine runs vLLM',
    ]);
    expect(found(external + limits)).toEqual([
      'max_num_queued_reqs: unknown field',
      'max_num_queued_tokens: unknown field',
    ]);
  });

  it('are rejected beside the same options of the command', () => {
    const own = vllm.replace('serve-it,', 'serve-it, --max-num-queued-reqs, "4",');
    expect(found(own)).toEqual([]);
    expect(found(own + limits)).toEqual(['command[1]: --max-num-queued-reqs: remove it; max_num_queued_reqs sets it']);
  });
});
