import { isObject, valueText } from '#edge/inference/json-member.ts';
import { type FieldRule, refuse } from './field-rule.ts';

/** Matches text that may hold the type of such a block: as it is, or with escaped letters, which no encoder writes. */
const sign = /tool_definition|\\u00[4-7][0-9a-f]/i;

/**
 * Rejects tools that a message of Anthropic's form defines, as vLLM accepts them since 0.32. A grammar is made of them
 * without the bounds of `tools`. References to tools pass.
 */
export const refuseDefinedTools: FieldRule = ({ fields, endpoint }, member) => {
  if (endpoint.toolForm !== 'anthropic') return;
  const text = valueText(fields.text, member);
  if (!sign.test(text) || !definesTool(text)) return;
  throw refuse(
    member.key,
    'Tools cannot be defined in "messages". Define them in "tools" with "defer_loading", and name them here.',
  );
};

function definesTool(text: string): boolean {
  let messages: unknown;
  try {
    messages = JSON.parse(text);
  } catch {
    // The engine rejects it.
    return false;
  }
  if (!Array.isArray(messages)) return false;
  const blocks = messages.flatMap((message: unknown) => (isObject(message) ? message['content'] : []));
  return blocks.some(
    (block) => isObject(block) && isObject(block['tool']) && block['tool']['type'] === 'tool_definition',
  );
}
