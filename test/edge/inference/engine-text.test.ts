import { expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const engines = { chat: standinFile('chat') };
const silent = useInference(() => ({ engines }));
const telling = useInference(() => ({ engines, env: { HEADGATE_LOG_ENGINE_TEXT: 'true' } }));

const words = `no\u0007 such\nthing: ${'x'.repeat(400)}`;
const refused = { standin: { status: 400, status_message: words } };

const textsOf = (lines: readonly string[]): Body[] =>
  lines.map((line): Body => JSON.parse(line)).filter(({ engineText }) => engineText !== undefined);

it("logs the engine's words about a refused request on one line, cut, when the operator enabled that", async () => {
  const answer = await telling.chat(refused);
  expect(answer.status).toBe(400);
  expect(await answer.text()).not.toContain('such thing');
  const [line, ...others] = textsOf(telling.gateway.logLines);
  expect(others).toEqual([]);
  expect(line).toMatchObject({ requestId: answer.headers.get('x-request-id'), engineStatus: 400 });
  expect(line.engineText).toMatch(/no\S* such\S*thing: x+…$/);
  expect(line.engineText).toHaveLength(300);
});

it("logs none of the engine's words by default", async () => {
  const answer = await silent.chat(refused);
  expect(answer.status).toBe(400);
  await answer.text();
  expect(textsOf(silent.gateway.logLines)).toEqual([]);
  expect(silent.gateway.logLines.join('\n')).not.toContain('thing: xxx');
});
