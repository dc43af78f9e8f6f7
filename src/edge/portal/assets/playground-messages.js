import { curl, pythonArguments } from './playground-code.js';
import { callChunk, partsOf, withoutSystem } from './playground-parts.js';

/** Anthropic's Messages. */

/**
 * @typedef {import('./playground-protocols.js').Conversation} Conversation
 * @typedef {import('./playground-protocols.js').Frame} Frame
 * @typedef {import('./playground-protocols.js').Message} Message
 * @typedef {import('./playground-protocols.js').Part} Part
 * @typedef {import('./playground-protocols.js').Tool} Tool
 */

/** Anthropic's API and vLLM require a limit. */
const messagesTokens = 1024;

/** @param {string} json */
function objectOf(json) {
  try {
    return /** @type {unknown} */ (JSON.parse(json));
  } catch {
    return {};
  }
}

/** @param {Part} part */
function blockOf(part) {
  if (part.type === 'text') return part;
  const [, type, data] = /^data:([^;]+);base64,(.*)$/s.exec(part.image_url.url) ?? [];
  return { type: 'image', source: { type: 'base64', media_type: type, data } };
}

/** @param {Message} message */
function blocksOf(message) {
  const content = partsOf(message).map(blockOf);
  const { role, tool_calls: calls, tool_call_id: id } = message;
  if (role === 'tool') return [{ type: 'tool_result', tool_use_id: id, content }];
  return [
    ...content,
    ...(calls ?? []).map((call) => ({
      type: 'tool_use',
      id: call.id,
      name: call.function.name,
      input: objectOf(call.function.arguments),
    })),
  ];
}

/**
 * Returns turns of user and assistant. The results of all calls of one turn belong to one message.
 * @param {readonly Message[]} messages
 */
function turnsOf(messages) {
  /** @type {{ role: 'user' | 'assistant', content: object[] }[]} */
  const turns = [];
  for (const message of messages) {
    const role = message.role === 'assistant' ? 'assistant' : 'user';
    const last = turns.at(-1);
    if (last?.role === role) last.content.push(...blocksOf(message));
    else turns.push({ role, content: blocksOf(message) });
  }
  return turns.filter(({ content }) => content.length > 0);
}

/** @param {Tool} tool */
function anthropicTool({ function: declared, ...rest }) {
  if (declared === undefined) return rest;
  const { name, description, parameters } = declared;
  return { name, description, input_schema: parameters ?? { type: 'object' } };
}

/** @param {Conversation} conversation */
function outputConfig({ reasoning_effort: effort, response_format: format }) {
  const schema = format && { format: { type: 'json_schema', schema: format.json_schema.schema } };
  const level = effort !== undefined && effort !== 'none' ? { effort } : undefined;
  return schema || level ? { ...level, ...schema } : undefined;
}

/**
 * @typedef {{ input_tokens?: number, output_tokens?: number, cache_read_input_tokens?: number | null, cache_creation_input_tokens?: number | null }} MessageUsage
 * @typedef {{ type: string, index?: number, message?: { usage?: MessageUsage }, usage?: MessageUsage, content_block?: { type: string, id?: string, name?: string }, delta?: { type?: string, stop_reason?: string | null, text?: string, thinking?: string, partial_json?: string }, error?: { message: string } }} MessageEvent
 */

/** @param {MessageUsage} usage @returns {Frame} */
function usageChunk({ input_tokens: fresh, output_tokens: output, ...cache }) {
  const cached = cache.cache_read_input_tokens ?? 0;
  const input = (fresh ?? 0) + cached + (cache.cache_creation_input_tokens ?? 0);
  return {
    usage: {
      prompt_tokens: input,
      completion_tokens: output ?? 0,
      prompt_tokens_details: { cached_tokens: cached },
    },
  };
}

/** @param {NonNullable<MessageEvent['delta']>} delta @returns {Frame} */
const textChunk = ({ text, thinking }) => ({
  choices: [{ delta: { content: text ?? '', reasoning: thinking ?? '' } }],
});

/** @type {import('./playground-protocols.js').Protocol} */
export const messages = {
  path: 'messages',
  lacks: ['seed'],
  request(conversation) {
    const { model, temperature, top_p, max_tokens, stop, tools, reasoning_effort: effort } = conversation;
    const { system, rest } = withoutSystem(conversation.messages);
    return {
      model,
      system,
      messages: turnsOf(rest),
      max_tokens: max_tokens ?? messagesTokens,
      temperature,
      top_p,
      stop_sequences: stop,
      thinking: effort === 'none' ? { type: 'disabled' } : undefined,
      output_config: outputConfig(conversation),
      tools: tools?.map(anthropicTool),
      stream: true,
    };
  },
  reader() {
    /** Places of the tool calls among the calls, by their place in the content. @type {number[]} */
    const calls = [];
    /** @type {MessageUsage} */
    let usage = {};
    return (data) => {
      const event = /** @type {MessageEvent} */ (JSON.parse(data));
      const { type, index: at = 0, content_block: block, delta = {} } = event;
      switch (type) {
        case 'message_start':
        case 'message_delta':
          // The end tells only what has changed since the start.
          usage = { ...usage, ...event.message?.usage, ...event.usage };
          return {
            ...usageChunk(usage),
            choices: [{ finish_reason: delta.stop_reason === 'max_tokens' ? 'length' : null }],
          };
        case 'content_block_start':
          if (block?.type !== 'tool_use') return {};
          return callChunk(calls.push(at) - 1, { id: block.id, function: { name: block.name } });
        case 'content_block_delta':
          if (delta.partial_json === undefined) return textChunk(delta);
          return callChunk(calls.indexOf(at), { function: { arguments: delta.partial_json } });
        case 'message_stop':
          return { isLast: true };
        case 'error':
          return { isLast: true, error: event.error ?? { message: 'The message failed.' } };
        default:
          return {};
      }
    };
  },
  snippets: (origin, body) => ({
    curl: curl(`${origin}/v1/messages`, body),
    'Python (anthropic)': `import os
from anthropic import Anthropic

client = Anthropic(base_url=${JSON.stringify(origin)}, api_key=os.environ["HEADGATE_API_KEY"])
stream = client.messages.create(${pythonArguments(body, ['temperature', 'top_p'])})
for event in stream:
    if event.type == "content_block_delta" and event.delta.type == "text_delta":
        print(event.delta.text, end="", flush=True)`,
    'JavaScript (anthropic)': `import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({ baseURL: ${JSON.stringify(origin)}, apiKey: process.env.HEADGATE_API_KEY });
const stream = await client.messages.create(${JSON.stringify(body, null, 2)});
for await (const event of stream) {
  if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') process.stdout.write(event.delta.text);
}`,
  }),
};
