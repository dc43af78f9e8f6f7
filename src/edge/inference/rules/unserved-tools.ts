import { AppError } from '#base/errors.ts';
import { forEachElement, type JsonMember, latin1Json, scanObject } from '#base/json/json.ts';
import { type EngineDefinition, isVllmSince, type Model } from '#core/catalog/catalog.ts';
import { isNull, isObject, type Members, parseMember, valueText } from '#edge/inference/json-member.ts';
import { type DroppedTools, type Endpoint, mayRunTools, type RequestFields } from '#edge/inference/request/request.ts';
import { clientTools, toolsBytesMax } from './engine-tools.ts';
import { refuse } from './field-rule.ts';

/** Tools in a request that its engine does not serve: rejected, or left out. */

export interface ToolsRequest {
  readonly fields: Pick<RequestFields, 'text' | 'members'>;
  readonly model: Model;
  readonly endpoint: Endpoint;
  /** The key's own setting; null for the one of the engine's file. */
  readonly unservedTools: EngineDefinition['unservedTools'] | null;
}

/**
 * Anthropic's tools that a client runs. All others have names that only Anthropic's models know, and vLLM has none of
 * them.
 */
const anthropicTools: ReadonlySet<unknown> = new Set([undefined, null, 'custom']);

/** vLLM rejects every other type on chat, and reads a tool without a type as a function. */
const chatTools: ReadonlySet<unknown> = new Set([undefined, 'function']);
/** Tools of OpenAI's chat: other servers may serve both. */
const otherChatTools: ReadonlySet<unknown> = new Set([...chatTools, 'custom']);

/**
 * Tools of /v1/responses that vLLM shows to the model. It ignores all others, except those that it would run itself.
 */
const vllmTools: ReadonlySet<unknown> = new Set(['function', 'namespace']);
const newVllmTools: ReadonlySet<unknown> = new Set([...vllmTools, 'custom']);
const inVllmNamespace: ReadonlySet<unknown> = new Set(['function']);

/** Types that an engine serves, in the list and in a namespace; null if the engine decides. */
interface Served {
  readonly types: ReadonlySet<unknown>;
  readonly inNamespace: ReadonlySet<unknown>;
  /** True if custom tools may have a grammar. */
  readonly grammars: boolean;
}

/** True if the engine serves custom tools and reads their calls. */
export const servesCustomTools = ({ engine, version }: Pick<Model, 'engine' | 'version'>): boolean =>
  engine.kind === 'vllm' && isVllmSince(version, '0.32');

function servedBy(model: Model, { toolForm }: Endpoint): Served {
  const all = (types: ReadonlySet<unknown>): Served => ({ types, inNamespace: types, grammars: true });
  if (toolForm === 'anthropic') return all(anthropicTools);
  const isVllm = model.engine.kind === 'vllm';
  if (toolForm === 'wrapped') return all(isVllm ? chatTools : otherChatTools);
  if (!isVllm) return all(clientTools);
  const types = servesCustomTools(model) ? newVllmTools : vllmTools;
  return { types, inNamespace: inVllmNamespace, grammars: false };
}

/** The tools of a list that stay, with their bytes, and the types of the others. */
class Sieve {
  readonly kept: unknown[] = [];
  /** The tools that stay, as latin1 JSON. */
  readonly keptJson: readonly string[];
  readonly names = new Set<string>();
  readonly dropped: Members[] = [];
  readonly #served: Served;

  /** @param json the list as latin1 JSON */
  constructor(json: string, tools: readonly unknown[], served: Served) {
    this.#served = served;
    this.keptJson = this.#sieveList(json, tools, served.types, (tool) => this.kept.push(tool));
  }

  #sieveList(
    json: string,
    tools: readonly unknown[],
    types: ReadonlySet<unknown>,
    onKept?: (tool: unknown) => void,
  ): readonly string[] {
    const kept: string[] = [];
    let index = 0;
    forEachElement(json, 0, (start, end) => {
      const tool = tools[index];
      const stays = this.#sieve(json.slice(start, end), tool, types);
      if (stays !== null) kept.push(stays);
      if (stays !== null) onKept?.(tool);
      index += 1;
      return true;
    });
    return kept;
  }

  /** Returns the tool as it stays: unchanged, without a part, or null. What is no tool is left to the engine. */
  #sieve(json: string, tool: unknown, types: ReadonlySet<unknown>): string | null {
    if (!isObject(tool)) return json;
    const { type } = tool;
    if (!types.has(type)) {
      this.dropped.push(tool);
      this.names.add(typeof type === 'string' ? type : '');
      return null;
    }
    if (type === 'namespace' && Array.isArray(tool['tools'])) return this.#sieveNamespace(json, tool['tools']);
    return type === 'custom' && !this.#served.grammars ? this.#withoutGrammar(json, tool) : json;
  }

  #sieveNamespace(json: string, tools: readonly unknown[]): string | null {
    const list = membersOf(json).findLast(({ key }) => key === 'tools');
    if (list === undefined) return json;
    const before = this.dropped.length;
    const kept = this.#sieveList(valueText(json, list), tools, this.#served.inNamespace);
    if (this.dropped.length === before) return json;
    return kept.length === 0 ? null : withMember(json, ['tools'], `"tools":[${kept.join(',')}]`);
  }

  /** vLLM makes no grammar of a custom tool, so the model reads it in the description. */
  #withoutGrammar(json: string, tool: Members): string {
    const { format } = tool;
    if (!isObject(format) || format['type'] !== 'grammar') return json;
    this.names.add('custom.format');
    const [description, grammar] = [tool['description'], format['definition']].map((text) =>
      typeof text === 'string' ? text : '',
    );
    const text = `${description}\n\nGrammar of the input:\n${grammar}`.trim();
    return withMember(json, ['format', 'description'], `"description":${latin1Json(text)}`);
  }
}

function membersOf(json: string): readonly JsonMember[] {
  const scan = scanObject(json);
  return scan.ok ? scan.members : [];
}

/** Returns an object without some members, and with one as its last. All others keep their bytes. */
function withMember(json: string, without: readonly string[], member: string): string {
  const others = membersOf(json).filter(({ key }) => !without.includes(key));
  return `{${[...others.map(({ keyStart, valueEnd }) => json.slice(keyStart, valueEnd)), member].join(',')}}`;
}

/**
 * Finds the tools that an engine does not serve, and leaves them out if the key or the engine's file says so.
 * @returns null if nothing is left out
 * @throws AppError unsupported_parameter for such a tool, unless it may be left out; invalid_value for a `tool_choice` that needs
 *   a tool that was left out
 */
export function dropUnserved(request: ToolsRequest): DroppedTools | null {
  const { fields, model, endpoint } = request;
  const member = fields.members.get('tools');
  if (member === undefined || isNull(fields.text, member) || mayRunTools(endpoint, model.engine)) return null;
  const drops = (request.unservedTools ?? model.engine.unservedTools) === 'drop';
  // On chat, engines reject other tools themselves.
  if (!drops && endpoint.toolForm === 'wrapped') return null;
  const bytes = member.valueEnd - member.valueStart;
  if (bytes > toolsBytesMax) throw refuse('tools', `"tools" may be at most ${toolsBytesMax} bytes long.`);
  const tools = parseMember(fields.text, member, toolsBytesMax);
  if (!Array.isArray(tools)) return null;
  const sieve = new Sieve(valueText(fields.text, member), tools, servedBy(model, endpoint));
  const [first] = sieve.names;
  if (first === undefined) return null;
  if (!drops) throw unserved(shownType(first));
  requireChoice(fields, sieve);
  const names = [...new Set([...sieve.names].map(shownType))].slice(0, namesMax);
  const members = keptMembers(request, sieve);
  return { names, members, bytes: bytesLess(fields, members) };
}

function bytesLess(fields: ToolsRequest['fields'], members: ReadonlyMap<string, string>): number {
  let bytes = 0;
  for (const [key, json] of members) {
    const member = fields.members.get(key);
    if (member !== undefined) bytes += member.valueEnd - member.valueStart - json.length;
  }
  return bytes;
}

/** Returns the members that change, as latin1 JSON. */
function keptMembers({ fields, endpoint }: ToolsRequest, sieve: Sieve): ReadonlyMap<string, string> {
  const members = new Map([['tools', `[${sieve.keptJson.join(',')}]`]]);
  if (sieve.kept.length === 0 && endpoint.toolForm === 'wrapped') {
    // vLLM rejects an empty list on chat, and any choice without a list.
    for (const key of ['tools', 'tool_choice']) if (fields.members.has(key)) members.set(key, 'null');
  }
  const include = includeWithout(fields, sieve);
  if (include !== null) members.set('include', include);
  return members;
}

const namesMax = 16;

/** A type that can stand in a header. */
const shownType = (type: string): string => (/^[\w.-]{1,64}$/.test(type) ? type : 'unknown');

function unserved(name: string): AppError {
  if (name === 'custom.format') {
    return refuse('tools', 'Custom tools with a grammar are not supported for this model. Omit "format".');
  }
  return refuse(
    'tools',
    `Tools of the type "${name}" are not supported for this model. Omit the tool, or leave such tools out with "unserved_tools": "drop" of the key.`,
  );
}

/** @throws AppError invalid_value */
function requireChoice({ text, members }: ToolsRequest['fields'], sieve: Sieve): void {
  const member = members.get('tool_choice');
  const choice = member === undefined ? null : parseMember(text, member);
  const refuseChoice = (why: string): AppError =>
    new AppError('invalid_value', {
      message: `"tool_choice" ${why}, because this model does not serve it. Omit "tool_choice".`,
      param: 'tool_choice',
    });
  const missing = missingChoice(choice, sieve);
  if (missing !== null) throw refuseChoice(`names ${shownName(missing)}, which was left out`);
  if (sieve.kept.length > 0 || !demandsCall(choice)) return;
  throw refuseChoice('demands a tool call, but every tool was left out');
}

const shownName = (name: string): string => JSON.stringify(name.slice(0, 64));

function demandsCall(choice: unknown): boolean {
  if (!isObject(choice)) return choice === 'required';
  const { type } = choice;
  const allowed = isObject(choice['allowed_tools']) ? choice['allowed_tools'] : choice;
  // All other objects name a tool.
  return type === 'allowed_tools' ? allowed['mode'] === 'required' : type !== 'auto' && type !== 'none';
}

/** Returns the name or the type of a tool that a choice names and that was left out; null if there is none. */
function missingChoice(choice: unknown, { kept, dropped }: Sieve): string | null {
  if (!isObject(choice)) return null;
  const nested = isObject(choice['allowed_tools']) ? choice['allowed_tools']['tools'] : choice['tools'];
  const choices = [choice, ...(Array.isArray(nested) ? (nested as unknown[]) : [])].filter(isObject);
  const isIn = (tools: readonly unknown[], called: string): boolean =>
    tools.some((tool) => isObject(tool) && (tool['type'] === called || nameOf(tool) === called));
  return (
    choices
      .map((one) => nameOf(one) ?? one['type'])
      .find((called): called is string => typeof called === 'string' && isIn(dropped, called) && !isIn(kept, called)) ??
    null
  );
}

/** Returns the name of a tool or of a choice, in any form. */
function nameOf(tool: Members): string | null {
  const inner = [tool, tool['function'], tool['custom']].find(
    (one) => isObject(one) && typeof one['name'] === 'string',
  );
  return isObject(inner) && typeof inner['name'] === 'string' ? inner['name'] : null;
}

/** Tools whose results `include` can ask for: `web_search_call.results`. */
const includable = ['web_search', 'file_search', 'code_interpreter', 'computer'];

/** Returns `include` without the values that belong to tools that were left out; null if nothing changes. */
function includeWithout({ text, members }: ToolsRequest['fields'], { names }: Sieve): string | null {
  const member = members.get('include');
  if (member === undefined) return null;
  const values = parseMember(text, member);
  if (!Array.isArray(values)) return null;
  const gone = includable.filter((tool) => [...names].some((name) => name.startsWith(tool)));
  const isGone = (value: unknown): boolean =>
    typeof value === 'string' && gone.some((tool) => value.startsWith(`${tool}_call`));
  return values.some(isGone) ? latin1Json(values.filter((value) => !isGone(value))) : null;
}
