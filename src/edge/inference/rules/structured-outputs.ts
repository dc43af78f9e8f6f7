import type { JsonMember } from '#base/json/json.ts';
import type { AllowableField, EngineDefinition } from '#core/catalog/catalog.ts';
import { isObject, type Members, parseMember, valueText } from '#edge/inference/json-member.ts';
import { invalidValue } from '#edge/inference/request/request.ts';
import { toolsBytesMax, toolsOf } from './engine-tools.ts';
import { SchemaMeter } from './schema-bounds.ts';
import { refuse, type RuleRequest } from './field-rule.ts';

/**
 * Checks of all fields that make an engine build a grammar: `structured_outputs`, `response_format`, tools, and the
 * names that vLLM had before 0.12. A grammar is built while others wait, and its work is not billed.
 */

type ToolForm = RuleRequest['endpoint']['toolForm'];

const isThere = (value: unknown): boolean => value !== undefined && value !== null;
const toolsFactor = 4;

const allows = (engine: EngineDefinition, what: AllowableField): boolean => engine.allow.includes(what);

function newMeter(engine: EngineDefinition, factor = 1): SchemaMeter {
  const permissions = { regex: allows(engine, 'regex'), grammar: allows(engine, 'grammar') };
  return new SchemaMeter(engine.structuredOutputs, permissions, factor);
}

function refuseWord({ engine }: RuleRequest, word: 'regex' | 'grammar', param: string): void {
  if (allows(engine, word)) return;
  throw refuse(param, `"${param}" is a ${word}, which is not supported for this model. Use a JSON schema instead.`);
}

/** @throws if the value is longer in the body than a schema may be */
function refuseLong({ engine }: RuleRequest, bytes: number, param: string, factor = 1): void {
  const bytesMax = engine.structuredOutputs.bytesMax * factor;
  if (bytes > bytesMax) throw refuse(param, `"${param}" may be at most ${bytesMax} bytes long for this model.`);
}

function refuseProblem(problem: string | null, param: string): void {
  if (problem !== null) throw refuse(param, `"${param}" ${problem}.`);
}

/**
 * Checks a schema, given as an object or as text. A text that cannot be parsed here is rejected: engines may read it.
 */
function checkSchema(request: RuleRequest, value: unknown, param: string, depth = 1): void {
  if (!isThere(value)) return;
  let schema = value;
  if (typeof value === 'string') {
    refuseLong(request, value.length, param);
    try {
      schema = JSON.parse(value) as unknown;
    } catch {
      throw refuse(param, `"${param}" is a string that is not valid JSON.`);
    }
  }
  refuseProblem(newMeter(request.engine).add(schema, depth), param);
}

function checkChoices(request: RuleRequest, value: unknown, param: string): void {
  if (Array.isArray(value)) refuseProblem(newMeter(request.engine).addChoices(value), param);
}

/**
 * Depth at which a structural tag begins. Its formats stand above the schemas: they may be a tag, in a sequence, in a
 * tag.
 */
const tagDepth = -4;

/** Parses the value of a member that holds a grammar of any kind. */
function readShort(request: RuleRequest, member: JsonMember): unknown {
  refuseLong(request, member.valueEnd - member.valueStart, member.key);
  return parseMember(request.fields.text, member, request.engine.structuredOutputs.bytesMax);
}

export function checkStructuredOutputs(request: RuleRequest, member: JsonMember): void {
  const value = readShort(request, member);
  // vLLM fails on any other value, as by a fault of its own.
  if (isThere(value) && !isObject(value)) throw invalidValue(member.key, `"${member.key}" must be an object.`);
  if (!isObject(value)) return;
  const { regex, whitespace_pattern: whitespace, grammar, choice, json, structural_tag: tag } = value;
  const at = (name: string): string => `${member.key}.${name}`;
  if (isThere(regex)) refuseWord(request, 'regex', at('regex'));
  if (isThere(whitespace)) refuseWord(request, 'regex', at('whitespace_pattern'));
  if (isThere(grammar)) refuseWord(request, 'grammar', at('grammar'));
  checkChoices(request, choice, at('choice'));
  checkSchema(request, json, at('json'));
  checkSchema(request, tag, at('structural_tag'), tagDepth);
}

export function checkResponseFormat(request: RuleRequest, member: JsonMember): void {
  const { valueStart, valueEnd } = member;
  // Only values with a schema are long: {"type":"json_object"} and the like are not parsed.
  if (valueEnd - valueStart <= '{"type":"json_object"}'.length) return;
  const value = readShort(request, member);
  if (!isObject(value)) return;
  const { json_schema: wrapper, ...rest } = value;
  if (isObject(wrapper)) {
    const { schema, ...others } = wrapper;
    checkSchema(request, schema, `${member.key}.json_schema.schema`);
    checkSchema(request, others, `${member.key}.json_schema`);
  }
  checkSchema(request, rest, member.key, tagDepth);
}

/** Checks the format of a response's text. */
export function checkTextFormat(request: RuleRequest, member: JsonMember): void {
  const value = readShort(request, member);
  if (!isObject(value) || !isObject(value['format'])) return;
  checkSchema(request, value['format']['schema'], `${member.key}.format.schema`);
}

/** Checks the format of a message, in Anthropic's field. */
export function checkOutputConfig(request: RuleRequest, member: JsonMember): void {
  const value = readShort(request, member);
  if (!isObject(value) || !isObject(value['format'])) return;
  checkSchema(request, value['format']['schema'], `${member.key}.format.schema`);
}

/** Fields that give an answer a form, so that tools beside them may be built into the same grammar. */
const formFields = ['response_format', 'text', 'structured_outputs'];

/** True if the answer has a required form. Agents send `output_config` with each request, only for the effort. */
function hasForm({ text, members }: RuleRequest['fields']): boolean {
  const config = members.get('output_config');
  if (config === undefined) return formFields.some((field) => members.has(field));
  if (config.valueEnd - config.valueStart > effortBytesMax) return true;
  const value = parseMember(text, config);
  return isObject(value) && isThere(value['format']);
}

/** A longer `output_config` has more than an effort, and is not worth being parsed twice. */
const effortBytesMax = 4096;

const toolChoiceBytesMax = 4096;
/** Matches a strict tool: the name is plain, or has a letter as an escape. false and null do not match. */
const strictSign = /"strict"\s*:\s*[^fn\s]|\\u00[67]/;

type Demand = { readonly kind: 'none' | 'auto' | 'any' } | { readonly kind: 'one'; readonly name: string };

/** Returns which tools the model must call. */
function demandedTools({ fields, endpoint }: RuleRequest): Demand {
  const member = fields.members.get('tool_choice');
  // No tool has so long a name.
  if (member !== undefined && member.valueEnd - member.valueStart > toolChoiceBytesMax) return { kind: 'any' };
  const choice = member === undefined ? 'auto' : parseMember(fields.text, member);
  if (choice === 'none') return { kind: 'none' };
  if (choice === 'required') return { kind: 'any' };
  if (!isObject(choice)) return { kind: 'auto' };
  if (endpoint.toolForm === 'anthropic') return anthropicDemand(choice);
  const name = functionOf(choice, endpoint.toolForm)?.['name'];
  return typeof name === 'string' ? { kind: 'one', name } : { kind: 'any' };
}

function anthropicDemand({ type, name }: Members): Demand {
  if (type === 'auto' || type === 'none') return { kind: type };
  return type === 'tool' && typeof name === 'string' ? { kind: 'one', name } : { kind: 'any' };
}

/**
 * Checks tools whose parameters are built into a grammar: if a call is required, the answer has a form, or a tool is
 * `strict`. Other parameters are only a part of the prompt, and billed as such.
 */
export function checkTools(request: RuleRequest, member: JsonMember): void {
  const { fields, endpoint } = request;
  const { toolForm } = endpoint;
  const bytes = member.valueEnd - member.valueStart;
  if (bytes > toolsBytesMax) throw refuse(member.key, `"${member.key}" may be at most ${toolsBytesMax} bytes long.`);
  const demand = demandedTools(request);
  if (demand.kind === 'none') return;
  const isBuilt = demand.kind !== 'auto' || hasForm(fields);
  if (!isBuilt && toolForm !== 'flat' && !strictSign.test(valueText(fields.text, member))) return;
  if (isBuilt) refuseLong(request, bytes, member.key, toolsFactor);
  const kept = request.dropped?.members.get('tools');
  const tools = toolsOf(fields, member, kept);
  if (!isBuilt && !tools.some((tool) => isStrict(tool, toolForm))) return;
  refuseLong(request, bytes, member.key, toolsFactor);
  checkBuilt(request, tools, demand);
}

/** Path of the schema in a tool. */
const parametersAt = { wrapped: '.function.parameters', flat: '.parameters', anthropic: '.input_schema' } as const;

function checkBuilt(request: RuleRequest, tools: readonly unknown[], demand: Demand): void {
  const { toolForm } = request.endpoint;
  const together = newMeter(request.engine, toolsFactor);
  for (const [index, tool] of tools.entries()) {
    const called = functionOf(tool, toolForm);
    if (called === null) checkSchema(request, tool, `tools[${index}]`, tagDepth);
    else if (demand.kind !== 'one' || called['name'] === demand.name) {
      const place = `tools[${index}]${parametersAt[toolForm]}`;
      checkParameters(request, called['parameters'], place);
      refuseProblem(together.add(called['parameters']), place);
    }
  }
}

function checkParameters(request: RuleRequest, parameters: unknown, place: string): void {
  if (isObject(parameters)) refuseLong(request, Buffer.byteLength(JSON.stringify(parameters)), place);
  checkSchema(request, parameters, place);
}

function functionOf(tool: unknown, form: ToolForm): Members | null {
  if (!isObject(tool)) return null;
  if (form === 'anthropic') return { ...tool, parameters: tool['input_schema'] };
  if (form === 'flat') return tool['type'] === 'function' ? tool : null;
  return isObject(tool['function']) ? tool['function'] : null;
}

/** True if a tool is strict. Engines read 1 and "true" as true. In /v1/responses, tools are strict by default. */
function isStrict(tool: unknown, form: ToolForm): boolean {
  const called = functionOf(tool, form);
  return called !== null && (called['strict'] ?? form === 'flat') !== false;
}
