import { afterAll, describe, expect, it } from 'vitest';
import { type Body, externalFile, openOrganization, useInference } from './inference-gateway.ts';
import { frame, startToldEngine, type ToldEngine } from './told-engine.ts';

let engine: ToldEngine | null = null;

const contextLength = 8192;
const bench = useInference(async () => {
  engine = await startToldEngine();
  const lines = ['kind: vllm', 'allow: [builtin_tools]'];
  return { engines: { tools: externalFile('tools', engine.url, { lines }) } };
});
afterAll(() => engine?.close());

const path = '/v1/responses';
const item = { type: 'message', id: 'm', role: 'assistant', content: [{ type: 'output_text', text: 'Done.' }] };
const response = { object: 'response', status: 'completed', model: 'tools', output: [item] };
const said = (inputTokens: number, outputTokens: number): object => ({
  ...response,
  usage: { input_tokens: inputTokens, output_tokens: outputTokens },
});
const streamOf = (answer: object): string =>
  frame({ type: 'response.output_text.delta', delta: 'Done.' }) +
  frame({ type: 'response.completed', response: answer });

const ask = (stream: boolean, tool: object, answer: object): object => ({
  model: 'tools',
  input: 'Look it up',
  max_output_tokens: 300,
  tools: [tool],
  stream,
  usage: { include: true },
  answer: stream ? streamOf(answer) : answer,
});
const search = { type: 'web_search' };
const lookUp = { type: 'function', name: 'look_up', parameters: {} };
const namespace = (tool: object): object => ({ type: 'namespace', name: 'n', tools: [tool] });

const usd = ({ input_tokens: input, output_tokens: output }: Body): number => (input * 0.1 + output * 0.4) / 1e6;

describe.each([false, true])('a response with tools that the engine runs itself, stream %s,', (stream) => {
  it.each([search, namespace(namespace(search))])(
    'is charged for all its turns, beyond the context: %j',
    async (tool) => {
      const { key } = await openOrganization(bench.gateway, '1000');
      const answer = await bench.post(path, ask(stream, tool, said(5 * contextLength, 40_000)), { key });
      const text = await answer.text();
      expect(answer.status, text).toBe(200);
      const record = await bench.recordOf(answer, key);
      const counted = { input_tokens: 5 * contextLength, output_tokens: 40_000 };
      expect(record).toMatchObject({ outcome: 'completed', ...counted, written_off: '0' });
      expect(Number(record.cost)).toBeCloseTo(usd(counted), 12);
      expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(1000 - usd(counted), 9);
      expect(text).toContain(`"cost":${Number(record.cost)}`);
    },
  );

  it('is charged for at most 128 turns of the whole context', async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const answer = await bench.post(path, ask(stream, search, said(9e8, 9e8)), { key });
    await answer.text();
    const most = 128 * contextLength;
    expect(await bench.recordOf(answer, key)).toMatchObject({ input_tokens: most, output_tokens: most });
  });

  it('is bound by context and limit where its tools are all functions', async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const answer = await bench.post(path, ask(stream, lookUp, said(5 * contextLength, 40_000)), { key });
    await answer.text();
    expect(await bench.recordOf(answer, key)).toMatchObject({ input_tokens: contextLength, output_tokens: 300 });
  });
});
