import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Body } from '#test/inference/inference-gateway.ts';

/** A request as one of the servers got it, which is answered when the test says so. */
export interface Asked {
  /** Place of the server. */
  readonly server: number;
  readonly id: string;
  readonly body: Body;
  /** The number that each text ends with. */
  readonly numbers: readonly number[];
  /** True when the client has closed the connection before it was answered. */
  readonly left: boolean;
  /** With a vector of its number for each text, and two tokens. */
  answer(): void;
  send(status: number, text: string): void;
  /** Sends the first half of its answer; `answer` sends the other one. */
  begin(): void;
  /** Breaks the connection. */
  cut(): void;
}

/** Servers of one embedding model that write like vLLM. */
export interface EmbeddingServers {
  readonly urls: readonly string[];
  /** All requests since `reset`, in the order in which they came. */
  readonly asked: readonly Asked[];
  /** Those that are not answered yet, and whose connection is there. */
  readonly open: readonly Asked[];
  /** The handler for each request as it comes; by default, it is answered. */
  onAsked: (asked: Asked) => void;
  reset(): void;
  close(): void;
}

export const tokensPerText = 2;

/** A server's answer to texts with these numbers. */
export function answerText(id: string, numbers: readonly number[], more: object = {}): string {
  const data = numbers.map((number, index) => ({ index, object: 'embedding', embedding: [number, 0.5] }));
  const tokens = tokensPerText * numbers.length;
  const usage = { prompt_tokens: tokens, total_tokens: tokens, completion_tokens: 0, prompt_tokens_details: null };
  return JSON.stringify({ id: `embd-${id}`, object: 'list', created: 1, model: 'own/name', data, usage, ...more });
}

export async function startEmbeddingServers(count: number): Promise<EmbeddingServers> {
  const asked: AskedRequest[] = [];
  const servers: Server[] = [];
  for (let place = 0; place < count; place += 1) {
    const server = createServer((incoming, outgoing) => void take(place, incoming, outgoing));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    servers.push(server);
  }

  async function take(place: number, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    outgoing.setHeader('content-type', 'application/json');
    if (incoming.method !== 'POST') {
      outgoing.end('{"data":[]}');
      return;
    }
    let text = '';
    for await (const part of incoming.setEncoding('utf8')) text += part;
    const one = new AskedRequest(place, String(incoming.headers['x-request-id']), JSON.parse(text), outgoing);
    asked.push(one);
    made.onAsked(one);
  }

  const made: EmbeddingServers = {
    urls: servers.map((server) => {
      const address = server.address();
      return `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
    }),
    asked,
    get open() {
      return asked.filter(({ left, ended }) => !left && !ended);
    },
    onAsked: (one) => one.answer(),
    reset() {
      asked.length = 0;
      made.onAsked = (one) => one.answer();
    },
    close() {
      for (const server of servers) {
        server.close();
        server.closeAllConnections();
      }
    },
  };
  return made;
}

class AskedRequest implements Asked {
  readonly server: number;
  readonly id: string;
  readonly body: Body;
  left = false;
  /** The rest of an answer that has begun. */
  #rest: string | null = null;
  readonly #outgoing: ServerResponse;

  constructor(server: number, id: string, body: Body, outgoing: ServerResponse) {
    this.server = server;
    this.id = id;
    this.body = body;
    this.#outgoing = outgoing;
    outgoing.on('close', () => {
      this.left = !outgoing.writableEnded;
    });
  }

  get ended(): boolean {
    return this.#outgoing.writableEnded;
  }

  get numbers(): readonly number[] {
    return [this.body.input].flat().map((text: string) => Number(/\d+$/.exec(text)?.[0]));
  }

  answer(): void {
    this.send(200, this.#rest ?? answerText(this.id, this.numbers));
  }

  begin(): void {
    const text = answerText(this.id, this.numbers);
    this.#outgoing.write(text.slice(0, text.length / 2));
    this.#rest = text.slice(text.length / 2);
  }

  cut(): void {
    this.#outgoing.destroy();
  }

  send(status: number, text: string): void {
    if (!this.#outgoing.headersSent) this.#outgoing.statusCode = status;
    this.#outgoing.end(text);
  }
}
