import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { monotonicMs } from './clock.ts';
import { jsonTokens, promptTokens, streamTokens } from './engine-counts.ts';

/**
 * The engine of the benchmark: sends what vLLM sends, byte for byte in shape, at next to no cost, and writes the moment
 * of sending into every frame, so that the time a frame spends on its way can be measured. The stand-in engine is too
 * thorough for this: it costs more CPU per request than the measured gateway, on the core that it shares.
 *
 * A request's `bench` member says how long its answer is and how fast it comes.
 */
interface Pace {
  /** Content frames of a stream. */
  readonly frames: number;
  readonly firstMs: number;
  readonly everyMs: number;
}

const created = Math.floor(Date.now() / 1000);
const jsonText =
  'The river rises before dawn and takes the old road past the mill. A gate of oak and iron holds the upper water ' +
  'back. When the keeper turns the wheel, the race fills.';

function jsonBody(id: string): string {
  const message = `{"role":"assistant","content":"${jsonText}","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}`;
  return `{"id":"chatcmpl-${id}","object":"chat.completion","created":${created},"model":"bench","choices":[{"index":0,"message":${message},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"usage":${usage(jsonTokens)}}`;
}

function usage(completionTokens: number): string {
  return `{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens + completionTokens},"completion_tokens":${completionTokens},"prompt_tokens_details":{"cached_tokens":0}}`;
}

/** Streams that wait for their next frame, by the millisecond in which it is due; one timer for all. */
const due = new Map<number, Stream[]>();
let tickedMs = Math.floor(monotonicMs());
setInterval(() => {
  const nowMs = Math.floor(monotonicMs());
  while (tickedMs < nowMs) {
    // First, so that a stream that is due again at once is parked in a millisecond that is still to come.
    tickedMs += 1;
    const streams = due.get(tickedMs);
    if (streams === undefined) continue;
    due.delete(tickedMs);
    for (const stream of streams) stream.next();
  }
}, 1);

function park(stream: Stream): void {
  const slot = Math.max(Math.ceil(stream.dueMs), tickedMs + 1);
  const streams = due.get(slot);
  if (streams === undefined) due.set(slot, [stream]);
  else streams.push(stream);
}

class Stream {
  dueMs: number;
  readonly #outgoing: ServerResponse;
  readonly #pace: Pace;
  readonly #head: string;
  #sent = 0;

  constructor(outgoing: ServerResponse, id: string, pace: Pace) {
    this.#outgoing = outgoing;
    this.#pace = pace;
    this.#head = `data: {"id":"chatcmpl-${id}","object":"chat.completion.chunk","created":${created},"model":"bench","choices":[`;
    this.dueMs = monotonicMs() + pace.firstMs;
    park(this);
  }

  next(): void {
    if (this.#outgoing.destroyed) return;
    const { frames, everyMs } = this.#pace;
    if (this.#sent === frames) {
      this.#outgoing.end(this.#ending(), 'latin1');
      return;
    }
    const opening = this.#sent === 0 ? this.#event('{"role":"assistant","content":""}', 0) : '';
    this.#sent += 1;
    const text = `{"content":"@${monotonicMs().toFixed(3)} "}`;
    this.#outgoing.write(opening + this.#event(text, this.#sent), 'latin1');
    this.dueMs += everyMs;
    park(this);
  }

  #event(delta: string, tokens: number): string {
    return `${this.#head}{"index":0,"delta":${delta},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":${usage(tokens)}}\n\n`;
  }

  #ending(): string {
    const total = usage(streamTokens(this.#sent));
    const finish = `${this.#head}{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"usage":${total}}\n\n`;
    return `${finish}${this.#head}],"usage":${total}}\n\ndata: [DONE]\n\n`;
  }
}

let answered = 0;

function answer(outgoing: ServerResponse, body: string): void {
  const request = JSON.parse(body) as { stream?: boolean; bench?: Pace };
  answered += 1;
  const id = answered.toString(16).padStart(32, '0');
  if (request.stream !== true) {
    const text = jsonBody(id);
    outgoing.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length }).end(text, 'latin1');
    return;
  }
  outgoing.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  outgoing.flushHeaders();
  void new Stream(outgoing, id, request.bench ?? { frames: 1, firstMs: 0, everyMs: 0 });
}

function serve(incoming: IncomingMessage, outgoing: ServerResponse): void {
  if (incoming.url !== '/v1/chat/completions') {
    outgoing.writeHead(incoming.url === '/health' ? 200 : 404).end();
    incoming.resume();
    return;
  }
  let body = '';
  incoming.setEncoding('latin1');
  incoming.on('data', (text: string) => {
    body += text;
  });
  incoming.on('end', () => answer(outgoing, body));
}

/** `--uds PATH` as vLLM's; without it a free port of the loopback address, told to the parent process. */
const uds = process.argv.indexOf('--uds');
const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, serve);
if (uds !== -1) server.listen({ path: process.argv[uds + 1] ?? '', backlog: 4096 });
else if (process.send !== undefined) {
  server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
    const address = server.address();
    process.send?.({ port: typeof address === 'object' && address !== null ? address.port : 0 });
  });
  process.on('disconnect', () => process.exit(0));
}
process.on('SIGTERM', () => process.exit(0));
