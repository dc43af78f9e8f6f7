import { expect } from 'vitest';
import { type Body, frameTexts } from '#test/inference/inference-gateway.ts';

/** Messages that clients of Anthropic's protocol read and send, and their parts in common with OpenAI's responses. */

/** The events of a stream, each under the name that its frame has. */
export function eventsOf(text: string): Body[] {
  return frameTexts(text).map((frame) => {
    const [, name, data = ''] = /^event: (\S+)\ndata: (.*)$/s.exec(frame) ?? [];
    const event: Body = JSON.parse(data);
    expect(event.type).toBe(name);
    return event;
  });
}

/** An error in Anthropic's shape, with the status it came with. */
export async function errorOf(answer: Response): Promise<Body> {
  const body: Body = await answer.json();
  expect(body).toMatchObject({ type: 'error', error: { type: expect.any(String), message: expect.any(String) } });
  expect(Object.keys(body)).toEqual(['type', 'error']);
  return { ...body.error, status: answer.status };
}

const cached = { cache_control: { type: 'ephemeral' } };
const schema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: { command: { description: 'The command', type: 'string', pattern: '(a{0,99}){0,99}' } },
  required: ['command'],
  additionalProperties: false,
};
const turn = {
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: '<system-reminder>\nBe brief.' },
        { type: 'text', text: 'Hello' },
      ],
    },
    { role: 'system', content: [{ type: 'text', text: '# Environment', ...cached }] },
  ],
  system: [
    { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.330.649; cc_entrypoint=sdk-cli;' },
    { type: 'text', text: 'You work in a folder.', ...cached },
  ],
  tools: [
    { name: 'Bash', description: 'Runs a command', input_schema: schema },
    { name: 'Later', description: 'A place', input_schema: { type: 'object', properties: {} }, defer_loading: true },
  ],
  metadata: { user_id: '{"device_id":"x","account_uuid":"","session_id":"y"}' },
  max_tokens: 4000,
  thinking: { type: 'adaptive', display: 'omitted' },
  context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
  output_config: { effort: 'high' },
  stream: true,
};
const headers = {
  'anthropic-version': '2023-06-01',
  'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27',
  'anthropic-dangerous-direct-browser-access': 'true',
  'x-app': 'cli',
  'x-stainless-retry-count': '0',
};

/** Requests of Claude Code 2.1.330, with shorter texts. */
export const claudeCode = { turn, headers };
