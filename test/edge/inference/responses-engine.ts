import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Body } from '#test/inference/inference-gateway.ts';

/** The engine's steps for one request, as its body has them under `script`. */
export interface Script {
  /** Tokens before the end, each an event; of a JSON answer the count. */
  readonly tokens?: number;
  /** How it ends then; `hang` waits for an abort. */
  readonly end?: 'completed' | 'incomplete' | 'failed' | 'error' | 'cancelled' | 'hang' | 'no_usage';
  /** The turn in which it hangs, counted from 0: the only one that an abort ends. 0 where it is not said. */
  readonly turn?: number;
  /** Events that are sent before it is cut, counted from 1; all of them where it is not said. */
  readonly cutAfter?: number;
  /** Milliseconds for which it waits for its turn, once it has said that it took the request. */
  readonly queuedMs?: number;
  /** The first request with this name is cut after it was accepted, whichever engine gets it. */
  readonly cutFirst?: string;
  readonly status?: number;
  /** Tokens that come in each event, an event every other millisecond until it is aborted. */
  readonly gathered?: number;
  /** The text in the place of its tokens' words. */
  readonly says?: string;
}

export interface ResponsesEngine {
  readonly url: string;
  /** Bodies of requests for responses, as they came. */
  readonly bodies: string[];
  /** Ids of each abort. */
  readonly aborts: string[][];
  close(): void;
}

export const enginePath = '/srv/models/llama';
export const inputTokens = 21;

/** `usage` as clients get it. */
export const usageOf = (tokens: number): object => ({
  input_tokens: inputTokens,
  input_tokens_details: { cached_tokens: 16 },
  output_tokens: tokens,
  output_tokens_details: { reasoning_tokens: 0, tool_output_tokens: 0 },
  total_tokens: inputTokens + tokens,
});

/** vLLM also lists tokens per turn. */
const sentUsage = (tokens: number): object => ({
  ...usageOf(tokens),
  input_tokens_details: { cached_tokens: 16, input_tokens_per_turn: [inputTokens], cached_tokens_per_turn: [16] },
});

const words = (tokens: number, { script = {} }: Body): string => script.says ?? 'word '.repeat(tokens);

function responseOf({ request_id: id, metadata = null, text = null }: Body, more: object): object {
  return {
    id,
    object: 'response',
    created_at: 1,
    metadata,
    model: enginePath,
    output: [],
    status: 'in_progress',
    text,
    usage: null,
    user: null,
    ...more,
  };
}

function whole(body: Body, tokens: number, status: string): object {
  const content = [{ type: 'output_text', text: words(tokens, body), annotations: [], logprobs: null }];
  const output = [{ id: 'msg_1', type: 'message', role: 'assistant', status: 'completed', content }];
  return responseOf(body, { output, status, usage: sentUsage(tokens) });
}

/** The events of a stream, in the order and the form of vLLM: the type is the last member. */
function eventsOf(body: Body, { tokens = 3, end = 'completed' }: Script): object[] {
  const place = { content_index: 0, item_id: 'msg_1', output_index: 0 };
  const begun = responseOf(body, {});
  const item = { id: 'msg_1', content: [], role: 'assistant', status: 'in_progress', type: 'message' };
  const events: { type: string }[] = [
    { response: begun, type: 'response.created' } as { type: string },
    { response: begun, type: 'response.in_progress' } as { type: string },
    { item, output_index: 0, type: 'response.output_item.added' } as { type: string },
    { ...place, part: { type: 'output_text', text: '' }, type: 'response.content_part.added' } as { type: string },
    ...Array.from({ length: tokens }, () => ({
      ...place,
      delta: body.script?.says ?? 'word ',
      type: 'response.output_text.delta',
    })),
  ];
  const ended = endEvent(body, tokens, end);
  if (ended !== null) {
    events.push({ ...place, text: words(tokens, body), type: 'response.output_text.done' } as { type: string }, ended);
  }
  return events.map(({ type, ...event }, index) => ({ ...event, sequence_number: index, type }));
}

function endEvent(body: Body, tokens: number, end: Script['end']): { type: string } | null {
  const ending = (type: string, response: object): { type: string } => ({ response, type }) as { type: string };
  switch (end) {
    case 'completed':
    case 'incomplete':
      return ending(`response.${end}`, whole(body, tokens, end));
    case 'cancelled':
      return ending('response.completed', whole(body, tokens, end));
    case 'no_usage':
      return ending('response.completed', { ...whole(body, tokens, 'completed'), usage: null });
    case 'failed':
      return ending('response.failed', {
        ...whole(body, tokens, end),
        error: { code: 'server_error', message: `at ${enginePath}.py` },
      });
    case 'error':
      return { message: `at ${enginePath}.py`, type: 'error' } as { type: string };
    default:
      return null;
  }
}

const frameOf = (event: Body): string => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

/** vLLM 0.29 takes what OpenAI's schema has, and looks for a role in all that is not one of these. */
function hasUnknownItem({ input }: Body): boolean {
  const read = ['function_call', 'function_call_output', 'reasoning'];
  return Array.isArray(input) && input.some(({ type, role }: Body) => role === undefined && !read.includes(type));
}

/** Events that vLLM sends as soon as it has taken a request. */
const openings = 2;
const wasCut = new Set<string>();

/** An engine that speaks `/v1/responses` as vLLM does, and ends the responses of its list with their count. */
export async function startResponsesEngine(): Promise<ResponsesEngine> {
  const bodies: string[] = [];
  const aborts: string[][] = [];
  const waiting = new Map<string, () => void>();

  async function stream(body: Body, script: Script, answer: ServerResponse): Promise<void> {
    const events = eventsOf(body, script);
    answer.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    const isCut = script.cutFirst !== undefined && !wasCut.has(script.cutFirst);
    if (isCut) wasCut.add(script.cutFirst ?? '');
    const cutAfter = isCut ? openings : script.cutAfter;
    const frames = events.slice(0, cutAfter ?? events.length).map(frameOf);
    if (cutAfter !== undefined) {
      answer.write(frames.join(''), () => answer.destroy());
      return;
    }
    answer.write(frames.slice(0, openings).join(''));
    if (script.queuedMs !== undefined) await sleep(script.queuedMs);
    if (script.gathered !== undefined) {
      await gather(body, script.gathered, answer);
      return;
    }
    answer.write(frames.slice(openings).join(''));
    if (script.end === 'hang') {
      const tokens = script.tokens ?? 3;
      waiting.set(`${body.request_id}_${script.turn ?? 0}`, () => {
        // One more was made meanwhile.
        const ended = { ...endEvent(body, tokens + 1, 'completed'), sequence_number: events.length };
        answer.end(frameOf(ended));
      });
    } else answer.end();
  }

  async function gather(body: Body, gathered: number, answer: ServerResponse): Promise<void> {
    let isAborted = false;
    waiting.set(`${body.request_id}_0`, () => (isAborted = true));
    let tokens = 0;
    for (; !isAborted && !answer.destroyed; tokens += gathered) {
      const place = { content_index: 0, item_id: 'msg_1', output_index: 0, sequence_number: tokens };
      answer.write(frameOf({ ...place, delta: 'word '.repeat(gathered), type: 'response.output_text.delta' }));
      await sleep(2);
    }
    answer.end(frameOf({ response: whole(body, tokens, 'completed'), type: 'response.completed' }));
  }

  function json(body: Body, script: Script, answer: ServerResponse): void {
    const { tokens = 3, end = 'completed', status = 200, turn = 0 } = script;
    const send = (count: number): void => {
      answer.writeHead(status, { 'content-type': 'application/json' });
      answer.end(JSON.stringify(whole(body, count, end === 'hang' ? 'completed' : end)));
    };
    if (end === 'hang') waiting.set(`${body.request_id}_${turn}`, () => send(tokens + 1));
    else send(tokens);
  }

  async function serve(request: IncomingMessage, answer: ServerResponse): Promise<void> {
    const text = await readText(request);
    if (request.url === '/abort_requests') {
      const { request_ids: ids }: Body = JSON.parse(text);
      aborts.push(ids);
      for (const id of ids) {
        waiting.get(id)?.();
        waiting.delete(id);
      }
      answer.end('{}');
    } else if (request.url === '/v1/responses') {
      bodies.push(text);
      const body: Body = JSON.parse(text);
      const { script = {} } = body;
      // Only vLLM is given an id.
      if (body.request_id !== undefined && hasUnknownItem(body)) {
        const error = { message: "'role'", type: 'InternalServerError', param: null, code: 500 };
        answer.writeHead(500, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
      } else if (body.stream === true && (script.status ?? 200) === 200) await stream(body, script, answer);
      else json(body, script, answer);
    } else answer.writeHead(404).end('{"detail":"Not Found"}');
  }

  const server = createServer((request, answer) => void serve(request, answer));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    bodies,
    aborts,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
