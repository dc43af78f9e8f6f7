import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An engine that notes what it gets, and answers with counts of its own choice. */

export interface Seen {
  readonly path: string;
  readonly bytes: Buffer;
  /** Null where the bytes are no JSON. */
  readonly body: Readonly<Record<string, unknown>> | null;
  readonly usage: Usage;
}

export interface Usage {
  readonly input: number;
  readonly cached: number;
  readonly output: number;
}

export interface JsonEngine {
  readonly url: string;
  /** By the id that the gateway gave the request; more than one where it asked again. */
  readonly seen: Map<string, Seen[]>;
  close(): Promise<void>;
}

export async function startJsonEngine(): Promise<JsonEngine> {
  const seen = new Map<string, Seen[]>();
  const server = createServer((incoming, outgoing) => {
    void take(incoming).then((bytes) => {
      const path = incoming.url ?? '';
      if (incoming.method !== 'POST') return outgoing.end('{}');
      const body = parse(bytes);
      const one = { path, bytes, body, usage: usageOf(path, body, bytes) };
      const id = String(incoming.headers['x-request-id'] ?? '');
      seen.set(id, [...(seen.get(id) ?? []), one]);
      return answer(one, outgoing);
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => void server.close(resolve));
    },
  };
}

async function take(incoming: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function parse(bytes: Buffer): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

const isFree = (path: string): boolean => /tokenize$|count_tokens$|render$/.test(path);

/** Never more than what may be held for: of the prompt by its bytes, of the output by its limit. */
function usageOf(path: string, body: Readonly<Record<string, unknown>> | null, bytes: Buffer): Usage {
  if (isFree(path)) return { input: 0, cached: 0, output: 0 };
  const input = 1 + ((bytes.length % 97) % Math.max(1, bytes.length >> 4));
  const isChat = path.endsWith('/chat/completions');
  const isResponse = path.endsWith('/responses');
  const older = isResponse ? body?.['max_output_tokens'] : body?.['max_tokens'];
  const limits = [isChat ? body?.['max_completion_tokens'] : null, older];
  const limit = limits.find((value) => typeof value === 'number') ?? 16;
  const output =
    path.endsWith('completions') || isResponse || path.endsWith('/messages')
      ? Math.min(limit, 1 + (bytes.length % 7))
      : 0;
  return { input, cached: input >> 1, output };
}

function answer({ path, body, usage }: Seen, outgoing: ServerResponse): void {
  if (body === null) {
    const message = "[{'type': 'json_invalid', 'loc': ('body', 7), 'msg': 'JSON decode error', 'input': {}}]";
    outgoing.writeHead(400, { 'content-type': 'application/json' });
    outgoing.end(JSON.stringify({ error: { message, type: 'Bad Request', param: null, code: 400 } }));
    return;
  }
  if (path.endsWith('/responses')) {
    respond(body, usage, outgoing);
    return;
  }
  if (path.endsWith('/messages')) {
    tell(body, usage, outgoing);
    return;
  }
  const counts = {
    prompt_tokens: usage.input,
    total_tokens: usage.input + usage.output,
    completion_tokens: usage.output,
    prompt_tokens_details: { cached_tokens: usage.cached },
  };
  if (path.endsWith('completions') && body['stream'] === true) stream(body, counts, outgoing);
  else {
    outgoing.writeHead(200, { 'content-type': 'application/json' });
    outgoing.end(JSON.stringify({ id: 'x', model: body['model'], usage: counts, ...results(path) }));
  }
}

/** As vLLM answers for messages: the type comes first, and the cached part of the prompt is counted beside the rest. */
function tell(body: Readonly<Record<string, unknown>>, usage: Usage, outgoing: ServerResponse): void {
  const { input, cached, output } = usage;
  const counts = { input_tokens: input - cached, output_tokens: output, cache_read_input_tokens: cached };
  const begun = { id: 'x', type: 'message', role: 'assistant', content: [], model: body['model'], stop_reason: null };
  if (body['stream'] !== true) {
    outgoing.writeHead(200, { 'content-type': 'application/json' });
    outgoing.end(JSON.stringify({ ...begun, stop_reason: 'end_turn', usage: counts }));
    return;
  }
  const event = (type: string, more: object = {}): string =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  const message = { ...begun, usage: { input_tokens: input, output_tokens: 0 } };
  outgoing.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  outgoing.write(event('message_start', { message }));
  outgoing.write(event('content_block_delta', { delta: { type: 'text_delta', text: 'é' }, index: 0 }));
  outgoing.end(event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: counts }) + event('message_stop'));
}

/** As vLLM answers for responses: the type of an event is its last member, and the count comes with the last one. */
function respond(body: Readonly<Record<string, unknown>>, usage: Usage, outgoing: ServerResponse): void {
  const { input, cached, output } = usage;
  const counts = {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cached },
    output_tokens: output,
    total_tokens: input + output,
  };
  const begun = {
    id: body['request_id'],
    object: 'response',
    model: body['model'],
    status: 'in_progress',
    usage: null,
  };
  const ended = { ...begun, status: 'completed', usage: counts };
  if (body['stream'] !== true) {
    outgoing.writeHead(200, { 'content-type': 'application/json' });
    outgoing.end(JSON.stringify(ended));
    return;
  }
  const event = (type: string, more: object): string =>
    `event: ${type}\ndata: ${JSON.stringify({ ...more, type })}\n\n`;
  outgoing.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  outgoing.write(event('response.created', { response: begun }) + event('response.output_text.delta', { delta: 'é' }));
  outgoing.end(event('response.completed', { response: ended }));
}

function results(path: string): object {
  const text = 'é 🦙 "usage":{} \\';
  if (path.endsWith('/chat/completions')) {
    return { object: 'chat.completion', choices: [{ index: 0, message: { role: 'assistant', content: text } }] };
  }
  if (path.endsWith('/completions')) return { object: 'text_completion', choices: [{ index: 0, text }] };
  if (path.endsWith('/embeddings')) return { object: 'list', data: [{ index: 0, embedding: [0.5] }] };
  if (path.endsWith('/render')) return { token_ids: [1, 2, 3] };
  if (path.endsWith('/rerank')) return { results: [{ index: 0, relevance_score: 0.5, document: { text } }] };
  return { object: 'list', data: [{ index: 0, object: 'score', score: 0.5 }] };
}

function stream(body: Readonly<Record<string, unknown>>, usage: object, outgoing: ServerResponse): void {
  const options = body['stream_options'] as { include_usage?: boolean; continuous_usage_stats?: boolean } | undefined;
  const running = options?.continuous_usage_stats === true ? { usage } : {};
  const common = { id: 'x', object: 'chat.completion.chunk', model: body['model'] };
  const frame = (more: object): string => `data: ${JSON.stringify({ ...common, ...more })}\n\n`;
  const choice = (finish: string | null): object => ({
    choices: [{ index: 0, delta: { content: 'é' }, text: 'é', finish_reason: finish }],
  });
  outgoing.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  outgoing.write(frame({ ...choice(null), ...running }) + frame({ ...choice('stop'), ...running }));
  if (options?.include_usage === true) outgoing.write(frame({ choices: [], usage }));
  outgoing.end('data: [DONE]\n\n');
}
