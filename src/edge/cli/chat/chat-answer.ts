import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI, { APIConnectionError, APIError } from 'openai';
import { z } from 'zod';
import type { ClientConfig } from '#base/config/config.ts';
import { formatUsd, PICO_DIGITS } from '#base/money.ts';
import {
  type ApiClient,
  codeOf,
  elsewhereText,
  FailedError,
  keyOf,
  parseAnswer,
  refusalText,
  strangerText,
  unreachableText,
} from '#edge/cli/shell/shell.ts';
import type { Content } from './chat-input.ts';

/** Asks a model once through the openai package, and reads the cost that the gateway billed. */

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: Content;
}

export interface Question {
  readonly model: string;
  readonly messages: readonly Message[];
  readonly maxTokens: number | null;
  readonly temperature: number | null;
  /** Most USD that the answer may cost, as typed. */
  readonly maxCost: string | null;
  /** True if another model may answer when this model cannot. */
  readonly allowsFallback: boolean;
}

/** Receives the answer as it arrives. */
export interface Listener {
  reasoning(text: string): void;
  content(text: string): void;
}

export interface Answer {
  readonly requestId: string | null;
  readonly model: string;
  readonly content: string;
  readonly reasoning: string;
  readonly finishReason: string | null;
  /** True if the user ended the answer. */
  readonly isStopped: boolean;
  readonly bill: Bill | null;
}

export interface Bill {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Cost in USD, as an exact decimal. */
  readonly cost: string;
}

const delta = z.looseObject({
  content: z.string().nullish(),
  reasoning: z.string().nullish(),
  reasoning_content: z.string().nullish(),
});

/** Upper bound for plausible costs, in USD: more than any answer costs. */
const costMax = 1_000_000;
const tokens = z.int().min(0);
const usage = z.looseObject({
  prompt_tokens: tokens,
  completion_tokens: tokens.nullish(),
  cost: z.number().min(0).max(costMax),
});

const frame = z.looseObject({
  model: z.string(),
  choices: z.array(z.looseObject({ delta: delta.nullish(), finish_reason: z.string().nullish() })).default([]),
  usage: z.unknown().optional(),
});

export interface Asker {
  readonly config: ClientConfig;
  readonly api: ApiClient;
}

/**
 * Asks the model, and passes the answer to the listener as it arrives.
 * @throws FailedError with the gateway's message
 */
export async function askModel(
  { config, api }: Asker,
  question: Question,
  listener: Listener,
  signal: AbortSignal,
): Promise<Answer> {
  const draft: Draft = { model: question.model, content: '', reasoning: '', finishReason: null, bill: null };
  let requestId: string | null = null;
  try {
    const { data: stream, request_id: id } = await open(config, question, signal);
    requestId = id;
    let frames = 0;
    for await (const chunk of stream) {
      frames += 1;
      take(config, draft, chunk, listener);
    }
    // The package ends without an error when the connection breaks.
    if (!signal.aborted && draft.finishReason === null) {
      throw frames === 0 ? new FailedError(strangerText(config)) : brokenOff(config, requestId);
    }
  } catch (error) {
    if (!signal.aborted) throw failureOf(config, error, requestId);
  }
  const isStopped = signal.aborted && draft.bill === null;
  const bill = draft.bill ?? (requestId === null ? null : await readBill(api, requestId));
  return { ...draft, requestId, isStopped, bill };
}

type Draft = { -readonly [Member in keyof Omit<Answer, 'requestId' | 'isStopped'>]: Answer[Member] };

/** Matches headers that the package sets itself. Headers from OPENAI_CUSTOM_HEADERS are for another server. */
const ofPackage = /^(?:accept|content-type|user-agent|x-stainless-[a-z-]+)$/;

/** Sends the package's requests with these headers and without headers from the environment. */
const fetchWith =
  (headers: Readonly<Record<string, string>>) =>
  (url: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const made = [...new Headers(init.headers)].filter(([name]) => ofPackage.test(name));
    return fetch(url, { ...init, headers: { ...Object.fromEntries(made), ...headers } });
  };

function open(config: ClientConfig, question: Question, signal: AbortSignal) {
  const apiKey = keyOf(config);
  const cap = question.maxCost === null ? {} : { 'x-headgate-max-cost': question.maxCost };
  const permission = question.allowsFallback ? { 'x-headgate-allow-fallback': 'true' } : {};
  const client = new OpenAI({
    apiKey,
    fetch: fetchWith({ authorization: `Bearer ${apiKey}`, ...cap, ...permission }),
    baseURL: `${config.url.replace(/\/+$/, '')}/v1`,
    // A model may take longer to start than any limit here; the user can press Ctrl-C. Errors are shown at once,
    // without retries.
    timeout: 2_147_483_647,
    maxRetries: 0,
    organization: null,
    project: null,
    adminAPIKey: null,
    webhookSecret: null,
    logLevel: 'off',
    // The prompt is never sent to an address that nobody named.
    fetchOptions: { redirect: 'manual' },
  });
  return client.chat.completions.create(bodyOf(question), { signal }).withResponse();
}

/** @throws FailedError for a chunk that no gateway sends */
function take(config: ClientConfig, draft: Draft, chunk: unknown, listener: Listener): void {
  const parsed = frame.safeParse(chunk);
  if (!parsed.success) throw new FailedError(strangerText(config));
  const { model, choices, usage: billed } = parsed.data;
  const [choice] = choices;
  draft.model = model;
  draft.finishReason = choice?.finish_reason ?? draft.finishReason;
  draft.bill = billOf(billed) ?? draft.bill;
  tell(draft, choice?.delta ?? {}, listener);
}

function tell(draft: Draft, part: z.output<typeof delta>, listener: Listener): void {
  const thought = part.reasoning ?? part.reasoning_content ?? '';
  const said = part.content ?? '';
  draft.reasoning += thought;
  draft.content += said;
  if (thought !== '') listener.reasoning(thought);
  if (said !== '') listener.content(said);
}

const wantsCost = { usage: { include: true } };

/** Returns the body of the request, which also asks for the cost: the gateway adds the cost to the usage on request. */
function bodyOf({
  model,
  messages,
  maxTokens,
  temperature,
}: Question): OpenAI.Chat.ChatCompletionCreateParamsStreaming {
  const body = {
    model,
    messages: messages as OpenAI.Chat.ChatCompletionMessageParam[],
    stream: true as const,
    ...(maxTokens !== null && { max_completion_tokens: maxTokens }),
    ...(temperature !== null && { temperature }),
  };
  // OpenAI's types have no such field.
  return { ...body, ...wantsCost };
}

function billOf(value: unknown): Bill | null {
  const parsed = usage.safeParse(value);
  if (!parsed.success) return null;
  const { prompt_tokens: inputTokens, completion_tokens: outputTokens, cost } = parsed.data;
  const pico = BigInt(Math.round(cost * 10 ** PICO_DIGITS));
  return { inputTokens, outputTokens: outputTokens ?? 0, cost: formatUsd(pico) };
}

const record = async () => (await import('#edge/contract/requests.ts')).usageRequestSchema;
const lookMs = 100;
const looksMax = 50;

/** Reads the cost of a request that ended early, which is recorded a moment later. Null if no record appears. */
async function readBill(api: ApiClient, requestId: string): Promise<Bill | null> {
  for (let look = 0; look < looksMax; look += 1) {
    const asked = api.call('GET', `/v1/usage/requests/${requestId}`).then((answer) => parseAnswer(record, answer));
    const found = await asked.catch(() => null);
    if (found !== null) return { inputTokens: found.input_tokens, outputTokens: found.output_tokens, cost: found.cost };
    await sleep(lookMs);
  }
  return null;
}

/** Fields of the package's errors that their types leave out. */
const refusal = z.object({
  status: z.number().nullish(),
  requestID: z.string().nullish(),
  message: z.string(),
  headers: z.instanceof(Headers).nullish().catch(null),
  error: z.looseObject({ message: z.string(), code: z.string().nullish() }).nullish().catch(null),
});

const brokenOff = ({ url }: ClientConfig, requestId: string | null): FailedError =>
  new FailedError(`the answer of ${url} broke off; the output is incomplete`, { requestId });

/** @param began the id of the request, once its answer has begun */
function failureOf(config: ClientConfig, error: unknown, began: string | null): unknown {
  if (error instanceof APIConnectionError) {
    const cause = error.cause instanceof Error ? (error.cause.cause ?? error.cause) : error.cause;
    return new FailedError(unreachableText(config, cause ?? error), { code: 'unreachable' });
  }
  // Thrown by the package's parser, and by the connection below the package.
  if (error instanceof SyntaxError) return new FailedError(strangerText(config), { requestId: began });
  if (error instanceof TypeError && error.message === 'terminated') return brokenOff(config, began);
  const parsed = error instanceof APIError ? refusal.safeParse(error) : null;
  return parsed?.success === true ? refusedBy(config, parsed.data, began) : error;
}

/** Returns the gateway's own message: the package puts the status before the message. */
function refusedBy(
  config: ClientConfig,
  { status, requestID, message, error: said, headers }: z.output<typeof refusal>,
  began: string | null,
): FailedError {
  const known = status ?? 0;
  if (known >= 300 && known < 400) {
    return new FailedError(elsewhereText(config, headers?.get('location')), { code: 'redirected' });
  }
  const body = JSON.stringify({ error: { message: said?.message ?? message, code: said?.code } });
  const asked = { method: 'POST', path: '/v1/chat/completions' };
  return new FailedError(refusalText(config, { ...asked, status: known, body }), {
    requestId: requestID ?? began,
    code: codeOf(body),
  });
}
