import { expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { enoughOfTheHour, reconcileAtRest } from '#test/reconcile/mixed-traffic.ts';

const bench = useInference(async () => {
  await enoughOfTheHour();
  return {
    engines: {
      chat: standinFile('chat', { flags: ['--error-after', '3'], lines: ['fallbacks: [broken, spare]'] }),
      broken: standinFile('broken', { flags: ['--fail-start', 'bad-model'] }),
      spare: standinFile('spare'),
    },
  };
});

it('tokens that an engine counted before a fallback model answered are no usage, and are explained', async () => {
  const headers = { 'x-headgate-allow-fallback': 'true' };
  const answer = await bench.chat({ n: 2 }, { headers });
  expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'spare']);
  const { usage }: Body = await answer.json();
  expect(await bench.recordOf(answer)).toMatchObject({ model: 'spare', fallback_for: 'chat' });
  const refused = await bench.chat({ model: 'chat' });
  expect(refused.status).toBe(502);
  await refused.text();
  const found = await reconcileAtRest(bench);
  expect(found).toMatchObject({ balanced: true, unexplained: 0, ledger_differences: [] });
  const lineOf = (name: string): Body => found.data.find(({ model }: Body) => model === name);
  expect(lineOf('spare')).toMatchObject({
    state: 'balanced',
    usage: { prompt_tokens: usage.prompt_tokens, completion_tokens: usage.completion_tokens },
    difference: { cost: '0', prompt_tokens: 0, completion_tokens: 0 },
  });
  const chat = lineOf('chat');
  expect(chat.usage).toMatchObject({ completion_tokens: 0 });
  expect(chat.engines.completion_tokens).toBeGreaterThan(0);
  expect(chat.explanations).toContainEqual(expect.objectContaining({ kind: 'retry' }));
});
