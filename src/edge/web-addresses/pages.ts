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
    title: 'Invalid response',
    text: 'The application sent an invalid HTTP response.',
  },
  tooSlow: {
    status: 504,
    title: 'The application did not answer in time',
    text: 'The application accepted the request, but sent no response in time. Try again later.',
  },
  tooMany: {
    status: 503,
    title: 'Too many connections',
    text: 'This application has reached its limit of open connections. Try again in a moment.',
    headers: retrySoon,
  },
  suspended: {
    status: 503,
    title: 'Not available',
    text: 'This application is not available at the moment. Ask the organization that runs it.',
  },
  members: {
    status: 401,
    title: 'Members only',
    text:
      'Only members of the organization that runs this application can open it. Open it from the page of its run in ' +
      'the Headgate portal, or create a link with your API key: POST /v1/runs/{id}/open. A link works once, within a minute.',
  },
  badLink: {
    status: 403,
    title: 'This link no longer works',
    text: 'A link works once, within one minute, and only for its own address. Create a new link.',
  },
  otherSite: {
    status: 403,
    title: 'Request from another site',
    text: 'A page of another site sent this request, so it was rejected. Open this address directly in your browser.',
  },
  keyInRequest: {
    status: 400,
    title: 'Do not send an API key here',
    text:
      'The request contains an API key of the gateway, so it was not forwarded to the application, which must not see ' +
      'the key. Send requests with API keys to the address of the gateway itself.',
  },
  tooManyGuesses: {
    status: 429,
    title: 'Too many attempts',
    text: 'Too many invalid keys or links came from your network. Try again in a minute.',
    headers: { 'retry-after': '60' },
  },
  loop: {
    status: 508,
    title: 'Request loop',
    text: 'The application forwards requests back to this gateway. Its operator must correct the address that it forwards to.',
  },
  badRequest: {
    status: 400,
    title: 'Invalid request',
    text: 'The request was not forwarded, because its address, its Host header or its framing is invalid.',
  },
  badMethod: {
    status: 405,
    title: 'Method not allowed',
    text: 'This address accepts only GET.',
    headers: { allow: 'GET' },
  },
  badLinkMethod: {
    status: 405,
    title: 'Method not allowed',
    text: 'Send GET to see what a link opens, and POST to use it.',
    headers: { allow: 'GET, HEAD, POST' },
  },
  door: {
    status: 200,
    title: 'Open the application',
    text: 'This link opens an application for members of an organization. It works once.',
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
  const more = isForm ? ' Send a POST request to this address to open it.' : '';
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
