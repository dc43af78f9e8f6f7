import { beforeAll, describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { signInVisitor } from '#test/portal/visitor.ts';
import { openStore, type StoreBench, storeNames } from '../../core/admission/limited-gateway.ts';

describe.each(storeNames)('the page of a key, with limits counted in %s', (name) => {
  let bench: StoreBench;
  beforeAll(async () => {
    bench = await openStore(name);
    return () => bench.close();
  });

  it('shows how many tokens of the month and concurrent requests are left', async () => {
    const key = await bench.key({ monthly_token_limit: 900, max_concurrency: 2 });
    const { usage }: Body = await (await key.chat()).json();
    const answer = await key.chat({ stream: true, max_tokens: 100, ignore_eos: true, standin: { tpot_ms: 1000 } });
    const reader = answer.body?.getReader();
    await reader?.read();
    const visitor = await signInVisitor(bench.gateway);
    const { text } = await visitor.get(`/portal/keys/${key.id}`);
    await reader?.cancel();
    const left = (what: string): number =>
      Number(new RegExp(`<strong>(\\d+)</strong>\\s*<span class="quiet">of \\d+ ${what}`).exec(text)?.[1]);
    expect(left('concurrent requests')).toBe(1);
    expect(left('tokens / month')).toBeLessThanOrEqual(900 - usage.total_tokens);
  });
});
