import OpenAI, { APIConnectionError, APIError } from 'openai';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { ClientConfig } from '#base/config.ts';
import { formatUsd, PICO_DIGITS } from '#base/money.ts';
import { type ApiClient, keyOf, refusalText, unreachableText } from './api-client.ts';
import type { Content } from './chat-input.ts';
import { FailedError } from './errors.ts';

/** One answer of a model, by the openai package, and what the gateway billed for it. */

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: Content;
}

export interface Question {
  readonly model: string;
  readonly messages: readonly Message[];
  readonly maxTokens: number | null;
  readonly temperature: number | null;
  /** USD, as it was typed. */
  readonly maxCost: string | null;
}

/** Told as it comes. */
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
  /** Whether it was ended by whoever asked. */
  readonly isStopped: boolean;
  readonly bill: Bill | null;
}

export interface Bill {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** USD, an exact decimal. */
  readonly cost: string;
}

const delta = z.looseObject({
  content: z.string().nullish(),
  reasoning: z.string().nullish(),
  reasoning_content: z.string().nullish(),
});

const usage = z.looseObject({ prompt_tokens: z.number(), completion_tokens: z.number().nullish(), cost: z.number() });

export interface Asker {
  readonly config: ClientConfig;
  readonly api: ApiClient;
}

/**
 * Asks, and tells the listener as it comes.
 * @throws FailedError with what the gateway said
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
    for await (const chunk of stream) take(draft, chunk, listener);
  } catch (error) {
    if (!signal.aborted) throw failureOf(config, error);
  }
  const isStopped = signal.aborted && draft.bill === null;
  const bill = draft.bill ?? (requestId === null ? null : await readBill(api, requestId));
  return { ...draft, requestId, isStopped, bill };
}

type Draft = { -readonly [Member in keyof Omit<Answer, 'requestId' | 'isStopped'>]: Answer[Member] };

function open(config: ClientConfig, question: Question, signal: AbortSignal) {
  const client = new OpenAI({
    apiKey: keyOf(config),
    baseURL: `${config.url.replace(/\/+$/, '')}/v1`,
    // A model that starts takes longer than any limit here; Ctrl-C ends it. A refusal is shown, not waited out.
    timeout: 2_147_483_647,
    maxRetries: 0,
    organization: null,
    project: null,
    logLevel: 'off',
  });
  const headers = question.maxCost === null ? {} : { 'x-headgate-max-cost': question.maxCost };
  return client.chat.completions.create(bodyOf(question), { signal, headers }).withResponse();
}

function take(draft: Draft, chunk: OpenAI.Chat.ChatCompletionChunk, listener: Listener): void {
  const [choice] = chunk.choices;
  draft.model = chunk.model;
  draft.finishReason = choice?.finish_reason ?? draft.finishReason;
  draft.bill = billOf(chunk.usage) ?? draft.bill;
  const part = delta.safeParse(choice?.delta);
  if (!part.success) return;
  const thought = part.data.reasoning ?? part.data.reasoning_content ?? '';
  const said = part.data.content ?? '';
  draft.reasoning += thought;
  draft.content += said;
  if (thought !== '') listener.reasoning(thought);
  if (said !== '') listener.content(said);
}

const wantsCost = { usage: { include: true } };

/** With the usage that the gateway adds for whoever asks for it: what it cost. */
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
  // OpenAI has no such member.
  return { ...body, ...wantsCost };
}

function billOf(value: unknown): Bill | null {
  const parsed = usage.safeParse(value);
  if (!parsed.success) return null;
  const { prompt_tokens: inputTokens, completion_tokens: outputTokens, cost } = parsed.data;
  const pico = BigInt(Math.round(cost * 10 ** PICO_DIGITS));
  return { inputTokens, outputTokens: outputTokens ?? 0, cost: formatUsd(pico) };
}

const record = z.looseObject({ input_tokens: z.number(), output_tokens: z.number(), cost: z.string() });
const lookMs = 100;
const looksMax = 50;

/** What the books say of a request that ended early; they know it a moment later. Null where they do not say. */
async function readBill(api: ApiClient, requestId: string): Promise<Bill | null> {
  for (let look = 0; look < looksMax; look += 1) {
    const answer = await api.call('GET', `/v1/usage/requests/${requestId}`).catch(() => null);
    const parsed = record.safeParse(answer);
    if (parsed.success) {
      const { input_tokens: inputTokens, output_tokens: outputTokens, cost } = parsed.data;
      return { inputTokens, outputTokens, cost };
    }
    await sleep(lookMs);
  }
  return null;
}

/** Of the package's errors, which say more than their types. */
const refusal = z.object({
  status: z.number().nullish(),
  requestID: z.string().nullish(),
  message: z.string(),
  error: z.looseObject({ message: z.string() }).nullish().catch(null),
});

function failureOf(config: ClientConfig, error: unknown): unknown {
  if (error instanceof APIConnectionError) {
    const cause = error.cause instanceof Error ? (error.cause.cause ?? error.cause) : error.cause;
    const said = cause instanceof Error ? cause.message : error.message;
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : said;
    return new FailedError(unreachableText(config, code));
  }
  const parsed = error instanceof APIError ? refusal.safeParse(error) : null;
  if (parsed?.success !== true) return error;
  // The gateway's own sentence; the package puts the status before it.
  const { status, requestID, message, error: said } = parsed.data;
  const body = JSON.stringify({ error: { message: said?.message ?? message } });
  return new FailedError(refusalText(config, { status: status ?? 0, path: '/v1/chat/completions', body }), {
    requestId: requestID ?? null,
  });
}
