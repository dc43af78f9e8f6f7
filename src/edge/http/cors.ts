import type { IncomingMessage, ServerResponse } from 'node:http';
import { groupOf } from './routes.ts';

/** Lets pages of other origins call the API with a key (https://fetch.spec.whatwg.org/#http-cors-protocol). */
export interface Cors {
  /**
   * Adds the headers that a browser needs to the answer of an API request.
   * @returns true if the request was a preflight, which is then answered
   */
  answers(incoming: IncomingMessage, outgoing: ServerResponse): boolean;
}

const methods = 'GET, HEAD, POST, PUT, PATCH, DELETE';
/** Longest time for which browsers cache a preflight; two hours in Chromium. */
const preflightSeconds = 7200;

/**
 * Creates the CORS headers. Cookies are never allowed: each caller needs a key of its own, so any header may be sent
 * and any may be read.
 * @param origins as browsers send them, `https://app.example.org`; `*` is any origin; with an empty list nothing
 * changes
 */
export function createCors(origins: readonly string[]): Cors {
  const allowed = new Set(origins);
  if (allowed.size === 0) return { answers: () => false };
  const isAny = allowed.has('*');
  return {
    answers(incoming, outgoing) {
      if (!isApi(incoming)) return false;
      const { origin } = incoming.headers;
      // An answer that caches keep for one origin must not be used for another origin.
      if (!isAny) outgoing.setHeader('vary', 'Origin');
      if (origin === undefined || !(isAny || allowed.has(origin))) return false;
      outgoing.setHeader('access-control-allow-origin', isAny ? '*' : origin);
      outgoing.setHeader('access-control-expose-headers', '*');
      if (!isPreflight(incoming)) return false;
      answerPreflight(incoming, outgoing);
      return true;
    },
  };
}

const isApi = ({ url = '' }: IncomingMessage): boolean => groupOf(url.split('?', 1)[0] ?? '').documented;

const isPreflight = ({ method, headers }: IncomingMessage): boolean =>
  method === 'OPTIONS' && headers['access-control-request-method'] !== undefined;

function answerPreflight({ headers }: IncomingMessage, outgoing: ServerResponse): void {
  const asked = headers['access-control-request-headers'];
  // A wildcard would exclude Authorization.
  if (asked !== undefined) outgoing.setHeader('access-control-allow-headers', asked);
  outgoing.setHeader('access-control-allow-methods', methods);
  outgoing.setHeader('access-control-max-age', preflightSeconds);
  outgoing.appendHeader('vary', 'Access-Control-Request-Headers');
  outgoing.writeHead(204).end();
}
