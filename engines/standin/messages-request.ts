import { dumps } from './python.ts';
import type { Body } from './params.ts';

/** A request of `/v1/messages` as the chat request that vLLM makes of it. */

const isBody = (value: unknown): value is Body => typeof value === 'object' && value !== null && !Array.isArray(value);
const listOf = (value: unknown): Body[] => (Array.isArray(value) ? (value as unknown[]).filter(isBody) : []);
/** Its first words differ from request to request, so that vLLM leaves it out. */
const isBilling = (text: string): boolean => text.startsWith('x-anthropic-billing-header');

function systemText(content: unknown): string {
  if (typeof content === 'string') return content;
  const texts = listOf(content).map(({ type, text }) => (type === 'text' && typeof text === 'string' ? text : ''));
  return texts.filter((text) => !isBilling(text)).join('');
}

function imagePart(source: unknown): Body {
  const { type, url, media_type: mediaType = 'image/jpeg', data = '' } = isBody(source) ? source : {};
  const address = type === 'url' ? url : `data:${String(mediaType)};base64,${String(data)}`;
  return { type: 'image_url', image_url: { url: address } };
}

function resultMessages({ tool_use_id: id = '', content }: Body): Body[] {
  const parts = listOf(content);
  const texts = parts.flatMap(({ type, text = '' }) => (type === 'text' ? [String(text)] : []));
  const images = parts.flatMap(({ type, source }) => (type === 'image' ? [imagePart(source)] : []));
  const text = typeof content === 'string' ? content : texts.join('\n');
  const answered: Body = { role: 'tool', tool_call_id: id, content: text };
  return images.length === 0 ? [answered] : [answered, { role: 'user', content: images }];
}

/** The parts of a turn's content, its calls, and messages before it, made from its blocks. */
interface Turn {
  before: Body[];
  parts: Body[];
  calls: Body[];
}

function addBlock({ before, parts, calls }: Turn, block: Body): void {
  if (block.type === 'text' && block.text !== '') parts.push({ type: 'text', text: block.text });
  else if (block.type === 'image') parts.push(imagePart(block.source));
  else if (block.type === 'tool_use') {
    const called = { name: block.name ?? '', arguments: dumps(block.input ?? {}) };
    calls.push({ id: block.id, type: 'function', function: called });
  } else if (block.type === 'tool_result') before.push(...resultMessages(block));
}

function turnOf({ role, content }: Body): Body[] {
  if (role === 'system') {
    const text = systemText(content);
    return text === '' ? [] : [{ role, content: text }];
  }
  if (typeof content === 'string') return [{ role, content }];
  const turn: Turn = { before: [], parts: [], calls: [] };
  for (const block of listOf(content)) addBlock(turn, block);
  const { before, parts, calls } = turn;
  if (role === 'user' && parts.length === 0) return before;
  const [first] = parts;
  const said = parts.length === 1 && first?.type === 'text' ? first.text : parts;
  const called = calls.length > 0 ? { tool_calls: calls } : {};
  return [...before, { role, ...called, ...(parts.length > 0 && { content: said }) }];
}

function choiceOf(choice: unknown, hasTools: boolean): unknown {
  if (!isBody(choice)) return hasTools ? 'auto' : null;
  if (choice.type === 'any') return 'required';
  return choice.type === 'tool' ? { type: 'function', function: { name: choice.name } } : choice.type;
}

function formatOf(config: unknown): Body | null {
  const format = isBody(config) && isBody(config.format) ? config.format : {};
  if (!isBody(format.schema)) return null;
  return { type: 'json_schema', json_schema: { name: 'json_schema', schema: format.schema } };
}

/** The chat request; fields for the stand-in only are copied. */
export function chatRequest(body: Body): Body {
  const system = systemText(body.system);
  const hasTools = Array.isArray(body.tools);
  const known = listOf(body.tools).map(({ name, description, input_schema: parameters, strict }) => ({
    type: 'function',
    function: { name, description, parameters, strict },
  }));
  const messages = listOf(body.messages).flatMap(turnOf);
  return {
    model: body.model,
    messages: system === '' ? messages : [{ role: 'system', content: system }, ...messages],
    max_tokens: body.max_tokens,
    stop: body.stop_sequences,
    temperature: body.temperature,
    top_p: body.top_p,
    top_k: body.top_k,
    cache_salt: body.cache_salt,
    chat_template_kwargs: body.chat_template_kwargs,
    response_format: formatOf(body.output_config),
    // vLLM looks at an empty list before it makes a chat of a request, and so not here.
    tools: known.length > 0 ? known : null,
    tool_choice: choiceOf(body.tool_choice, hasTools),
    ...(body.stream === true && {
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
    }),
    standin: body.standin,
  };
}
