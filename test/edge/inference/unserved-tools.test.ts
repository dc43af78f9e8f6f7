import { beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  eventually,
  framesOf,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Tools that an engine does not serve, on the stand-in, which imitates vLLM 0.32. */

const flags = ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'];
const lines = ['tools: { unserved: drop }'];
const bench = useInference(() => ({
  engines: {
    coder: standinFile('coder', { flags, lines }),
    strict: standinFile('strict', { flags }),
    backed: standinFile('backed', { flags, lines: [...lines, 'fallbacks: [runner]'] }),
    runner: standinFile('runner', { flags, lines: ['allow: [builtin_tools]'] }),
    old: standinFile('old', { flags: [...flags, '--report-version', '0.29.0'], lines }),
  },
}));

const path = '/v1/responses';
const header = 'x-headgate-dropped-tools';
const lookUp = { type: 'function', name: 'look_up', parameters: { type: 'object', properties: {} }, strict: false };
const agents = { type: 'namespace', name: 'agents', description: 'Agents', tools: [{ ...lookUp, name: 'close' }] };
const search = { type: 'web_search', external_web_access: false };
const grammar = { type: 'grammar', syntax: 'lark', definition: 'start: "é"' };
const patch = { type: 'custom', name: 'apply_patch', description: 'Edits files.', format: grammar };
const others = ['local_shell', 'image_generation', 'mcp', 'tool_search', 'Zo\u00eb\r\nx-a: b'].map((type) => ({
  type,
}));

const ask = (fields: object, options: object = {}): Promise<Response> =>
  bench.post(path, { model: 'coder', input: 'Hi', max_output_tokens: 64, ...fields }, options);

describe('with tools: { unserved: drop } in the engine file', () => {
  it('leaves out what vLLM does not serve, and names it in a header', async () => {
    const include = ['web_search_call.results', 'reasoning.encrypted_content'];
    const answer = await ask({ tools: [lookUp, agents, search, ...others, patch], include, tool_choice: 'auto' });
    const body: Body = await answer.json();
    expect(answer.status, JSON.stringify(body)).toBe(200);
    const names = 'web_search, local_shell, image_generation, mcp, tool_search, unknown, custom.format';
    expect(answer.headers.get(header)).toBe(names);
    const { format: _, ...freeform } = patch;
    const description = 'Edits files.\n\nGrammar of the input:\nstart: "é"';
    expect(body.tools).toEqual([lookUp, agents, { ...freeform, description }]);
  });

  it('names it on streams, too', async () => {
    const answer = await ask({ tools: [search], stream: true });
    expect([answer.status, answer.headers.get(header)]).toEqual([200, 'web_search']);
    expect(await answer.text()).toContain('"tools":[]');
  });

  it('sends a request unchanged if the engine serves all its tools', async () => {
    const tools = [lookUp, agents];
    const answer = await ask({ tools });
    expect([answer.status, answer.headers.get(header)]).toEqual([200, null]);
    expect(((await answer.json()) as Body).tools).toEqual(tools);
  });

  it('leaves out tools within a namespace, and an empty namespace', async () => {
    const mixed = { ...agents, tools: [...agents.tools, { type: 'mcp' }] };
    const answer = await ask({ tools: [mixed, { ...agents, name: 'n', tools: [{ type: 'custom', name: 'c' }] }] });
    expect([answer.status, answer.headers.get(header)]).toEqual([200, 'mcp, custom']);
    expect(((await answer.json()) as Body).tools).toEqual([agents]);
  });

  it.each<[object, string]>([
    [{ tools: [lookUp, search], tool_choice: { type: 'web_search' } }, 'names "web_search", which was left out'],
    [
      { tools: [lookUp, search], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [search] } },
      'names "web_search", which was left out',
    ],
    [{ tools: [search], tool_choice: 'required' }, 'demands a tool call, but every tool was left out'],
    [{ tools: [search], tool_choice: { type: 'function', name: 'f' } }, 'demands a tool call'],
    [{ tools: [search], tool_choice: { type: 'allowed_tools', mode: 'required', tools: [] } }, 'demands a tool call'],
  ])('returns 400 for a tool_choice that needs what was left out: %j', async (fields, words) => {
    const error = await errorOf(await ask(fields));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'tool_choice' });
    expect(error.message).toContain(words);
  });

  it('applies to chat and to messages', async () => {
    const chatTool = { type: 'function', function: { name: 'look_up', parameters: { type: 'object' } } };
    const chat = (fields: object) => bench.post(chatPath, chatBody({ model: 'coder', ...fields }));
    const mixed = await chat({ tools: [chatTool, { type: 'custom', custom: { name: 'c' } }] });
    expect([mixed.status, mixed.headers.get(header)]).toEqual([200, 'custom']);
    const none = await chat({ tools: [{ type: 'custom', custom: { name: 'c' } }], tool_choice: 'auto' });
    expect([none.status, none.headers.get(header)]).toEqual([200, 'custom']);
    const message = { model: 'coder', max_tokens: 8, messages: [{ role: 'user', content: 'Hi' }] };
    const tools = [
      { name: 'look_up', input_schema: { type: 'object' } },
      { type: 'web_search_20250305', name: 'web' },
    ];
    const messages = (fields: object) => bench.post('/v1/messages', { ...message, tools, ...fields });
    const sent = await messages({ tool_choice: { type: 'auto' } });
    expect([sent.status, sent.headers.get(header)]).toEqual([200, 'web_search_20250305']);
    const named = await errorOf(await messages({ tool_choice: { type: 'tool', name: 'web' } }));
    expect(named).toMatchObject({ status: 400, message: expect.stringContaining('names "web", which was left out') });
  });
});

describe('the setting of a key', () => {
  const keys: Record<string, string> = {};
  beforeAll(async () => {
    for (const setting of ['drop', 'reject'] as const) {
      const body = { name: setting, unserved_tools: setting };
      const made: Body = await (await bench.gateway.request('/v1/keys', { body })).json();
      keys[setting] = made.secret;
    }
  });

  it('takes precedence over the engine file', async () => {
    const tools = [lookUp, search];
    expect((await ask({ tools }, { key: keys['reject'] })).status).toBe(400);
    const dropped = await ask({ model: 'strict', tools }, { key: keys['drop'] });
    expect([dropped.status, dropped.headers.get(header)]).toEqual([200, 'web_search']);
  });

  it.each([
    [search, 'Tools of the type "web_search" are not supported'],
    [{ type: 'local_shell' }, 'Tools of the type "local_shell" are not supported'],
    [patch, 'Custom tools with a grammar are not supported'],
  ])('is reject by default: %j', async (tool, words) => {
    const error = await errorOf(await ask({ model: 'strict', tools: [tool] }));
    expect(error).toMatchObject({ status: 400, code: 'unsupported_parameter', param: 'tools' });
    expect(error.message).toContain(words);
  });
});

/** The stand-in calls the tool, with this argument. */
const callPatch = { tool_call: 'apply_patch', tool_arguments: '{"input":"*** Begin Patch\\né"}' };

describe('custom tools', () => {
  it('are called over two turns, streamed or not', async () => {
    const first: Body = await (await ask({ tools: [patch], standin: callPatch })).json();
    const [call] = first.output.filter(({ type }: Body) => type === 'custom_tool_call');
    expect(call).toMatchObject({ name: 'apply_patch', input: '*** Begin Patch\né' });
    const streamed = await ask({ tools: [patch], stream: true, standin: callPatch });
    const frames = framesOf((await streamed.text()).replaceAll(/^event: .*\n/gm, ''));
    expect(frames.filter(({ type }) => type.startsWith('response.custom_tool_call_input'))).toMatchObject([
      { delta: call.input },
      { input: call.input },
    ]);
    const output = { type: 'custom_tool_call_output', call_id: call.call_id, output: 'Done' };
    const second = await ask({ tools: [patch], input: [{ role: 'user', content: 'Hi' }, call, output] });
    expect(second.status, await second.clone().text()).toBe(200);
    expect((await bench.recordOf(second)).outcome).toBe('completed');
  });

  it('are not served before vLLM 0.32: the tool is left out, and its calls are rejected', async () => {
    const input = [
      { role: 'user', content: 'Hi' },
      { type: 'custom_tool_call_output', call_id: 'c', output: 'x' },
    ];
    // Until the engine has reported its version, it counts as the newest.
    const error = await eventually(async () => {
      const answer = await ask({ model: 'old', input });
      return answer.status === 400 && errorOf(answer);
    });
    expect(error.message).toContain('input[1] is of the type "custom_tool_call_output"');
    const answer = await ask({ model: 'old', tools: [lookUp, patch] });
    expect([answer.status, answer.headers.get(header)]).toEqual([200, 'custom']);
    expect(((await answer.json()) as Body).tools).toEqual([lookUp]);
  });
});

describe('money', () => {
  const dry = { 'x-headgate-dry-run': 'true', 'x-headgate-allow-fallback': 'true' };
  const costs = async (fields: object, headers: object = {}): Promise<Body> =>
    (await ask(fields, { headers: { ...dry, ...headers } })).json();

  it('is held for what the engine gets, without the tools that are left out', async () => {
    const long = { ...search, description: 'word '.repeat(2000) };
    const without = await costs({ tools: [] });
    expect(await costs({ tools: [long] })).toMatchObject({ estimated_cost: without.estimated_cost });
  });

  it('is held for all turns of a fallback that runs the tools itself', async () => {
    const tools = [search];
    const runner = await costs({ model: 'runner', tools });
    const backed = await costs({ model: 'backed', tools });
    expect(backed.fallbacks).toMatchObject([{ model: 'runner', worst_cost: runner.worst_cost }]);
    expect(Number(runner.worst_cost)).toBeGreaterThan(100 * Number(backed.worst_cost));
    const capped = await costs({ model: 'backed', tools }, { 'x-headgate-max-cost': '0.01' });
    expect(capped.fallbacks, 'the fallback would not obey the cap').toEqual([]);
  });
});
