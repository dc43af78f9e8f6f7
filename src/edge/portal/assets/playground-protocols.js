import { chat } from './playground-chat.js';
import { messages } from './playground-messages.js';
import { responses } from './playground-responses.js';

/**
 * The protocols of a conversation. The page keeps it in the form of Chat Completions. Each protocol makes its own request
 * of that form, reads its own events as chunks of it, and shows the request as code.
 */

/**
 * @typedef {import('./playground-answer.js').Frame} Frame
 * @typedef {import('./playground-conversation.js').Message} Message
 * @typedef {{ type: 'text', text: string } | { type: 'image_url', image_url: { url: string } }} Part
 * @typedef {{ name: string, description?: string, parameters?: unknown, strict?: boolean }} ToolFunction
 * @typedef {{ type?: string, function?: ToolFunction }} Tool
 * @typedef {{ model: string, messages: Message[], temperature?: number | undefined, top_p?: number | undefined, max_tokens?: number | undefined, seed?: number | undefined, stop?: string[] | undefined, reasoning_effort?: string | undefined, response_format?: { json_schema: { name: string, schema: unknown } } | undefined, tools?: Tool[] | undefined }} Conversation
 * @typedef {Record<string, unknown>} Body
 * @typedef {(data: string) => Frame} EventReader Reads the data of one event.
 * @typedef {object} Protocol
 * @property {string} path Below /portal/playground.
 * @property {readonly string[]} lacks Ids of the settings that it cannot send.
 * @property {(conversation: Conversation) => object} request
 * @property {() => EventReader} reader
 * @property {(origin: string, body: Body) => Record<string, string>} snippets The request as programs that read the key
 * from HEADGATE_API_KEY, by title.
 */

/** Returns the protocol of a name: 'responses', 'messages', or any other for Chat Completions. @param {string} name */
export function protocolOf(name) {
  if (name === 'responses') return responses;
  return name === 'messages' ? messages : chat;
}
