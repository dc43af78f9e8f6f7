import { afterAll, expect, it } from 'vitest';
import { type Body, externalFile, useInference } from '#test/inference/inference-gateway.ts';
import { type ResponsesEngine, startResponsesEngine } from './responses-engine.ts';

/** Requests of codex-cli 0.169 with `wire_api = "responses"`, texts cut short. vLLM 0.29 answers them with 200. */

let engine: ResponsesEngine;
const bench = useInference(async () => {
  engine = await startResponsesEngine();
  return { engines: { coder: externalFile('coder', engine.url, { lines: ['kind: vllm'] }) } };
});
afterAll(() => engine.close());

const path = '/v1/responses';
const thread = '01a20be0-14e4-7d30-842a-bffe41f87f09';
const message = (role: string, ...texts: string[]) => ({
  type: 'message',
  id: 'msg_26884d61-c89d-5db9-aa6b-08d1833f579b',
  role,
  content: texts.map((text) => ({ type: 'input_text', text })),
});
const tool = (name: string, field: string) => ({
  type: 'function',
  name,
  description: 'Runs a command in a PTY',
  strict: false,
  parameters: {
    type: 'object',
    properties: { [field]: { type: 'string', description: 'Shell command' } },
    required: [field],
    additionalProperties: false,
  },
});
const call = {
  type: 'function_call',
  status: 'completed',
  id: 'fc_1',
  name: 'exec_command',
  arguments: '{"cmd":"ls"}',
  call_id: 'call_1',
};
const turn = {
  model: 'coder',
  stream: true,
  input: [
    message('developer', 'You are a coding agent running in a terminal'),
    message('developer', '<skills_instructions>', '<permissions instructions>'),
    message('user', '<environment_context>'),
    message('user', 'Make the greeting polite'),
    call,
    { type: 'function_call_output', id: 'fco_1', call_id: 'call_1', output: 'Wall time: 0.1 seconds' },
  ],
  tools: [
    tool('exec_command', 'cmd'),
    { type: 'namespace', name: 'multi_agent_v1', description: 'Agents', tools: [tool('close_agent', 'target')] },
  ],
  tool_choice: 'auto',
  parallel_tool_calls: true,
  reasoning: { summary: 'auto' },
  store: false,
  include: ['reasoning.encrypted_content'],
  prompt_cache_key: thread,
  client_metadata: { session_id: thread, thread_id: thread },
};
const headers = {
  accept: 'text/event-stream',
  originator: 'codex_exec',
  'session-id': thread,
  'x-client-request-id': thread,
  'x-codex-beta-features': 'remote_compaction_v2',
};

it('names the tool to omit when codex sends web search, its default', async () => {
  const tools = [...turn.tools, { type: 'web_search', external_web_access: false }];
  const answer = await bench.post(path, { ...turn, tools }, { headers });
  const { error }: Body = await answer.json();
  expect([answer.status, error.code, error.param]).toEqual([400, 'unsupported_parameter', 'tools']);
  expect(error.message).toContain('"web_search"');
  expect(engine.bodies).toHaveLength(0);
});

it('forwards a turn of codex unchanged, streamed and billed', async () => {
  const answer = await bench.post(path, turn, { headers });
  expect(answer.status).toBe(200);
  expect(await answer.text()).toContain('event: response.completed');
  const { request_id: id, cache_salt: salt, ...sent }: Body = JSON.parse(engine.bodies.at(-1) ?? '{}');
  expect([id, salt]).toEqual([expect.stringMatching(/^resp_/), expect.any(String)]);
  expect(sent).toEqual(turn);
  const record = await bench.recordOf(answer);
  expect(record).toMatchObject({ endpoint: path, outcome: 'completed', client_request_id: thread, stream: true });
  expect(Number(record.cost)).toBeGreaterThan(0);
});
