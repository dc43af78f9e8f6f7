import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';

/** A page that the gateway itself sends at an application's address, for browsers and programs. */
export interface Page {
  readonly status: number;
  readonly title: string;
  readonly text: string;
  /** Text of a button that sends a form to the page's own address. */
  readonly button?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const retrySoon = { 'retry-after': '2' };

export const pages = {
  noApplication: {
    status: 404,
    title: 'No application here',
    text: 'There is no application at this address. It may have been removed.',
  },
  notYet: {
    status: 503,
    title: 'One moment',
    text: 'The gateway is starting. Try again in a moment.',
    headers: retrySoon,
  },
  noAnswer: {
    status: 502,
    title: 'The application does not answer',
    text: 'The address is right, but nothing answers behind it. It may still be starting, or it has stopped.',
    headers: retrySoon,
  },
  broken: {
    status: 502,
    title: 'The application answered badly',
    text: 'The application sent something that is no valid HTTP response.',
  },
  tooSlow: {
    status: 504,
    title: 'The application takes too long',
    text: 'The application has not begun to answer in time.',
  },
  tooMany: {
    status: 503,
    title: 'Too many connections',
    text: 'This application has as many open connections as it may have. Try again in a moment.',
    headers: retrySoon,
  },
  suspended: {
    status: 503,
    title: 'Not available',
    text: 'This application is not available at the moment. Whoever runs it can say why.',
  },
  members: {
    status: 401,
    title: 'For members only',
    text:
      'This application is for members of the organization that runs it. Ask for a link to it with your API key: ' +
      'POST /v1/runs/{id}/open of the gateway. The link works once, for a minute.',
  },
  badLink: {
    status: 403,
    title: 'This link does not work any more',
    text: 'A link works once, for one minute, and only for its own address. Request a new one.',
  },
  otherSite: {
    status: 403,
    title: 'Asked for by another site',
    text: 'A page of another address has asked for this one. Open it by itself.',
  },
  keyInRequest: {
    status: 400,
    title: 'An API key does not belong here',
    text:
      'The request has an API key of the gateway in it. Applications never get to see one: it was not passed on. ' +
      'Requests with API keys go to the address of the gateway itself.',
  },
  tooManyGuesses: {
    status: 429,
    title: 'Too many attempts',
    text: 'Too many invalid keys or links came from your network. Try again in a minute.',
    headers: { 'retry-after': '60' },
  },
  loop: {
    status: 508,
    title: 'A loop',
    text: 'The application leads back to this gateway.',
  },
  badRequest: {
    status: 400,
    title: 'Not a valid request',
    text: 'The request is not one that can be passed on: its address, its Host header or its framing is not valid.',
  },
  badMethod: {
    status: 405,
    title: 'Not with this method',
    text: 'This address is not there for this method.',
    headers: { allow: 'GET' },
  },
  badLinkMethod: {
    status: 405,
    title: 'Not with this method',
    text: 'A link is looked at with GET and used with POST.',
    headers: { allow: 'GET, HEAD, POST' },
  },
  door: {
    status: 200,
    title: 'Open the application',
    text: 'This link leads to an application for members. It works once.',
    button: 'Open the application',
    // The form's request has the page's origin, but never the link.
    headers: { 'referrer-policy': 'strict-origin' },
  },
} as const satisfies Readonly<Record<string, Page>>;

const style =
  'body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem}h1{font-size:1.4rem}' +
  'button{font:inherit;padding:.5rem 1rem}';
const styleHash = createHash('sha256').update(style).digest('base64');
const policy =
  `default-src 'none'; style-src 'sha256-${styleHash}'; form-action 'self'; base-uri 'none'; ` +
  "frame-ancestors 'none'";

const common = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': policy,
};

export function render(
  { title, text, button }: Page,
  accept: string,
): { readonly type: string; readonly body: string } {
  const isForm = button !== undefined;
  const more = isForm ? ' Send a POST request to this address to use it.' : '';
  if (!accept.includes('text/html')) return { type: 'text/plain; charset=utf-8', body: `${title}. ${text}${more}\n` };
  const form = isForm ? `<form method="post"><button>${button}</button></form>\n` : '';
  const body = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<title>${title}</title>
<style>${style}</style>
<h1>${title}</h1>
<p>${text}</p>
${form}</html>
`;
  return { type: 'text/html; charset=utf-8', body };
}

/** Answers with a page. Closes the connection afterwards if the request's body is still arriving. */
export function answer(incoming: IncomingMessage, outgoing: ServerResponse, page: Page): void {
  if (outgoing.headersSent) {
    outgoing.destroy();
    return;
  }
  const { type, body } = render(page, incoming.headers.accept ?? '');
  outgoing.writeHead(page.status, {
    ...common,
    ...page.headers,
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    ...closingHeader(incoming),
  });
  outgoing.end(incoming.method === 'HEAD' ? undefined : body);
}

/** Returns `connection: close` if the request's body is still arriving. */
export function closingHeader(incoming: IncomingMessage): { readonly connection?: 'close' } {
  const isWhole = incoming.complete || (!('content-length' in incoming.headers) && !isChunked(incoming));
  return isWhole ? {} : { connection: 'close' };
}

const isChunked = ({ headers }: IncomingMessage): boolean => headers['transfer-encoding'] !== undefined;
