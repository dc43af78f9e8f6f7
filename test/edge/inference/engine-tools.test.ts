import { afterAll, describe, expect, it } from 'vitest';
import { type Body, externalFile, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { batchEnd, flexPricing, startBatch } from '#test/inference/batch-bench.ts';
import { type ResponsesEngine, startResponsesEngine } from './responses-engine.ts';
import { frame, startToldEngine, type ToldEngine } from './told-engine.ts';

let engine: ToldEngine;
/** Ends what hangs, in the turn that it is in. */
let aborting: ResponsesEngine;

const contextLength = 8192;
const turnsMax = 128;
const bench = useInference(async () => {
  engine = await startToldEngine();
  aborting = await startResponsesEngine();
  const options = { priced: false, lines: [flexPricing, 'kind: vllm', 'allow: [builtin_tools]'] };
  return {
    engines: {
      tools: externalFile('tools', engine.url, options),
      aborting: externalFile('aborting', aborting.url, options),
    },
  };
});
afterAll(() => {
  engine.close();
  aborting.close();
});

const path = '/v1/responses';
const item = { type: 'message', id: 'm', role: 'assistant', content: [{ type: 'output_text', text: 'Done.' }] };
const response = { object: 'response', status: 'completed', model: 'tools', output: [item] };
const said = (inputTokens: number, outputTokens: number): object => ({
  ...response,
  usage: { input_tokens: inputTokens, output_tokens: outputTokens },
});
const delta = (text: string): string => frame({ type: 'response.output_text.delta', delta: text });
const streamOf = (answer: object): string => delta('Done.') + frame({ type: 'response.completed', response: answer });

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

describe.each([false, true])('a response whose tools the engine runs itself, stream %s,', (stream) => {
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
    const most = turnsMax * contextLength;
    expect(await bench.recordOf(answer, key)).toMatchObject({ input_tokens: most, output_tokens: most });
  });

  it('is charged for turns that the engine takes unasked when all its tools are functions', async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const answer = await bench.post(path, ask(stream, lookUp, said(5 * contextLength, 40_000)), { key });
    await answer.text();
    expect(await bench.recordOf(answer, key)).toMatchObject({
      input_tokens: 5 * contextLength,
      output_tokens: 40_000,
    });
  });
});

/** Opens a stream, reads its beginning and leaves. @returns the id of the request */
async function leave(body: object, key: string): Promise<string> {
  const leaving = new AbortController();
  const answer = await bench.post(path, body, { key, signal: leaving.signal });
  await answer.body?.getReader().read();
  leaving.abort();
  return answer.headers.get('x-request-id') ?? '';
}

describe('a stream with engine tools whose client leaves', () => {
  it.each([16, turnsMax - 1])('is aborted at the engine in turn %i and charged by its count', async (turn) => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const body = { ...ask(true, search, {}), model: 'aborting', script: { tokens: 4, end: 'hang', turn } };
    const id = await leave(body, key);
    expect(await bench.record(id, key)).toMatchObject({
      outcome: 'aborted',
      usage_source: 'engine',
      input_tokens: 21,
      output_tokens: 5,
    });
    expect(aborting.aborts.at(-1)).toEqual(Array.from({ length: turnsMax }, (_, n) => `resp_${id}_${n}`));
  });

  it('is aborted at the engine in a second turn that no tool explains', async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const body = { ...ask(true, lookUp, {}), model: 'aborting', script: { tokens: 4, end: 'hang', turn: 1 } };
    const id = await leave(body, key);
    const counted = { usage_source: 'engine', input_tokens: 21, output_tokens: 5 };
    expect(await bench.record(id, key)).toMatchObject({ outcome: 'aborted', ...counted });
  });

  it('records a maximum of 128 turns when it has no count yet', async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const id = await leave({ ...ask(true, search, {}), answer: delta('Done.'), hold: 'left' }, key);
    expect(await bench.record(id, key)).toMatchObject({ outcome: 'aborted', usage_source: 'counted' });
    engine.end('left', '');
    const most = turnsMax * contextLength;
    const rows = await bench.gateway.db.sql<Body[]>`
      select prompt_tokens_max::int, completion_tokens_max::int from usage_requests where id = ${id}`;
    expect(rows).toEqual([{ prompt_tokens_max: most, completion_tokens_max: most }]);
  });
});

it('charges each piece of text without a count, beyond one context', async () => {
  const { key } = await openOrganization(bench.gateway, '1000');
  const tokens = contextLength + 808;
  const text = delta('sixteen letters '.repeat(tokens));
  const body = { ...ask(true, search, {}), answer: text + frame({ type: 'response.completed', response }) };
  const answer = await bench.post(path, body, { key });
  await answer.text();
  const counted = { usage_source: 'counted', output_tokens: tokens, written_off: '0' };
  expect(await bench.recordOf(answer, key)).toMatchObject(counted);
});

describe('a dry run with engine tools', () => {
  const rehearse = async (tool: object): Promise<Body> => {
    const options = { headers: { 'x-headgate-dry-run': 'true' } };
    return (await bench.post(path, ask(false, tool, said(1, 1)), options)).json();
  };

  it('returns the cost of 128 turns of the whole context as worst_cost, and of one turn as estimated_cost', async () => {
    const tokens = turnsMax * contextLength;
    const most = usd({ input_tokens: tokens, output_tokens: tokens });
    const dry = await rehearse(search);
    expect(Number(dry.worst_cost)).toBeCloseTo(most, 12);
    const likely = Math.ceil(JSON.stringify(ask(false, search, said(1, 1))).length / 4);
    expect(Number(dry.estimated_cost)).toBeCloseTo(usd({ input_tokens: likely, output_tokens: 300 }), 12);
    expect(Number((await rehearse(lookUp)).worst_cost)).toBeLessThan(most / turnsMax);
  });
});

it('returns 400 with a cost cap and engine tools', async () => {
  const headers = { 'x-headgate-max-cost': '0.001' };
  const answer = await bench.post(path, ask(false, search, said(10, 20)), { headers });
  expect(answer.status).toBe(400);
  const error = { code: 'unsupported_parameter', param: 'x-headgate-max-cost' };
  expect(await answer.json()).toMatchObject({ error });
  expect((await bench.post(path, ask(false, lookUp, said(10, 20)), { headers })).status).toBe(200);
});

describe('a batch', () => {
  const line = (id: string, tool: object): string =>
    JSON.stringify({ custom_id: id, method: 'POST', url: path, body: ask(false, tool, said(10, 20)) });
  const run = async (...lines: string[]): Promise<Body> => {
    const { key } = await openOrganization(bench.gateway, '0.1');
    const { id } = await startBatch(bench.gateway, lines.join('\n'), { key, endpoint: path });
    return batchEnd(bench.gateway, id, key);
  };

  it.each([search, namespace(search)])('fails at validation, with the line, for %j', async (tool) => {
    const batch = await run(line('function', lookUp), line('search', tool));
    const message = 'Built-in tools are not supported in a batch. Send this request separately.';
    expect(batch).toMatchObject({
      status: 'failed',
      output_file_id: null,
      errors: { data: [{ code: 'unsupported_parameter', param: 'body.tools', line: 2, message }] },
    });
  });

  it('answers lines whose tools are all functions', async () => {
    const batch = await run(line('function', lookUp), line('other', namespace(lookUp)));
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2, failed: 0 } });
  });
});
