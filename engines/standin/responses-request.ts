import type { Body } from './params.ts';

/** A request of `/v1/responses` as the chat request that vLLM makes of it. */

const isBody = (value: unknown): value is Body => typeof value === 'object' && value !== null && !Array.isArray(value);
const listOf = (value: unknown): Body[] => (Array.isArray(value) ? (value as unknown[]).filter(isBody) : []);

/** A part of a chat's content; what a model said is text again. */
function partOf({ type, text, image_url: url }: Body): Body {
  if (type === 'input_image') return { type: 'image_url', image_url: isBody(url) ? url : { url } };
  return { type: 'text', text: typeof text === 'string' ? text : '' };
}

const contentOf = (content: unknown): unknown => (Array.isArray(content) ? listOf(content).map(partOf) : content);

/** Thoughts of earlier answers are not read again. */
function messagesOf({ type, role, content, call_id: id, name, arguments: given, output }: Body): Body[] {
  if (type === 'reasoning') return [];
  if (type === 'function_call') {
    return [{ role: 'assistant', tool_calls: [{ id, type: 'function', function: { name, arguments: given } }] }];
  }
  if (type === 'function_call_output') return [{ role: 'tool', tool_call_id: id, content: contentOf(output) }];
  return [{ role, content: contentOf(content) }];
}

function toolOf({ type, name, description, parameters, strict }: Body): Body {
  return { type, function: { name, description, parameters, strict } };
}

function choiceOf(choice: unknown): unknown {
  return isBody(choice) ? { type: 'function', function: { name: choice.name } } : choice;
}

function formatOf(text: unknown): Body | null {
  const format = isBody(text) && isBody(text.format) ? text.format : {};
  const { type, name, schema } = format;
  return type === 'json_schema' ? { type, json_schema: { name, schema } } : { type: type ?? 'text' };
}

/** The chat request; fields for the stand-in only are copied. */
export function chatOfResponses(body: Body): Body {
  const { input, instructions } = body;
  const said = typeof input === 'string' ? [{ role: 'user', content: input }] : listOf(input).flatMap(messagesOf);
  const tools = listOf(body.tools).map(toolOf);
  return {
    model: body.model,
    messages: typeof instructions === 'string' ? [{ role: 'system', content: instructions }, ...said] : said,
    max_tokens: body.max_output_tokens,
    temperature: body.temperature,
    top_p: body.top_p,
    top_k: body.top_k,
    seed: body.seed,
    ignore_eos: body.ignore_eos,
    cache_salt: body.cache_salt,
    response_format: formatOf(body.text),
    ...(tools.length > 0 && { tools, tool_choice: choiceOf(body.tool_choice ?? 'auto') }),
    ...(body.stream === true && { stream: true, stream_options: { include_usage: true } }),
    standin: body.standin,
  };
}
