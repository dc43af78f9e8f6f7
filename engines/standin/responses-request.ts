import type { Body } from './params.ts';
import { dumps } from './python.ts';

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
function messagesOf(item: Body): Body[] {
  const { type, role, content, call_id: id, name, namespace, output } = item;
  if (type === 'reasoning') return [];
  if (type === 'function_call' || type === 'custom_tool_call') {
    const given = type === 'function_call' ? item.arguments : dumps({ input: item.input });
    const called = typeof namespace === 'string' ? flatName(namespace, name) : name;
    return [
      { role: 'assistant', tool_calls: [{ id, type: 'function', function: { name: called, arguments: given } }] },
    ];
  }
  if (type === 'function_call_output' || type === 'custom_tool_call_output')
    return [{ role: 'tool', tool_call_id: id, content: contentOf(output) }];
  return [{ role, content: contentOf(content) }];
}

/** The function that the model is shown in the place of a custom tool. */
const customParameters = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The freeform text payload for this tool.' } },
  required: ['input'],
  additionalProperties: false,
};

/** Functions that the model is shown: those of namespaces under a flat name. Tools of all other types are left out. */
function toolsOf({ type, name, description, parameters, strict, tools }: Body): Body[] {
  if (type === 'custom') return [{ type: 'function', function: { name, description, parameters: customParameters } }];
  if (type === 'function') return [{ type, function: { name, description, parameters, strict } }];
  if (type !== 'namespace') return [];
  const inner = listOf(tools).filter((tool) => tool.type === 'function');
  return inner.flatMap((tool) => toolsOf({ ...tool, name: flatName(name, tool.name) }));
}

const flatName = (namespace: unknown, name: unknown): string => `${String(namespace)}__${String(name)}`;

/** How the calls of the model are shown to the client. */
export interface ShownCalls {
  readonly customNames: ReadonlySet<string>;
  /** Namespace and name by the flat name. */
  readonly namespaced: ReadonlyMap<string, { readonly namespace: string; readonly name: string }>;
}

export function shownCallsOf(body: Body): ShownCalls {
  const tools = listOf(body.tools);
  return {
    customNames: new Set(tools.filter(({ type }) => type === 'custom').map(({ name }) => String(name))),
    namespaced: new Map(
      tools
        .filter(({ type }) => type === 'namespace')
        .flatMap(({ name: namespace, tools: inner }) =>
          listOf(inner).map(({ name }): [string, { namespace: string; name: string }] => [
            flatName(namespace, name),
            { namespace: String(namespace), name: String(name) },
          ]),
        ),
    ),
  };
}

/** True if a custom tool has a grammar, which vLLM rejects. */
export const hasGrammar = (body: Body): boolean =>
  listOf(body.tools).some(({ type, format }) => type === 'custom' && isBody(format) && format.type === 'grammar');

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
  const tools = listOf(body.tools).flatMap(toolsOf);
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
