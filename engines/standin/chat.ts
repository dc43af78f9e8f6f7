import { createPrinter } from './chat-format.ts';
import { readPrompt, type ChatPrompt } from './conversation.ts';
import { badRequest, refusal, type Refused } from './errors.ts';
import type { Exchange } from './http.ts';
import { mergeKnobs, textFor, type Knobs } from './knobs.ts';
import {
  CHAT_FIELDS,
  checkFields,
  checkLength,
  checkModel,
  checkStreamOptions,
  readParams,
  type Body,
  type Params,
} from './params.ts';
import { createAnswer } from './prose.ts';
import { createChoice, startRun, type Engine } from './run.ts';
import { sampleValue, schemaFault } from './schema.ts';
import { createScript, fixedMaterial, type Material } from './script.ts';
import { hashText, splitTokens, type PromptScan } from './tokenizer.ts';
import { callMaterial, checkTools, chooseCall, type ToolCall } from './tools.ts';

/** JSON text that satisfies the request's `response_format`, null for free text, or a refusal. */
function formattedText(body: Body, asked: string): string | null | Refused {
  const format = body.response_format;
  if (typeof format !== 'object' || format === null) return null;
  const { type, json_schema: wrapper } = format as Body;
  if (type === 'json_object') return JSON.stringify({ answer: 'This object comes from a stand-in engine.' }, null, 2);
  if (type !== 'json_schema') return null;
  const schema = typeof wrapper === 'object' && wrapper !== null ? (wrapper as Body).schema : undefined;
  const fault = schemaFault(schema ?? {});
  return fault === null ? JSON.stringify(sampleValue(schema, asked), null, 2) : badRequest(`Grammar error: ${fault}`);
}

function seedOf(params: Params, prompt: PromptScan, index: number): number {
  if (params.temperature === 0) return hashText(String(prompt.hash));
  const base = params.seed ?? Math.floor(Math.random() * 0x1_0000_0000);
  return hashText(`${base} ${prompt.hash} ${index}`);
}

interface Plan {
  seed: number;
  call: ToolCall | null;
  fixed: string | null;
}

function materialOf(plan: Plan): Material {
  const prose = createAnswer(plan.seed, false);
  if (plan.call !== null) return callMaterial(plan.call, () => ' ');
  if (plan.fixed !== null) return fixedMaterial(splitTokens(plan.fixed), prose.next);
  return { ...prose, toolDeltas: null };
}

function thinks(body: Body, engine: Engine, knobs: Knobs): boolean {
  if (engine.options.reasoningParser === null) return false;
  const template = body.chat_template_kwargs;
  const off = typeof template === 'object' && template !== null && (template as Body).enable_thinking === false;
  return !off && knobs.reasoning_tokens !== 0;
}

interface Accepted {
  params: Params;
  prompt: ChatPrompt;
  /** The format that `response_format` asks for, as text; null is free text. */
  formatted: string | null;
}

export function accept(body: Body, engine: Engine): Accepted | Refused {
  const { options } = engine;
  const early = checkStreamOptions(body) ?? checkTools(body, options) ?? checkFields(body, CHAT_FIELDS, 'messages');
  if (early !== null) return early;
  const unknown = checkModel(body, options);
  if (unknown !== null) return refusal(404, 'NotFoundError', `The model \`${unknown}\` does not exist.`, 'model');
  const prompt = readPrompt(Array.isArray(body.messages) ? body.messages : [], engine);
  if ('status' in prompt) return prompt;
  const params = readParams(body, options);
  if ('status' in params) return params;
  const refused = checkLength(prompt.scan, params.maxTokens, options.maxModelLen);
  if (refused !== null) return refused;
  const formatted = formattedText(body, prompt.asked);
  if (formatted !== null && typeof formatted === 'object') return formatted;
  return { params, prompt, formatted };
}

/**
 * Answers POST /v1/chat/completions.
 * @param abortId what `/abort_requests` takes, where that is not the answer's id
 */
export function answerChat(engine: Engine, exchange: Exchange, body: Body, abortId?: string): void {
  const knobs = mergeKnobs(engine.options.knobs, body.standin);
  const accepted = accept(body, engine);
  if ('status' in accepted) {
    exchange.json(accepted.status, accepted.body);
    return;
  }
  const { params, prompt, formatted } = accepted;
  const cacheUse = engine.cache.use(prompt.scan, params.cacheSalt);
  const requestId = exchange.requestId ?? (typeof body.request_id === 'string' ? body.request_id : null);
  const printer = createPrinter({ engine, body, params, requestId });
  const room = (params.maxTokens ?? engine.options.maxModelLen) - (params.maxTokens === null ? prompt.scan.count : 0);
  const thoughtTokens = knobs.reasoning_text === undefined ? null : splitTokens(knobs.reasoning_text);
  const choices = Array.from({ length: params.n }, (_, index) => {
    const seed = seedOf(params, prompt.scan, index);
    const call = chooseCall(body, prompt.asked, knobs);
    printer.calls.push(call);
    const fixed = textFor(knobs, index) ?? formatted;
    const { minTokens, ignoreEos } = params;
    const script = createScript(
      {
        material: materialOf({ seed, call, fixed }),
        knobs,
        seed,
        room,
        minTokens,
        ignoreEos,
        thinks: call === null && thinks(body, engine, knobs),
      },
      thoughtTokens,
    );
    return createChoice({
      index,
      id: abortId ?? printer.id,
      script,
      prompt: prompt.scan,
      cachedTokens: cacheUse.cachedTokens,
      params,
      knobs,
    });
  });
  startRun({
    engine,
    exchange,
    params,
    knobs,
    format: printer.format,
    choices,
    promptTokens: prompt.scan.count,
    cacheUse,
  });
}
