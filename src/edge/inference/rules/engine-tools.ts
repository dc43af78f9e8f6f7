import type { JsonMember } from '#base/json/json.ts';
import { isObject, type Members, parseMember } from '#edge/inference/json-member.ts';
import { type EndpointPath, endpoints, maxCostHeader, mayRunTools, turnsMax } from '#edge/inference/request/request.ts';
import { refuse, type RuleRequest } from './field-rule.ts';

/** More bytes than any context holds: a longer list is rejected without a search. */
export const toolsBytesMax = 1_048_576;

/** Tools that the client runs itself. The engine would run all others itself, unbilled. */
const clientTools = new Set<unknown>(['function', 'custom', 'namespace', 'local_shell', 'shell', 'apply_patch']);

/**
 * Anthropic's tools that a client runs. All others have names that only Anthropic's models know, and vLLM has none of
 * them.
 */
const anthropicTools = new Set<unknown>([undefined, null, 'custom']);

/** Returns the tools of a list, and of the namespaces in it, at any depth. */
export function toolsOf(fields: Pick<RuleRequest['fields'], 'text'>, member: JsonMember): readonly unknown[] {
  return unfold(parseMember(fields.text, member, toolsBytesMax));
}

/** Unfolds namespaces. The recursion ends, because the depth of a body is bounded. */
function unfold(tools: unknown): readonly unknown[] {
  if (!Array.isArray(tools)) return [];
  return (tools as unknown[]).flatMap((tool) => {
    const isFull = isObject(tool) && tool['type'] === 'namespace' && Array.isArray(tool['tools']);
    return isFull ? unfold(tool['tools']) : [tool];
  });
}

interface ToolsRequest extends Pick<RuleRequest, 'endpoint'> {
  readonly fields: Pick<RuleRequest['fields'], 'text'>;
}

/** Returns the first tool that the engine would run itself. */
function engineToolOf({ fields, endpoint }: ToolsRequest, member: JsonMember): Members | undefined {
  const ofClient = endpoint.toolForm === 'anthropic' ? anthropicTools : clientTools;
  return toolsOf(fields, member).find((tool): tool is Members => isObject(tool) && !ofClient.has(tool['type']));
}

/** @throws AppError unsupported_parameter if the operator does not allow tools that the engine runs */
export function refuseEngineTools(request: RuleRequest, member: JsonMember): void {
  if (mayRunTools(request.endpoint, request.engine)) return;
  const tool = engineToolOf(request, member);
  if (tool === undefined) return;
  const type = typeof tool['type'] === 'string' ? tool['type'].slice(0, 64) : '';
  const message = `Built-in tools are not supported for this model. Omit the tool of type "${type}", or define a function that your program runs.`;
  throw refuse(member.key, message);
}

/**
 * Returns the turns that the engine may take for a request. After each tool that it runs itself, vLLM sends the whole
 * conversation to the model again, sums the tokens of all turns, and obeys the output limit only in the first turn. The
 * tools decide and not the model: a model that does not allow them rejects the request.
 */
export function turnsOf(request: RuleRequest): number {
  const member = request.fields.members.get('tools');
  if (member === undefined || !mayRunTools(request.endpoint, request.engine)) return 1;
  return engineToolOf(request, member) === undefined ? 1 : turnsMax;
}

/**
 * True if the engine would run a tool of a request itself. False for tools that are rejected when the request is sent:
 * invalid JSON, or too long.
 * @param json the value of the request's `tools`, as latin1
 */
export function hasEngineTools(path: EndpointPath, json: string): boolean {
  const endpoint = endpoints.find((row) => row.path === path);
  if (endpoint?.toolForm !== 'flat') return false;
  try {
    const fields = { text: json };
    return (
      engineToolOf({ fields, endpoint }, { key: 'tools', keyStart: 0, valueStart: 0, valueEnd: json.length }) !==
      undefined
    );
  } catch {
    return false;
  }
}

/**
 * Rejects a bound of the cost: the output limit would keep it, and vLLM obeys that limit only in the first turn.
 * @throws AppError unsupported_parameter, the header in `param`
 */
export function refuseCappedTurns(turns: number): void {
  if (turns === 1) return;
  throw refuse(
    maxCostHeader,
    `${maxCostHeader} cannot limit the cost of tools that the engine runs. Omit the header or the tools.`,
  );
}
