import type { Options } from './args.ts';
import { badRequest, type Refused } from './errors.ts';
import { randomHex } from './http.ts';
import type { Knobs } from './knobs.ts';
import type { Body } from './params.ts';
import { dumps, repr } from './python.ts';
import { sampleValue } from './schema.ts';
import type { Material } from './script.ts';
import { splitTokens } from './tokenizer.ts';

interface Tool {
  name: string;
  parameters: unknown;
}

/** A call that an answer will make. */
export interface ToolCall {
  id: string;
  name: string;
  /** JSON text. */
  arguments: string;
  /** How it was asked for: it decides the finish reason and the empty content. */
  asked: 'auto' | 'required' | 'named';
}

function toolsOf(body: Body): Tool[] {
  if (!Array.isArray(body.tools)) return [];
  const tools: Tool[] = [];
  for (const entry of body.tools as unknown[]) {
    const inner = typeof entry === 'object' && entry !== null ? (entry as Body).function : undefined;
    if (typeof inner !== 'object' || inner === null) continue;
    const { name, parameters } = inner as Body;
    if (typeof name === 'string') tools.push({ name, parameters: parameters ?? {} });
  }
  return tools;
}

function namedChoice(choice: unknown): string | null {
  if (typeof choice !== 'object' || choice === null) return null;
  const inner = (choice as Body).function;
  const name = typeof inner === 'object' && inner !== null ? (inner as Body).name : undefined;
  return typeof name === 'string' ? name : null;
}

/** vLLM's own refusals of tools. */
export function checkTools(body: Body, options: Options): Refused | null {
  const tools = body.tools ?? null;
  const choice = body.tool_choice ?? null;
  if (tools === null) {
    const free = [null, 'none', 'auto'].some((value) => value === choice);
    return free ? null : badRequest('When using `tool_choice`, `tools` must be set.', 'tool_choice');
  }
  if (Array.isArray(tools) && tools.length === 0) {
    const advice = 'Either provide at least one tool or omit the field entirely.';
    return badRequest(`\`tools\` must not be an empty array. ${advice}`, 'tools');
  }
  const named = namedChoice(choice);
  if (named !== null) {
    const known = toolsOf(body).some((tool) => tool.name === named);
    const unknown = 'The tool specified in `tool_choice` does not match any of the specified `tools`';
    return known ? null : badRequest(unknown, 'tool_choice');
  }
  if (choice === 'none' || choice === 'required') return null;
  if (choice !== null && choice !== 'auto') {
    const allowed = 'Only named tools, "none", "auto" or "required" are supported.';
    return badRequest(`Invalid value for \`tool_choice\`: ${repr(choice)}! ${allowed}`, 'tool_choice');
  }
  const able = options.autoToolChoice && options.toolCallParser !== null;
  const flags = '--enable-auto-tool-choice and --tool-call-parser';
  return able ? null : badRequest(`"auto" tool choice requires ${flags} to be set`);
}

/** Finds the tool that a free choice falls on: a word of its name stands in the user's last message. */
function mentioned(tools: readonly Tool[], prompt: string): Tool | undefined {
  const said = prompt.toLowerCase();
  return tools.find((tool) =>
    tool.name
      .toLowerCase()
      .split(/[^a-z0-9]+/)
      .some((word) => word.length >= 4 && said.includes(word)),
  );
}

/** Decides whether an answer is a tool call. `prompt` is the last user message, or "" when a tool spoke last. */
export function chooseCall(body: Body, prompt: string, knobs: Knobs): ToolCall | null {
  const tools = toolsOf(body);
  const { tool_choice: choice } = body;
  if (tools.length === 0 || choice === 'none') return null;
  const named = namedChoice(choice);
  const wanted = knobs.tool_call;
  const byKnob = typeof wanted === 'string' ? tools.find((tool) => tool.name === wanted) : undefined;
  let tool: Tool | undefined;
  if (named !== null) tool = tools.find((candidate) => candidate.name === named);
  else if (choice === 'required' || wanted === true) tool = byKnob ?? mentioned(tools, prompt) ?? tools[0];
  else if (wanted !== false) tool = byKnob ?? mentioned(tools, prompt);
  if (tool === undefined) return null;
  return {
    id: `chatcmpl-tool-${randomHex()}`,
    name: tool.name,
    arguments: knobs.tool_arguments ?? dumps(sampleValue(tool.parameters, prompt)),
    asked: named !== null ? 'named' : choice === 'required' ? 'required' : 'auto',
  };
}

/**
 * The tokens of a call, as a model writes it around and a parser reads it out: nothing shows until the name is whole,
 * then each token of the arguments shows, then nothing again.
 */
export function callMaterial(call: ToolCall, rest: () => string): Material {
  const [open, close] = call.asked === 'auto' ? ['<tool_call>\n', '\n</tool_call>'] : ['[', ']'];
  const key = call.asked === 'auto' ? 'arguments' : 'parameters';
  const before = splitTokens(`${open}{"name": "`);
  const name = splitTokens(call.name);
  const between = splitTokens(`", "${key}": `);
  const args = splitTokens(call.arguments);
  const after = splitTokens(`}${close}`);
  const opening = `{"content":null,"tool_calls":[{"id":"${call.id}","type":"function","index":0,"function":{"name":${JSON.stringify(call.name)}}}]}`;
  const deltas: (string | null)[] = [
    ...before.map(() => null),
    ...name.map(() => null),
    ...between.map((_, index) => (index === 0 ? opening : null)),
    ...args.map((token) =>
      token === ''
        ? null
        : `{"content":null,"tool_calls":[{"index":0,"function":{"arguments":${JSON.stringify(token)}}}]}`,
    ),
    ...after.map(() => null),
  ];
  const tokens = [...before, ...name, ...between, ...args, ...after];
  let at = 0;
  const next = (): string => {
    at += 1;
    return at <= tokens.length ? (tokens[at - 1] ?? '') : rest();
  };
  return { next, naturalTokens: tokens.length, toolDeltas: deltas };
}
