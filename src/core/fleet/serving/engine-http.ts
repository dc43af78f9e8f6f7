import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Endpoint } from '#base/net/net.ts';
import type { Replica } from '#core/fleet/drivers/drivers.ts';

/** A small request of the fleet to an engine: over its own connection, with a bound on time and size. */
export interface EngineAsk {
  readonly method: 'GET' | 'POST';
  /** Path with its query. */
  readonly path: string;
  /** Sent as JSON; no body is sent if absent. */
  readonly body?: unknown;
  readonly timeoutMs: number;
  /** Further headers. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Called with each part of the answer's body as it arrives. */
  readonly onText?: (text: string) => void;
  /** Closes the connection when it aborts. */
  readonly signal?: AbortSignal;
}

export interface EngineAnswer {
  readonly status: number;
  readonly text: string;
}

/** `refused` if the connection failed or broke, `silent` if the time ran out. */
export type NoAnswer = 'refused' | 'silent';

/** Messages for operators. */
export const noAnswerText: Record<NoAnswer, string> = {
  refused: 'The engine closed the connection unexpectedly.',
  silent: 'The engine did not answer in time.',
};

const answerCharsMax = 4_194_304;

/** @param target a replica, whose headers are sent along, or only its endpoint */
export function askEngine(target: Replica | Endpoint, ask: EngineAsk): Promise<EngineAnswer | NoAnswer> {
  const endpoint = 'endpoint' in target ? target.endpoint : target;
  const headerLines = 'endpoint' in target ? target.headerLines : '';
  const body = ask.body === undefined ? '' : JSON.stringify(ask.body);
  return new Promise((resolve) => {
    const request = endpoint.tls ? httpsRequest : httpRequest;
    const { socketPath, host, port, basePath } = endpoint;
    const where = socketPath === null ? { host, port } : { socketPath };
    const headers = { ...ask.headers, ...parseHeaderLines(headerLines), ...(body !== '' && bodyHeaders(body)) };
    const options = { ...where, method: ask.method, path: `${basePath}${ask.path}`, headers, agent: false };
    const asked = request(options, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => {
        text += chunk;
        ask.onText?.(chunk);
        if (text.length > answerCharsMax) asked.destroy();
      });
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
      answer.on('close', () => settle('refused'));
    });
    // Bounds the whole answer: the socket's own timeout would restart with every byte.
    const timer = setTimeout(() => {
      settle('silent');
      asked.destroy();
    }, ask.timeoutMs);
    function settle(none: NoAnswer): void {
      clearTimeout(timer);
      resolve(none);
    }
    // Refused, reset and broken connections all count as no answer.
    asked.on('error', () => settle('refused'));
    asked.on('close', () => clearTimeout(timer));
    ask.signal?.addEventListener('abort', () => asked.destroy());
    asked.end(body);
  });
}

function bodyHeaders(body: string): Record<string, string> {
  return { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
}

/** Parses `Name: value` lines, each with its CRLF, as a replica carries them. */
function parseHeaderLines(lines: string): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const line of lines.split('\r\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) headers[line.slice(0, colon)] = line.slice(colon + 1).trim();
  }
  return headers;
}
