import type { JsonMember } from '#base/json/json.ts';
import { isObject, parseMember } from '#edge/inference/json-member.ts';
import { type EndpointPath, endpoints, maxCostHeader, mayRunTools, turnsMax } from '#edge/inference/request/request.ts';
import { refuse, type RuleRequest } from './field-rule.ts';

/** More bytes than any context holds: a longer list is rejected without a search. */
export const toolsBytesMax = 1_048_576;

/** Tools that a client runs itself. A server that is no vLLM may serve each of them, and run all others, unbilled. */
export const clientTools: ReadonlySet<unknown> = new Set([
  'function',
  'custom',
  'namespace',
  'local_shell',
  'shell',
  'apply_patch',
]);

/**
 * Returns the tools of a list, and of the namespaces in it, at any depth.
 * @param kept the list without tools that were left out, as latin1 JSON
 */
export function toolsOf(
  fields: Pick<RuleRequest['fields'], 'text'>,
  member: JsonMember,
  kept?: string,
): readonly unknown[] {
  if (kept === undefined) return unfold(parseMember(fields.text, member, toolsBytesMax));
  return unfold(parseMember(kept, { ...member, valueStart: 0, valueEnd: kept.length }, toolsBytesMax));
}

/** Unfolds namespaces. The recursion ends, because the depth of a body is bounded. */
function unfold(tools: unknown): readonly unknown[] {
  if (!Array.isArray(tools)) return [];
  return (tools as unknown[]).flatMap((tool) => {
    const isFull = isObject(tool) && tool['type'] === 'namespace' && Array.isArray(tool['tools']);
    return isFull ? unfold(tool['tools']) : [tool];
  });
}

/** Returns true if the engine would run a tool of the list itself. */
function hasEngineTool(fields: Pick<RuleRequest['fields'], 'text'>, member: JsonMember): boolean {
  return toolsOf(fields, member).some((tool) => isObject(tool) && !clientTools.has(tool['type']));
}

/**
 * Returns the turns that the engine may take for a request. After each tool that it runs itself, vLLM sends the whole
 * conversation to the model again, sums the tokens of all turns, and obeys the output limit only in the first turn. The
 * tools decide and not the model: a model that does not allow them rejects the request.
 */
export function turnsOf(request: Pick<RuleRequest, 'endpoint' | 'engine' | 'fields'>): number {
  const member = request.fields.members.get('tools');
  if (member === undefined || !mayRunTools(request.endpoint, request.engine)) return 1;
  return hasEngineTool(request.fields, member) ? turnsMax : 1;
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
    return hasEngineTool({ text: json }, { key: 'tools', keyStart: 0, valueStart: 0, valueEnd: json.length });
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
