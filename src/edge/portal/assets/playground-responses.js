import { curl, pythonArguments } from './playground-code.js';
import { callChunk, partsOf, withoutSystem } from './playground-parts.js';

/** OpenAI's Responses. */

/**
 * @typedef {import('./playground-protocols.js').Frame} Frame
 * @typedef {import('./playground-protocols.js').Message} Message
 * @typedef {import('./playground-protocols.js').Tool} Tool
 */

/** @param {Message} message @returns {object[]} */
function itemsOf(message) {
  const { role, tool_calls: calls, tool_call_id: callId } = message;
  const isAnswer = role === 'assistant';
  const content = partsOf(message).map((part) =>
    part.type === 'text'
      ? { type: isAnswer ? 'output_text' : 'input_text', text: part.text }
      : { type: 'input_image', image_url: part.image_url.url, detail: 'auto' },
  );
  if (role === 'tool') return [{ type: 'function_call_output', call_id: callId, output: content }];
  return [
    ...(content.length === 0 ? [] : [{ type: 'message', role, content }]),
    ...(calls ?? []).map(({ id, function: { name, arguments: given } }) => ({
      type: 'function_call',
      call_id: id,
      name,
      arguments: given,
    })),
  ];
}

/** @param {Tool} tool */
const flat = ({ function: declared, ...rest }) => ({ ...rest, ...declared });

/**
 * @typedef {{ input_tokens: number, output_tokens: number, input_tokens_details?: { cached_tokens: number } }} ResponseUsage
 * @typedef {{ usage?: ResponseUsage | null, incomplete_details?: { reason?: string } | null, error?: { message: string } | null }} ResponseState
 * @typedef {{ type: string, delta?: string, output_index?: number, item?: { type: string, call_id?: string, name?: string }, response?: ResponseState, message?: string }} ResponseEvent
 */

/** @param {ResponseState | undefined} response */
const reasonOf = (response) => (response?.incomplete_details?.reason === 'max_output_tokens' ? 'length' : null);

/** @param {ResponseState | undefined} response @returns {Frame} */
function endOfResponse(response) {
  const { usage, error } = response ?? {};
  return {
    isLast: true,
    ...(error && { error }),
    ...(usage && {
      usage: {
        prompt_tokens: usage.input_tokens,
        completion_tokens: usage.output_tokens,
        prompt_tokens_details: usage.input_tokens_details ?? null,
      },
    }),
  };
}

/** @type {import('./playground-protocols.js').Protocol} */
export const responses = {
  path: 'responses',
  lacks: [],
  request({ messages, max_tokens, reasoning_effort: effort, response_format: format, tools, ...same }) {
    const { system, rest } = withoutSystem(messages);
    return {
      ...same,
      instructions: system,
      input: rest.flatMap(itemsOf),
      max_output_tokens: max_tokens,
      reasoning: effort && { effort },
      text: format && { format: { type: 'json_schema', ...format.json_schema } },
      tools: tools?.map(flat),
      store: false,
      stream: true,
    };
  },
  reader() {
    /** Places of the tool calls among the calls, by their place in the output. @type {number[]} */
    const calls = [];
    return (data) => {
      if (data === '[DONE]') return { isLast: true };
      const event = /** @type {ResponseEvent} */ (JSON.parse(data));
      const { type, delta = '', output_index: at = 0, item } = event;
      switch (type) {
        case 'response.output_text.delta':
        case 'response.refusal.delta':
          return { choices: [{ delta: { content: delta } }] };
        case 'response.reasoning_text.delta':
        case 'response.reasoning_summary_text.delta':
          return { choices: [{ delta: { reasoning: delta } }] };
        case 'response.output_item.added':
          if (item?.type !== 'function_call') return {};
          return callChunk(calls.push(at) - 1, { id: item.call_id, function: { name: item.name } });
        case 'response.function_call_arguments.delta':
          return callChunk(calls.indexOf(at), { function: { arguments: delta } });
        case 'response.incomplete':
          return { ...endOfResponse(event.response), choices: [{ finish_reason: reasonOf(event.response) }] };
        case 'response.completed':
        case 'response.failed':
          return endOfResponse(event.response);
        case 'error':
          return { isLast: true, error: { message: event.message ?? 'The response failed.' } };
        default:
          return {};
      }
    };
  },
  snippets: (origin, body) => ({
    curl: curl(`${origin}/v1/responses`, body),
    'Python (openai)': `import os
from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${origin}/v1`)}, api_key=os.environ["HEADGATE_API_KEY"])
stream = client.responses.create(${pythonArguments(body, ['stop', 'seed'])})
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`,
    'JavaScript (openai)': `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: ${JSON.stringify(`${origin}/v1`)}, apiKey: process.env.HEADGATE_API_KEY });
const stream = await client.responses.create(${JSON.stringify(body, null, 2)});
for await (const event of stream) {
  if (event.type === 'response.output_text.delta') process.stdout.write(event.delta);
}`,
  }),
};
