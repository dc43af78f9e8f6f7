/** Reads a conversation, and writes chunks of Chat Completions, for all protocols. */

/**
 * @typedef {import('./playground-protocols.js').Frame} Frame
 * @typedef {import('./playground-protocols.js').Message} Message
 * @typedef {import('./playground-protocols.js').Part} Part
 */

/** @param {Message} message @returns {Part[]} */
export function partsOf({ content }) {
  if (Array.isArray(content)) return /** @type {Part[]} */ (content);
  return content === '' ? [] : [{ type: 'text', text: String(content) }];
}

/** Separates the system prompt. @param {readonly Message[]} messages */
export function withoutSystem(messages) {
  const [first] = messages;
  return first?.role === 'system'
    ? { system: String(first.content), rest: messages.slice(1) }
    : { system: undefined, rest: messages };
}

/**
 * @param {number} index
 * @param {{ id?: string | undefined, function: { name?: string | undefined, arguments?: string } }} call
 * @returns {Frame}
 */
export const callChunk = (index, call) => ({ choices: [{ delta: { tool_calls: [{ index, ...call }] } }] });
