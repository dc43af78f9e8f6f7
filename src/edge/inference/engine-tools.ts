import type { JsonMember } from '#base/json-scan.ts';
import { refuse, type RuleRequest } from './field-rule.ts';
import { parseMember } from './member.ts';
import { maxCostHeader } from './spending.ts';

type Members = Readonly<Record<string, unknown>>;

/** More than any context holds: not worth looking through. */
export const toolsBytesMax = 1_048_576;

/** Tools that the client runs itself. All others are the engine's own: it would run them, without a bill. */
const clientTools = new Set<unknown>(['function', 'custom', 'namespace', 'local_shell', 'shell', 'apply_patch']);

/** Of Anthropic's all others have names that its own models alone know, and vLLM has none of them. */
const anthropicTools = new Set<unknown>([undefined, null, 'custom']);

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The tools of a list, and those of the namespaces in it, at any depth. */
export function toolsOf(fields: RuleRequest['fields'], member: JsonMember): readonly unknown[] {
  return unfold(parseMember(fields.text, member, toolsBytesMax));
}

/** A body is bounded in its depth. */
function unfold(tools: unknown): readonly unknown[] {
  if (!Array.isArray(tools)) return [];
  return (tools as unknown[]).flatMap((tool) => {
    const isFull = isObject(tool) && tool['type'] === 'namespace' && Array.isArray(tool['tools']);
    return isFull ? unfold(tool['tools']) : [tool];
  });
}

/** The first of the tools that the engine runs itself. */
function engineToolOf({ fields, endpoint }: Omit<RuleRequest, 'engine'>, member: JsonMember): Members | undefined {
  const ofClient = endpoint.toolForm === 'anthropic' ? anthropicTools : clientTools;
  return toolsOf(fields, member).find((tool): tool is Members => isObject(tool) && !ofClient.has(tool['type']));
}

const isAllowed = ({ endpoint, engine }: Omit<RuleRequest, 'fields'>): boolean =>
  endpoint.toolForm === 'flat' && engine.allow.includes('builtin_tools');

/** @throws AppError unsupported_parameter, where the operator does not allow such tools */
export function refuseEngineTools(request: RuleRequest, member: JsonMember): void {
  if (isAllowed(request)) return;
  const tool = engineToolOf(request, member);
  if (tool === undefined) return;
  const type = typeof tool['type'] === 'string' ? tool['type'].slice(0, 64) : '';
  const message = `Built-in tools are not supported for this model: leave the tool of type "${type}" out, or describe a function that your program runs.`;
  throw refuse(member.key, message);
}

/** Turns that are believed of one request. vLLM has no limit of its own. */
const turnsMax = 128;

/**
 * Turns that the engine may take for a request: after each tool that it runs itself vLLM sends the whole conversation to
 * the model again, adds the tokens of all turns up, and keeps to the output limit in the first turn alone. The tools say
 * so and not the model: one that does not allow them refuses the request.
 */
export function turnsOf(request: RuleRequest): number {
  const member = request.fields.members.get('tools');
  if (member === undefined || !isAllowed(request)) return 1;
  return engineToolOf(request, member) === undefined ? 1 : turnsMax;
}

/**
 * Refuses such tools in a line of a batch: it waits until all of its output is paid for, and nobody can pay for so many turns.
 * @throws AppError unsupported_parameter, where the engine may take more than one turn
 */
export function refuseTurns(turns: number): void {
  if (turns === 1) return;
  throw refuse('tools', 'Built-in tools are not supported in a batch: send this request by itself.');
}

/**
 * Refuses a bound of the cost: it would be kept by the output limit, which vLLM keeps to in the first turn alone.
 * @throws AppError unsupported_parameter, the header in `param`
 */
export function refuseCappedTurns(turns: number): void {
  if (turns === 1) return;
  throw refuse(
    maxCostHeader,
    `${maxCostHeader} cannot limit tools that the engine runs itself: leave out one of them.`,
  );
}
