import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { at, type StandIn, startStandIn } from '#test/standin/engine.ts';

const PATH = '/v1/responses';
const JSON_TYPE = { 'content-type': 'application/json' };

let engine: StandIn;
beforeAll(async () => {
  engine = await startStandIn(
    ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes', '--reasoning-parser', 'deepseek_r1'],
    { env: { VLLM_SERVER_DEV_MODE: '1' } },
  );
});
afterAll(() => engine.stop());

interface Event {
  type: string;
  sequence_number: number;
  delta?: string;
}

/** The events of a stream, whose type is their name and their last member. */
function eventsOf(text: string): Event[] {
  const frames = text.split('\n\n').filter((frame) => frame !== '');
  return frames.map((frame) => {
    const [, name, data = ''] = /^event: (\S+)\ndata: (.*)$/s.exec(frame) ?? [];
    const event = JSON.parse(data) as Event;
    expect([event.type, Object.keys(event).at(-1)]).toEqual([name, 'type']);
    return event;
  });
}

const TOOL = {
  type: 'function',
  name: 'get_weather',
  parameters: { type: 'object', properties: { city: { enum: ['Oslo'] } }, required: ['city'] },
};
const asked = [
  { role: 'user', content: [{ type: 'input_text', text: 'The weather?' }] },
  { type: 'reasoning', summary: [], content: [] },
  { type: 'function_call', call_id: 'c', name: 'get_weather', arguments: '{"city":"Oslo"}' },
  { type: 'function_call_output', call_id: 'c', output: 'rain' },
];

describe('/v1/responses', () => {
  it('returns an error for a body without input', async () => {
    const answer = await engine.send({ path: PATH, headers: JSON_TYPE, body: {} });
    expect([answer.status, answer.text.includes('Field required')]).toEqual([400, true]);
  });

  it('returns an error for an unknown model', async () => {
    expect(await engine.send({ path: PATH, headers: JSON_TYPE, body: { model: 'x', input: 'Hi' } })).toMatchObject({
      status: 404,
    });
  });

  it('returns reasoning and text as items, with the given id', async () => {
    const body = { input: asked, instructions: 'Be brief.', request_id: 'resp_R', standin: { reasoning_tokens: 5 } };
    const answer = await engine.post(PATH, body);
    expect(answer).toMatchObject({ id: 'resp_R', object: 'response', status: 'completed', error: null });
    expect(at(answer, 'output', 0)).toMatchObject({ type: 'reasoning', content: [{ type: 'reasoning_text' }] });
    expect(at(answer, 'output', 1)).toMatchObject({ type: 'message', content: [{ type: 'output_text' }] });
    expect(at(answer, 'usage', 'output_tokens')).toBeGreaterThan(5);
  });

  it.each([true, false])('calls a tool in the format of responses; as a stream: %s', async (stream) => {
    const body = { input: 'The weather?', tools: [TOOL], tool_choice: 'required', stream };
    const { text } = await engine.send({ path: PATH, headers: JSON_TYPE, body });
    const last: unknown = stream ? at(eventsOf(text).at(-1), 'response') : JSON.parse(text);
    const call = (at(last, 'output') as object[]).at(-1);
    expect(call).toMatchObject({ type: 'function_call', name: 'get_weather', status: 'completed' });
    expect(JSON.parse(at(call, 'arguments') as string)).toEqual({ city: 'Oslo' });
  });

  it('streams events with consistent numbers and texts', async () => {
    const body = { input: 'Hi', stream: true, max_output_tokens: 30, standin: { reasoning_tokens: 5 } };
    const { text } = await engine.send({ path: PATH, headers: JSON_TYPE, body });
    const events = eventsOf(text);
    expect(events.map(({ sequence_number: number }) => number)).toEqual(events.map((_, index) => index));
    const said = events.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta);
    const last = at(events.at(-1), 'response');
    expect(last).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(at(last, 'output', 1, 'content', 0, 'text')).toBe(said.join(''));
    expect(at(last, 'usage', 'output_tokens')).toBe(30);
  });

  it('is aborted by the id of its turn, with its count', async () => {
    const before = await engine.counter('vllm:generation_tokens_total');
    const body = { input: 'Hi', stream: true, request_id: 'resp_S', standin: { output_tokens: 4000, tpot_ms: 5 } };
    const open = await engine.open({ path: PATH, headers: JSON_TYPE, body });
    await open.until((text) => text.includes('.delta'));
    await engine.post('/abort_requests', { request_ids: ['resp_S'] });
    expect(open.text()).not.toContain('response.completed');
    await engine.post('/abort_requests', { request_ids: ['resp_S_0'] });
    const last = eventsOf((await open.done).text).at(-1);
    expect(last).toMatchObject({ type: 'response.completed', response: { status: 'cancelled' } });
    const made = (await engine.counter('vllm:generation_tokens_total')) - before;
    expect(at(last, 'response', 'usage', 'output_tokens')).toBe(made);
  });
});
