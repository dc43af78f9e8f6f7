import { badRequest, refusal, type Refused } from './errors.ts';
import { randomHex, type Exchange } from './http.ts';
import { mergeKnobs, textFor, type Knobs } from './knobs.ts';
import { completionLogprobs } from './logprobs.ts';
import {
  answeredModel,
  COMPLETION_FIELDS,
  checkFields,
  checkLength,
  checkModel,
  checkStreamOptions,
  readParams,
  scanText,
  type Body,
  type Params,
} from './params.ts';
import { createAnswer } from './prose.ts';
import { createChoice, startRun, type Choice, type Engine, type Format, type Part } from './run.ts';
import { createScript, fixedMaterial } from './script.ts';
import { decode, encode, hashText, splitTokens, tokenId, type PromptScan } from './tokenizer.ts';
import { finalUsage, jsonUsage, runningUsage, type UsageStyle } from './usage.ts';

const MAX_TOKENS_DEFAULT = 16;

/** One prompt of a request: its text (also of a token list) and what was counted. */
interface Prompt {
  text: string;
  ids: readonly number[] | null;
  scan: PromptScan;
}

function isIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.length > 0 && value.every((item) => Number.isInteger(item));
}

function idsPrompt(ids: readonly number[], blockSize: number): Prompt {
  const scan = scanText(ids.join(' '), blockSize);
  const blocks = scan.blocks.slice(0, Math.floor(ids.length / blockSize));
  return { text: decode(ids), ids, scan: { hash: scan.hash, count: ids.length, blocks } };
}

/** Reads `prompt` in its four forms; null when it is none of them. */
export function readPrompts(value: unknown, blockSize: number): Prompt[] | null {
  const text = (item: string): Prompt => ({ text: item, ids: null, scan: scanText(item, blockSize) });
  if (typeof value === 'string') return [text(value)];
  if (isIds(value)) return [idsPrompt(value, blockSize)];
  if (!Array.isArray(value)) return null;
  const prompts: Prompt[] = [];
  for (const item of value as unknown[]) {
    if (typeof item === 'string') prompts.push(text(item));
    else if (isIds(item)) prompts.push(idsPrompt(item, blockSize));
    else return null;
  }
  return prompts;
}

interface Accepted {
  params: Params;
  prompts: Prompt[];
}

function accept(body: Body, engine: Engine): Accepted | Refused {
  const { options } = engine;
  const early = checkStreamOptions(body) ?? checkFields(body, COMPLETION_FIELDS, 'prompt');
  if (early !== null) return early;
  const unknown = checkModel(body, options);
  if (unknown !== null) return refusal(404, 'NotFoundError', `The model \`${unknown}\` does not exist.`, 'model');
  if (typeof body.suffix === 'string' && body.suffix !== '') return badRequest('suffix is not currently supported');
  const prompts = readPrompts(body.prompt, options.blockSize);
  if (prompts === null) return badRequest('Either prompt or prompt_embeds must be provided and non-empty.');
  if (prompts.length === 0) return badRequest('You must pass at least one prompt');
  const params = readParams({ ...body, max_tokens: body.max_tokens ?? MAX_TOKENS_DEFAULT }, options);
  if ('status' in params) return params;
  for (const prompt of prompts) {
    if (prompt.scan.count === 0) return badRequest('The decoder prompt cannot be empty');
    const refused = checkLength(prompt.scan, params.maxTokens, options.maxModelLen);
    if (refused !== null) return refused;
  }
  return { params, prompts };
}

interface Context {
  engine: Engine;
  params: Params;
  style: UsageStyle;
  echoes: readonly string[];
  promptIds: readonly (readonly number[])[];
  head: string;
  finishTail: string;
}

function logprobsOf(context: Context, choice: Choice, tokens: readonly string[], from: number): string {
  const { params } = context;
  if (params.logprobs === null || tokens.length === 0) return 'null';
  const endMarker = choice.finish === 'stop' && choice.stopReason === null;
  return completionLogprobs({ tokens, from, endMarker, alternatives: params.logprobs }, 0);
}

function idsOf(context: Context, tokens: readonly string[]): string {
  return context.params.returnTokenIds ? `[${tokens.map((token) => tokenId(token)).join(',')}]` : 'null';
}

function promptIdsOf(context: Context, choice: Choice): string {
  return context.params.returnTokenIds ? `[${(context.promptIds[choice.index] ?? []).join(',')}]` : 'null';
}

function frame(context: Context, choice: Choice, part: Part): string {
  const { params, style } = context;
  const { generated } = choice.sequence;
  const first = generated === 1;
  const text = first ? (context.echoes[choice.index] ?? '') + part.text : part.text;
  const logprobs = logprobsOf(context, choice, part.tokens, part.from);
  const finish = choice.finish === null ? 'null' : `"${choice.finish}"`;
  const usage =
    params.usage === 'continuous' ? `,"usage":${runningUsage(style, choice.prompt.count, generated, 0)}` : '';
  const tail = choice.finish === null ? '' : context.finishTail;
  const promptIds = first ? promptIdsOf(context, choice) : 'null';
  return `data: ${context.head}{"index":${choice.index},"text":${JSON.stringify(text)},"logprobs":${logprobs},"finish_reason":${finish},"stop_reason":${JSON.stringify(choice.stopReason)},"prompt_token_ids":${promptIds},"token_ids":${idsOf(context, part.tokens)}}]${usage}${tail}}\n\n`;
}

function jsonChoice(context: Context, choice: Choice): string {
  const text = (context.echoes[choice.index] ?? '') + choice.text;
  const logprobs = logprobsOf(context, choice, choice.tokens, 0);
  return `{"index":${choice.index},"text":${JSON.stringify(text)},"logprobs":${logprobs},"finish_reason":"${choice.finish ?? 'stop'}","stop_reason":${JSON.stringify(choice.stopReason)},"token_ids":${idsOf(context, choice.tokens)},"prompt_logprobs":null,"prompt_token_ids":${promptIdsOf(context, choice)},"routed_experts":null}`;
}

function createFormat(given: { engine: Engine; accepted: Accepted; id: string; body: Body }): Format {
  const { engine, accepted, id, body } = given;
  const echo = body.echo === true;
  const { params, prompts } = accepted;
  const created = Math.floor(Date.now() / 1000);
  const model = JSON.stringify(answeredModel(body, engine.options));
  const head = `{"id":${JSON.stringify(id)},"object":"text_completion","created":${created},"model":${model},"choices":[`;
  const fingerprint = `,"system_fingerprint":"${engine.fingerprint}"`;
  const perChoice = <T>(read: (prompt: Prompt) => T): T[] =>
    prompts.flatMap((prompt) => Array.from({ length: params.n }, () => read(prompt)));
  const context: Context = {
    engine,
    params,
    style: { details: engine.options.promptTokensDetails, reasoning: false, chat: false },
    echoes: echo ? perChoice((prompt) => prompt.text) : [],
    promptIds: params.returnTokenIds ? perChoice((prompt) => prompt.ids ?? encode(prompt.text)) : [],
    head,
    finishTail: params.usage === 'none' ? fingerprint : '',
  };
  return {
    opening: () => [],
    frame: (choice, part) => frame(context, choice, part),
    usageFrame: (totals) => `data: ${head}],"usage":${finalUsage(context.style, totals)}${fingerprint}}\n\n`,
    body: (choices, totals) =>
      `${head}${choices.map((choice) => jsonChoice(context, choice)).join(',')}],"service_tier":null${fingerprint},"usage":${jsonUsage(context.style, totals)},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,
  };
}

function choicesOf(given: { engine: Engine; accepted: Accepted; id: string; knobs: Knobs }): Choice[] {
  const { engine, accepted, knobs } = given;
  const { params, prompts } = accepted;
  return prompts.flatMap((prompt, promptIndex) => {
    const { cachedTokens } = engine.cache.use(prompt.scan, params.cacheSalt);
    const room = params.maxTokens ?? engine.options.maxModelLen - prompt.scan.count;
    return Array.from({ length: params.n }, (_, copy) => {
      const index = promptIndex * params.n + copy;
      const base = params.seed ?? Math.floor(Math.random() * 0x1_0000_0000);
      const seed = hashText(
        params.temperature === 0 ? String(prompt.scan.hash) : `${base} ${prompt.scan.hash} ${copy}`,
      );
      const prose = createAnswer(seed, true);
      const fixed = textFor(knobs, index);
      const material = fixed === null ? { ...prose, toolDeltas: null } : fixedMaterial(splitTokens(fixed), prose.next);
      const { minTokens, ignoreEos } = params;
      const script = createScript({ material, knobs, seed, room, minTokens, ignoreEos, thinks: false });
      return createChoice({
        index,
        id: `${given.id}-${promptIndex}`,
        script,
        prompt: prompt.scan,
        cachedTokens,
        params,
        knobs,
      });
    });
  });
}

/** Answers POST /v1/completions. */
export function answerCompletion(engine: Engine, exchange: Exchange, body: Body): void {
  const knobs = mergeKnobs(engine.options.knobs, body.standin);
  const accepted = accept(body, engine);
  if ('status' in accepted) {
    exchange.json(accepted.status, accepted.body);
    return;
  }
  const { params, prompts } = accepted;
  const requestId = exchange.requestId ?? (typeof body.request_id === 'string' ? body.request_id : randomHex());
  const id = `cmpl-${requestId}`;
  const format = createFormat({ engine, accepted, id, body });
  const choices = choicesOf({ engine, accepted, id, knobs });
  const promptTokens = prompts.reduce((sum, prompt) => sum + prompt.scan.count, 0);
  // vLLM reports the cached tokens of the last prompt only, and none that were created.
  const cacheUse = { cachedTokens: choices.at(-1)?.sequence.cachedTokens ?? 0, createdTokens: 0 };
  startRun({ engine, exchange, params, knobs, format, choices, promptTokens, cacheUse });
}
