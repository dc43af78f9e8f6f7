import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import type { Body } from '#test/inference/inference-gateway.ts';

/** A server that somebody else runs, and that fails in the way that its path says: `/sick/v1/chat/completions`. */
export interface FailingEngines {
  urlOf(fault: Fault): string;
  /** Requests that came to a fault. */
  readonly asked: ReadonlyMap<string, number>;
  close(): void;
}

export type Fault = keyof typeof faults;

type Answer = (body: Body, response: ServerResponse) => void;

const frame = (model: string, content: string) =>
  `data: ${JSON.stringify({ id: 'x', model, choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

function sendPart(response: ServerResponse, status: number): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.write('{"error":{"message":"it');
  setTimeout(() => response.destroy(), 50);
}

const errorBody = (code: number, message: string) => ({ error: { message, type: 'error', param: null, code } });
const stream = { 'content-type': 'text/event-stream' };

const faults = {
  /** It fails at each request. */
  sick: (_, response) => send(response, 500, errorBody(500, 'it is broken')),
  /** It takes nothing at the moment. */
  busy: (_, response) => send(response, 503, errorBody(503, 'later')),
  /** It finds fault with the request. */
  picky: (_, response) => send(response, 400, errorBody(400, 'temperature must be non-negative')),
  /** It does not know the route. */
  old: (_, response) => send(response, 404, { detail: 'Not Found' }),
  /** Never answers. */
  mute: () => undefined,
  /** It ends the connection before it has said anything. */
  shy: (_, response) => void response.destroy(),
  /** A stream breaks before its first token. */
  early: ({ stream: isStream }, response) => {
    if (isStream !== true) return send(response, 500, errorBody(500, 'it broke'));
    response.writeHead(200, stream);
    response.end(`data: ${JSON.stringify(errorBody(500, 'it broke'))}\n\ndata: [DONE]\n\n`);
  },
  /** It says that all is well, and that is all. */
  empty: ({ stream: isStream }, response) => {
    response.writeHead(200, isStream === true ? stream : { 'content-type': 'application/json' });
    response.end();
  },
  /** It answers a stream where none was asked for, and the other way round. */
  other: ({ stream: isStream }, response) => {
    response.writeHead(200, isStream === true ? { 'content-type': 'text/html' } : stream);
    response.end(isStream === true ? '<p>Sign in</p>' : frame('other', 'Hel'));
  },
  /** It says more of its failure than anybody reads. */
  wordy: (_, response) => send(response, 500, errorBody(500, 'it is broken '.repeat(200_000))),
  /** Cuts the report of its own failure. */
  torn: (_, response) => sendPart(response, 500),
  /** Cuts the report of a fault in the request. */
  vague: (_, response) => sendPart(response, 400),
  /** An answer that has begun is cut. */
  cut: ({ stream: isStream }, response) => {
    response.writeHead(200, isStream === true ? stream : { 'content-type': 'application/json' });
    response.write(isStream === true ? frame('cut', 'Hel') : '{"id":"x","model":"cut"');
    setTimeout(() => response.destroy(), 50);
  },
} as const satisfies Record<string, Answer>;

const isFault = (name: string): name is Fault => name in faults;

export async function startFailingEngines(): Promise<FailingEngines> {
  const asked = new Map<string, number>();
  const answer = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const [, name = '', ...rest] = (incoming.url ?? '').split('/');
    const text = await readText(incoming);
    if (incoming.method !== 'POST') return send(response, 200, { object: 'list', data: [] });
    if (!isFault(name) || rest.length === 0) return send(response, 404, {});
    asked.set(name, (asked.get(name) ?? 0) + 1);
    const fault: Answer = faults[name];
    fault(JSON.parse(text), response);
  };
  const server = createServer((incoming, response) => void answer(incoming, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    urlOf: (fault) => `http://127.0.0.1:${port}/${fault}`,
    asked,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
