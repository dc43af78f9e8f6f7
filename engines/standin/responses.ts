import { accept, answerChat } from './chat.ts';
import { encodeMessages } from './conversation.ts';
import { badRequest, invalidBody, type Refused } from './errors.ts';
import { type Exchange, randomHex } from './http.ts';
import type { Body } from './params.ts';
import { chatOfResponses, hasGrammar, type ShownCalls, shownCallsOf } from './responses-request.ts';
import type { Engine } from './run.ts';

/** Answers `/v1/responses` as vLLM 0.32 does: by a chat request, whose answer is written in the form of responses. */

/** Fields that are read from a chat's answers, which the stand-in has printed itself. */
interface ChatUsage {
  prompt_tokens: number;
  completion_tokens?: number | null;
  prompt_tokens_details?: { cached_tokens?: number | null; created_cache_tokens?: number | null } | null;
  completion_tokens_details?: { reasoning_tokens?: number | null } | null;
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

interface ChatChunk {
  model: string;
  choices?: readonly { finish_reason: string | null; delta?: ChatSaid; message?: ChatSaid }[];
  usage?: ChatUsage | null;
}

/** An item of the output, while it grows. */
interface Item {
  kind: 'reasoning' | 'message' | 'function_call' | 'custom_tool_call';
  id: string;
  callId: string;
  name: string;
  namespace: string | null;
  /** Thoughts, words, or the arguments of a call. */
  text: string;
}

const statuses: Readonly<Record<string, string>> = { length: 'incomplete', abort: 'cancelled' };
const prefixes = { reasoning: 'rs', message: 'msg', function_call: 'fc', custom_tool_call: 'ctc' } as const;
const deltas = {
  reasoning: 'reasoning_text',
  message: 'output_text',
  function_call: 'function_call_arguments',
  custom_tool_call: 'custom_tool_call_input',
} as const;

function usageOf(usage: ChatUsage): object {
  const { prompt_tokens: input, completion_tokens: made, prompt_tokens_details: read } = usage;
  const output = made ?? 0;
  return {
    input_tokens: input,
    input_tokens_details: {
      cache_write_tokens: read?.created_cache_tokens ?? 0,
      cached_tokens: read?.cached_tokens ?? 0,
      input_tokens_per_turn: [],
    },
    output_tokens: output,
    output_tokens_details: {
      reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0,
      tool_output_tokens: 0,
    },
    total_tokens: input + output,
  };
}

const newItem = (kind: Item['kind'], { id, function: called }: ChatCall = {}): Item => ({
  kind,
  id: `${prefixes[kind]}_${randomHex()}`,
  callId: id ?? '',
  name: called?.name ?? '',
  namespace: null,
  text: '',
});

function partOf({ kind, text }: Item): object {
  if (kind === 'reasoning') return { type: 'reasoning_text', text };
  return { type: 'output_text', text, annotations: [], logprobs: null };
}

/** The text that a call of a custom tool has as its only argument. */
function inputOf(text: string): string {
  try {
    const { input } = JSON.parse(text) as { input?: unknown };
    return typeof input === 'string' ? input : text;
  } catch {
    return text;
  }
}

const isCall = ({ kind }: Item): boolean => kind === 'function_call' || kind === 'custom_tool_call';

/** As it is printed; the empty form is that of an item that has just begun. */
function printed(item: Item, status: string): object {
  const { kind, id, callId, name, namespace, text } = item;
  if (kind === 'function_call') return { id, type: kind, call_id: callId, name, namespace, arguments: text, status };
  if (kind === 'custom_tool_call') return { id, type: kind, call_id: callId, name, input: inputOf(text) };
  const content = status === 'in_progress' ? [] : [partOf(item)];
  return kind === 'reasoning'
    ? { id, type: kind, summary: [], content, encrypted_content: null, status }
    : { id, type: kind, role: 'assistant', content, status, phase: null };
}

/** Prints one answer: the whole of it, or the frames of a chat as events. */
class Printer {
  readonly #id: string;
  readonly #body: Body;
  readonly #createdAt = Math.floor(Date.now() / 1000);
  readonly #items: Item[] = [];
  #model = '';
  #finish = 'stop';
  #usage: ChatUsage = { prompt_tokens: 0 };
  #sequence = 0;
  #isOpen = false;
  readonly #calls: ShownCalls;

  constructor(id: string, body: Body) {
    this.#id = id;
    this.#calls = shownCallsOf(body);
    this.#body = body;
  }

  /** @param text a chat's whole answer */
  whole(text: string): string {
    const { model, choices = [], usage } = JSON.parse(text) as ChatChunk;
    const [choice] = choices;
    this.#model = model;
    this.#usage = usage ?? this.#usage;
    this.#finish = choice?.finish_reason ?? 'stop';
    this.#grow(choice?.message ?? {});
    if (this.#items.length === 0) this.#items.push(newItem('message'));
    return JSON.stringify(this.#response(statuses[this.#finish] ?? 'completed'));
  }

  /** @param frame one of a chat, its terminator included. Null where the stream breaks off */
  print(frame: string): string | null {
    const data = frame.slice('data:'.length).trim();
    if (data === '[DONE]') return this.#end();
    let chunk: ChatChunk;
    try {
      chunk = JSON.parse(data) as ChatChunk;
    } catch {
      return null;
    }
    if (chunk.choices === undefined) return null;
    const opening = this.#model === '' ? this.#begin(chunk.model) : '';
    this.#usage = chunk.usage ?? this.#usage;
    const [choice] = chunk.choices;
    this.#finish = choice?.finish_reason ?? this.#finish;
    return opening + this.#grow(choice?.delta ?? {});
  }

  /** The type is the last member, as vLLM has it. */
  #event(type: string, more: object): string {
    const sequence = this.#sequence;
    this.#sequence += 1;
    return `event: ${type}\ndata: ${JSON.stringify({ ...more, sequence_number: sequence, type })}\n\n`;
  }

  #response(status: string): object {
    const { instructions = null, metadata = null, user = null, text = null } = this.#body;
    const isRunning = status === 'in_progress';
    return {
      id: this.#id,
      created_at: this.#createdAt,
      error: null,
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      instructions,
      metadata,
      model: this.#model,
      object: 'response',
      output: isRunning ? [] : this.#items.map((item) => printed(item, 'completed')),
      parallel_tool_calls: this.#body.parallel_tool_calls ?? true,
      temperature: this.#body.temperature ?? 1,
      tool_choice: this.#body.tool_choice ?? 'auto',
      tools: this.#body.tools ?? [],
      top_p: this.#body.top_p ?? 1,
      background: false,
      max_output_tokens: this.#body.max_output_tokens ?? null,
      previous_response_id: null,
      service_tier: 'auto',
      status,
      text,
      truncation: 'disabled',
      usage: isRunning ? null : usageOf(this.#usage),
      user,
    };
  }

  #begin(model: string): string {
    this.#model = model;
    const response = this.#response('in_progress');
    return this.#event('response.created', { response }) + this.#event('response.in_progress', { response });
  }

  #end(): string {
    const status = statuses[this.#finish] ?? 'completed';
    const type = status === 'incomplete' ? 'response.incomplete' : 'response.completed';
    return this.#close() + this.#event(type, { response: this.#response(status) });
  }

  #grow({ reasoning, content, tool_calls: calls }: ChatSaid): string {
    let out = this.#say('reasoning', reasoning) + this.#say('message', content);
    for (const call of calls ?? []) {
      if (typeof call.id === 'string') out += this.#open(this.#called(call));
      out += this.#add(call.function?.arguments ?? '');
    }
    return out;
  }

  /** The call as the client defined its tool. */
  #called(call: ChatCall): Item {
    const name = call.function?.name ?? '';
    const item = newItem(this.#calls.customNames.has(name) ? 'custom_tool_call' : 'function_call', call);
    return { ...item, ...this.#calls.namespaced.get(name) };
  }

  #say(kind: Item['kind'], text: string | null | undefined): string {
    if (text === null || text === undefined || text === '') return '';
    const opened = this.#isOpen && this.#items.at(-1)?.kind === kind ? '' : this.#open(newItem(kind));
    return opened + this.#add(text);
  }

  #place(item: Item): object {
    const place = { item_id: item.id, output_index: this.#items.length - 1 };
    return isCall(item) ? place : { content_index: 0, ...place };
  }

  #open(item: Item): string {
    const closed = this.#close();
    this.#items.push(item);
    this.#isOpen = true;
    const added = this.#event('response.output_item.added', {
      item: printed(item, 'in_progress'),
      output_index: this.#items.length - 1,
    });
    if (isCall(item)) return closed + added;
    return closed + added + this.#event('response.content_part.added', { ...this.#place(item), part: partOf(item) });
  }

  #add(delta: string): string {
    const item = this.#items.at(-1);
    if (item === undefined || delta === '') return '';
    item.text += delta;
    // Its argument shows once it is whole; vLLM shows the text in it piece by piece.
    if (item.kind === 'custom_tool_call') return '';
    const logprobs = item.kind === 'message' ? { logprobs: [] } : {};
    return this.#event(`response.${deltas[item.kind]}.delta`, { ...this.#place(item), delta, ...logprobs });
  }

  #close(): string {
    const item = this.#items.at(-1);
    if (item === undefined || !this.#isOpen) return '';
    this.#isOpen = false;
    const { kind, name, text } = item;
    const place = this.#place(item);
    const logprobs = kind === 'message' ? { logprobs: [] } : {};
    const ends =
      kind === 'custom_tool_call'
        ? this.#event('response.custom_tool_call_input.delta', { ...place, delta: inputOf(text) }) +
          this.#event('response.custom_tool_call_input.done', { ...place, input: inputOf(text) })
        : kind === 'function_call'
          ? this.#event('response.function_call_arguments.done', { ...place, arguments: text, name })
          : this.#event(`response.${deltas[kind]}.done`, { ...place, text, ...logprobs }) +
            this.#event('response.content_part.done', { ...place, part: partOf(item) });
    const whole = { item: printed(item, 'completed'), output_index: this.#items.length - 1 };
    return ends + this.#event('response.output_item.done', whole);
  }
}

/** Answers POST /v1/responses/render, as vLLM 0.32 does with --enable-scale-out: the prompt's token ids. */
export function answerRender(engine: Engine, exchange: Exchange, body: Body): void {
  const chat = chatOfResponses(body);
  const refused = refusedOf(body) ?? accept(chat, engine);
  if ('status' in refused) {
    exchange.json(refused.status, refused.body);
    return;
  }
  const { messages } = chat;
  const tokens = encodeMessages(Array.isArray(messages) ? messages : [], engine.options);
  exchange.json(200, JSON.stringify({ request_id: `resp_${randomHex(16)}`, token_ids: tokens, model: body.model }));
}

/** Returns why a request is rejected before it is a chat request; null if it is not. */
function refusedOf(body: Body): Refused | null {
  if (body.input === undefined || body.input === null)
    return invalidBody([{ type: 'missing', loc: ['body', 'input'], msg: 'Field required', input: body }]);
  if (!hasGrammar(body)) return null;
  const only = 'only free-form text custom tools are accepted.';
  return badRequest(`Custom tools with a grammar format are not supported; ${only}`, 'tools');
}

/** Answers POST /v1/responses. Nothing is stored, and no tool is run. */
export function answerResponses(engine: Engine, exchange: Exchange, body: Body): void {
  const refused = refusedOf(body);
  if (refused !== null) {
    exchange.json(refused.status, refused.body);
    return;
  }
  const id = typeof body.request_id === 'string' ? body.request_id : `resp_${randomHex(16)}`;
  const printer = new Printer(id, body);
  let isBroken = false;
  const told: Exchange = {
    ...exchange,
    json: (status, text) => exchange.json(status, status === 200 ? printer.whole(text) : text),
    frame(text) {
      const events = isBroken ? '' : printer.print(text);
      if (events === null) {
        // vLLM writes nothing more after its engine has died.
        isBroken = true;
        exchange.destroy();
      } else if (events !== '') exchange.frame(events);
    },
  };
  answerChat(engine, told, chatOfResponses(body), `${id}_0`);
}
