import { answerChat } from './chat.ts';
import { encodeMessages } from './conversation.ts';
import { invalidBody, refusal, type Finding } from './errors.ts';
import { type Exchange, randomHex } from './http.ts';
import { chatRequest } from './messages-request.ts';
import { checkModel, type Body } from './params.ts';
import type { Engine } from './run.ts';

/** Answers `/v1/messages` as vLLM 0.29 does: by a chat request, whose answer is written in Anthropic's form. */

/** Fields that are read from a chat's answers, which the stand-in has printed itself. */
interface ChatUsage {
  prompt_tokens: number;
  completion_tokens?: number | null;
  prompt_tokens_details?: { cached_tokens?: number | null; created_cache_tokens?: number | null } | null;
}

interface ChatCall {
  id?: string | null;
  function?: { name?: string | null; arguments?: string | null } | null;
}

interface ChatSaid {
  reasoning?: string | null;
  content?: string | null;
  tool_calls?: readonly ChatCall[] | null;
}

interface ChatEnd {
  finish_reason: string | null;
  stop_reason?: unknown;
}

interface ChatChunk {
  id: string;
  model: string;
  choices?: readonly (ChatEnd & { delta: ChatSaid })[];
  usage?: ChatUsage | null;
}

interface ChatAnswer {
  id: string;
  model: string;
  choices: readonly (ChatEnd & { message: ChatSaid })[];
  usage: ChatUsage;
}

const noCounts: ChatUsage = { prompt_tokens: 0 };

const eventOf = (type: string, more: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
const stopReasons: Readonly<Record<string, string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
};

/** The cached part of a prompt is reported beside the rest of it, where it is known. */
function usageOf({
  prompt_tokens: prompt,
  completion_tokens: output,
  prompt_tokens_details: details,
}: ChatUsage): object {
  const read = details?.cached_tokens ?? null;
  const written = details?.created_cache_tokens ?? null;
  return {
    input_tokens: Math.max(0, prompt - (read ?? 0) - (written ?? 0)),
    output_tokens: output ?? 0,
    ...(written !== null && { cache_creation_input_tokens: written }),
    ...(read !== null && { cache_read_input_tokens: read }),
  };
}

function endOf(finish: string | null, stop: unknown): object {
  if (typeof stop === 'string') return { stop_reason: 'stop_sequence', stop_sequence: stop };
  return { stop_reason: stopReasons[finish ?? 'stop'] ?? null };
}

function contentOf({ reasoning, content, tool_calls: calls }: ChatSaid): object[] {
  const blocks: object[] = [];
  if (hasText(reasoning)) blocks.push({ type: 'thinking', thinking: reasoning, signature: randomHex(16) });
  if (hasText(content)) blocks.push({ type: 'text', text: content });
  for (const { id, function: called } of calls ?? []) {
    const input: unknown = JSON.parse(called?.arguments ?? '{}');
    blocks.push({ type: 'tool_use', id, name: called?.name, input });
  }
  return blocks.length === 0 ? [{ type: 'text', text: '' }] : blocks;
}

const hasText = (text: string | null | undefined): text is string => typeof text === 'string' && text !== '';

function messageOf({ id, model, choices, usage }: ChatAnswer): object {
  const [choice] = choices;
  if (choice === undefined) throw new Error('a chat has no choice');
  const { message, finish_reason: finish, stop_reason: stop } = choice;
  const end = Object.entries(endOf(finish, finish === 'stop' ? stop : null)).filter(([, value]) => value !== null);
  return {
    id,
    type: 'message',
    role: 'assistant',
    content: contentOf(message),
    model,
    ...Object.fromEntries<unknown>(end),
    usage: usageOf(usage),
  };
}

/** The frames of a chat as events, one block open at a time. */
class EventPrinter {
  #begun = false;
  #broken = false;
  #index = 0;
  #open: string | null = null;
  #finish: string | null = null;
  #stop: unknown = null;

  /** @param frame one of a chat, its terminator included */
  print(frame: string): string {
    if (this.#broken) return '';
    const data = frame.slice('data:'.length).trim();
    if (data === '[DONE]') return this.#close() + eventOf('message_stop');
    let chunk: ChatChunk;
    try {
      chunk = JSON.parse(data) as ChatChunk;
    } catch {
      return this.#break();
    }
    return chunk.choices === undefined ? this.#break() : this.#chunk(chunk);
  }

  #break(): string {
    this.#broken = true;
    const message = '1 validation error for ChatCompletionStreamResponse';
    return eventOf('error', { error: { type: 'internal_error', message } });
  }

  #chunk({ id, model, choices = [], usage }: ChatChunk): string {
    if (!this.#begun) {
      this.#begun = true;
      const counts = usageOf(usage ?? noCounts);
      const said = { content: [], model, stop_reason: null, stop_sequence: null, usage: counts };
      return eventOf('message_start', { message: { id, type: 'message', role: 'assistant', ...said } });
    }
    const [choice] = choices;
    if (choice === undefined) {
      const stop = this.#finish === 'stop' ? this.#stop : null;
      return (
        this.#close() +
        eventOf('message_delta', { delta: endOf(this.#finish, stop), usage: usageOf(usage ?? noCounts) })
      );
    }
    if (choice.finish_reason !== null) {
      this.#finish = choice.finish_reason;
      this.#stop = choice.stop_reason;
    }
    return this.#delta(choice.delta);
  }

  #delta({ reasoning, content, tool_calls: calls }: ChatSaid): string {
    let out = '';
    if (hasText(reasoning))
      out += this.#block('thinking', { thinking: '' }, { type: 'thinking_delta', thinking: reasoning });
    if (hasText(content)) out += this.#block('text', { text: '' }, { type: 'text_delta', text: content });
    for (const { id, function: called } of calls ?? []) {
      if (hasText(id) && hasText(called?.name)) {
        out += this.#close();
        out += this.#start('tool_use', { id, name: called.name, input: {} });
      }
      const json = called?.arguments;
      if (hasText(json)) out += this.#text({ type: 'input_json_delta', partial_json: json });
    }
    return out;
  }

  #block(type: string, empty: object, delta: object): string {
    const before = this.#open === type ? '' : this.#close() + this.#start(type, empty);
    return before + this.#text(delta);
  }

  #start(type: string, block: object): string {
    this.#open = type;
    return eventOf('content_block_start', { content_block: { type, ...block }, index: this.#index });
  }

  #text(delta: object): string {
    return eventOf('content_block_delta', { delta, index: this.#index });
  }

  #close(): string {
    if (this.#open === null) return '';
    const signed = this.#open === 'thinking' ? this.#text({ type: 'signature_delta', signature: randomHex(16) }) : '';
    const out = signed + eventOf('content_block_stop', { index: this.#index });
    this.#open = null;
    this.#index += 1;
    return out;
  }
}

/** Errors of vLLM's validation keep OpenAI's envelope, every other error gets Anthropic's. */
function refusedText(body: string): string {
  const { error } = JSON.parse(body) as { error: { type: string; message: string } };
  return JSON.stringify({ type: 'error', error: { type: error.type, message: error.message } });
}

function missing(body: Body, names: readonly string[]): string | null {
  const findings = names
    .filter((name) => body[name] === undefined || body[name] === null)
    .map((name): Finding => ({ type: 'missing', loc: ['body', name], msg: 'Field required', input: body }));
  return findings.length === 0 ? null : invalidBody(findings).body;
}

export function answerMessages(engine: Engine, exchange: Exchange, body: Body): void {
  const refused = missing(body, ['messages', 'max_tokens']);
  if (refused !== null) {
    exchange.json(400, refused);
    return;
  }
  const printer = new EventPrinter();
  const told: Exchange = {
    ...exchange,
    json(status, text) {
      let out = text;
      try {
        out = status === 200 ? JSON.stringify(messageOf(JSON.parse(text) as ChatAnswer)) : refusedText(text);
      } catch {
        // Garbage stays what it is.
      }
      exchange.json(status, out);
    },
    frame(text) {
      const events = printer.print(text);
      if (events !== '') exchange.frame(events);
    },
  };
  answerChat(engine, told, chatRequest(body));
}

export function answerCountTokens(engine: Engine, exchange: Exchange, body: Body): void {
  const refused = missing(body, ['messages']);
  const unknown = checkModel(body, engine.options);
  if (refused !== null) exchange.json(400, refused);
  else if (unknown !== null) {
    const { body: text } = refusal(404, 'NotFoundError', `The model \`${unknown}\` does not exist.`, 'model');
    exchange.json(404, refusedText(text));
  } else {
    const { messages } = chatRequest(body);
    const tokens = encodeMessages(Array.isArray(messages) ? messages : [], engine.options).length;
    exchange.json(200, JSON.stringify({ input_tokens: tokens, context_management: { original_input_tokens: tokens } }));
  }
}
