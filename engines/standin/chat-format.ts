import { encodeMessages } from './conversation.ts';
import { randomHex } from './http.ts';
import { chatLogprobs } from './logprobs.ts';
import { answeredModel, type Body, type Params } from './params.ts';
import type { Choice, Engine, Format, Part } from './run.ts';
import { tokenId } from './tokenizer.ts';
import type { ToolCall } from './tools.ts';
import { finalUsage, jsonUsage, runningUsage, type UsageStyle } from './usage.ts';

/** Prints one chat answer as vLLM 0.29 prints it: its members, their order, its nulls. */
interface Printer {
  /** The answer's id, which is also what `/abort_requests` takes. */
  id: string;
  /** The call of each choice, or null; filled in by whoever decides them. */
  calls: (ToolCall | null)[];
  format: Format;
}

interface Context {
  engine: Engine;
  params: Params;
  body: Body;
  calls: (ToolCall | null)[];
  style: UsageStyle;
  /** True when thoughts are hidden from the client. */
  hidden: boolean;
  head: string;
  /** The end of the finish frame: the fingerprint sits there only when no usage chunk follows. */
  finishTail: string;
}

function finishReason(context: Context, choice: Choice): string {
  const call = context.calls[choice.index];
  const called = call !== undefined && call !== null && choice.finish === 'stop';
  return called && call.asked !== 'named' ? 'tool_calls' : (choice.finish ?? 'stop');
}

function delta(context: Context, choice: Choice, part: Part): string | null {
  if (part.tool !== null) return part.tool;
  const { text, reasoning, thinking } = part;
  const ended = choice.finish !== null;
  if (context.hidden) {
    if (text !== '') return `{"content":${JSON.stringify(text)},"reasoning":null}`;
  } else if (reasoning !== '') {
    const content = text === '' ? '' : `"content":${JSON.stringify(text)},`;
    return `{${content}"reasoning":${JSON.stringify(reasoning)}}`;
  } else if (text !== '') return `{"content":${JSON.stringify(text)}}`;
  if (!ended) return context.params.returnTokenIds ? '{}' : null;
  if (thinking && !context.hidden) return '{"reasoning":""}';
  return choice.finish === 'abort' && !context.hidden ? '{"content":""}' : '{}';
}

function idsOf(tokens: readonly string[]): string {
  return `[${tokens.map((token) => tokenId(token)).join(',')}]`;
}

function frame(context: Context, choice: Choice, part: Part): string | null {
  const change = delta(context, choice, part);
  if (change === null) return null;
  const { params, style } = context;
  let logprobs = 'null';
  if (params.logprobs !== null && part.tokens.length > 0) {
    const endMarker = choice.finish === 'stop' && choice.stopReason === null;
    logprobs = chatLogprobs({ tokens: part.tokens, from: part.from, endMarker, alternatives: params.logprobs });
  }
  const ids = params.returnTokenIds ? idsOf(part.tokens) : 'null';
  const end =
    choice.finish === null
      ? 'null'
      : `"${finishReason(context, choice)}","stop_reason":${JSON.stringify(choice.stopReason)}`;
  const usage =
    params.usage === 'continuous'
      ? `,"usage":${runningUsage(style, choice.prompt.count, choice.sequence.generated, choice.thoughts)}`
      : '';
  const tail = choice.finish === null ? '' : context.finishTail;
  return `data: ${context.head}{"index":${choice.index},"delta":${change},"logprobs":${logprobs},"finish_reason":${end},"token_ids":${ids}}]${usage}${tail}}\n\n`;
}

function opening(context: Context, choices: readonly Choice[]): string[] {
  const { params, style, body } = context;
  return choices.map((choice) => {
    const usage = params.usage === 'continuous' ? `,"usage":${runningUsage(style, choice.prompt.count, 0, 0)}` : '';
    const messages = Array.isArray(body.messages) ? body.messages : [];
    const ids = params.returnTokenIds ? `[${encodeMessages(messages, context.engine.options).join(',')}]` : 'null';
    return `data: ${context.head}{"index":${choice.index},"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]${usage},"prompt_token_ids":${ids},"prompt_text":null}\n\n`;
  });
}

function message(context: Context, choice: Choice): string {
  const call = choice.finish === 'stop' ? (context.calls[choice.index] ?? null) : null;
  const reasoning = choice.reasoning !== '' && !context.hidden ? JSON.stringify(choice.reasoning) : 'null';
  const content =
    choice.text === '' && (choice.thoughts > 0 || call?.asked === 'auto') ? 'null' : JSON.stringify(choice.text);
  const calls =
    call === null
      ? ''
      : `"tool_calls":[{"id":"${call.id}","type":"function","function":{"name":${JSON.stringify(call.name)},"arguments":${JSON.stringify(call.arguments)}}}],`;
  return `{"role":"assistant","content":${content},"refusal":null,"annotations":null,"audio":null,"function_call":null,${calls}"reasoning":${reasoning}}`;
}

function jsonChoice(context: Context, choice: Choice): string {
  const { params } = context;
  let logprobs = 'null';
  if (params.logprobs !== null) {
    const endMarker = choice.finish === 'stop' && choice.stopReason === null;
    logprobs = chatLogprobs({ tokens: choice.tokens, from: 0, endMarker, alternatives: params.logprobs });
  }
  const ids = params.returnTokenIds ? idsOf(choice.tokens) : 'null';
  return `{"index":${choice.index},"message":${message(context, choice)},"logprobs":${logprobs},"finish_reason":"${finishReason(context, choice)}","stop_reason":${JSON.stringify(choice.stopReason)},"token_ids":${ids},"routed_experts":null}`;
}

/** A printer for one request. */
export function createPrinter(given: {
  engine: Engine;
  body: Body;
  params: Params;
  requestId: string | null;
}): Printer {
  const { engine, params, body } = given;
  const id = `chatcmpl-${given.requestId ?? randomHex()}`;
  const created = Math.floor(Date.now() / 1000);
  const start = (object: string): string =>
    `{"id":${JSON.stringify(id)},"object":"${object}","created":${created},"model":${JSON.stringify(answeredModel(body, engine.options))},"choices":[`;
  const fingerprint = `,"system_fingerprint":"${engine.fingerprint}"`;
  const context: Context = {
    engine,
    params,
    body,
    calls: [],
    style: {
      details: engine.options.promptTokensDetails,
      reasoning: engine.options.reasoningParser !== null,
      chat: true,
    },
    hidden: body.include_reasoning === false,
    head: start('chat.completion.chunk'),
    finishTail: params.usage === 'none' ? fingerprint : '',
  };
  const promptIds = (): string => {
    const messages = Array.isArray(body.messages) ? body.messages : [];
    return params.returnTokenIds ? `[${encodeMessages(messages, engine.options).join(',')}]` : 'null';
  };
  return {
    id,
    calls: context.calls,
    format: {
      opening: (choices) => opening(context, choices),
      frame: (choice, part) => frame(context, choice, part),
      usageFrame: (totals) => `data: ${context.head}],"usage":${finalUsage(context.style, totals)}${fingerprint}}\n\n`,
      body: (choices, totals) =>
        `${start('chat.completion')}${choices.map((choice) => jsonChoice(context, choice)).join(',')}],"service_tier":null${fingerprint},"usage":${jsonUsage(context.style, totals)},"prompt_logprobs":null,"prompt_token_ids":${promptIds()},"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,
    },
  };
}
