import type { IncomingMessage } from 'node:http';

/** Which headers go to an application, and which come back. */

/** The prefix binds it to its host: no other one, a neighbour below the same domain included, can set or read it. */
export const cookieName = '__Host-headgate_access';
const hopsName = 'x-headgate-hops';
/** An application may lead to another one, and not in a circle. */
const hopsMax = 4;

/** Of one connection alone (RFC 9110, section 7.6.1). */
const hopByHop: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/** What only the gateway says of a client. */
const ownNames: ReadonlySet<string> = new Set(['forwarded', 'x-real-ip', 'expect', 'cookie', hopsName]);
/** What a Connection header may not take away. */
const framing: ReadonlySet<string> = new Set(['content-length', 'host']);
/** Methods whose requests have no body unless they say so (Node's own list). */
const bodiless: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

export function* pairsOf(rawHeaders: readonly string[]): Generator<readonly [name: string, value: string]> {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    yield [rawHeaders[index] ?? '', rawHeaders[index + 1] ?? ''];
  }
}

export function valuesOf({ rawHeaders }: Pick<IncomingMessage, 'rawHeaders'>, wanted: string): string[] {
  return [...pairsOf(rawHeaders)].filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
}

function droppedNames(message: IncomingMessage): ReadonlySet<string> {
  const listed = valuesOf(message, 'connection').flatMap((value) => value.split(','));
  const names = listed.map((name) => name.trim().toLowerCase()).filter((name) => !framing.has(name));
  return new Set([...hopByHop, ...names]);
}

/** The host that a request is for, in lower case and without a port; null where it does not say exactly one. */
export function hostOf(incoming: IncomingMessage): string | null {
  const [value, ...others] = valuesOf(incoming, 'host');
  if (value === undefined || others.length > 0) return null;
  return /^([A-Za-z0-9.-]{1,253})(?::\d{1,5})?$/.exec(value)?.[1]?.toLowerCase() ?? null;
}

/** Requests that are framed in two ways, or go around the Host header, are not passed on. */
export function isWellFormed(incoming: IncomingMessage): boolean {
  const { url = '' } = incoming;
  const lengths = valuesOf(incoming, 'content-length');
  const encodings = valuesOf(incoming, 'transfer-encoding');
  if (lengths.length > 1 || (lengths[0] !== undefined && !/^\d{1,15}$/.test(lengths[0]))) return false;
  if (encodings.length > 1 || (encodings[0] !== undefined && encodings[0].toLowerCase() !== 'chunked')) return false;
  return url.startsWith('/') && (lengths.length === 0 || encodings.length === 0);
}

export const hopsOf = (incoming: IncomingMessage): number => Number(incoming.headers[hopsName] ?? 0);
export const isLoop = (incoming: IncomingMessage): boolean => !(hopsOf(incoming) < hopsMax);

/** Cookies of a request that are the application's, and ours. */
export interface Cookies {
  readonly forwarded: string;
  readonly own: readonly string[];
}

export function cookiesOf(incoming: IncomingMessage): Cookies {
  const all = valuesOf(incoming, 'cookie')
    .flatMap((value) => value.split(';'))
    .map((pair) => pair.trim())
    .filter((pair) => pair !== '');
  const nameOf = (pair: string): string => (pair.split('=', 1)[0] ?? '').trim();
  const isOwn = (pair: string): boolean => nameOf(pair).toLowerCase() === cookieName.toLowerCase();
  const own = all.filter((pair) => nameOf(pair) === cookieName).map((pair) => pair.slice(pair.indexOf('=') + 1));
  return { forwarded: all.filter((pair) => !isOwn(pair)).join('; '), own };
}

/** Headers for the application, flat as Node takes them: Host stays, and what the client said of proxies does not. */
export function requestHeaders(incoming: IncomingMessage, clientAddress: string): string[] {
  const dropped = droppedNames(incoming);
  const headers: string[] = [];
  for (const [name, value] of pairsOf(incoming.rawHeaders)) {
    const key = name.toLowerCase();
    if (!dropped.has(key) && !ownNames.has(key) && !key.startsWith('x-forwarded-')) headers.push(name, value);
  }
  const { forwarded } = cookiesOf(incoming);
  if (forwarded !== '') headers.push('Cookie', forwarded);
  const host = incoming.headers.host ?? '';
  headers.push('X-Forwarded-For', clientAddress, 'X-Forwarded-Host', host, 'X-Forwarded-Proto', 'https');
  headers.push(hopsName, String(hopsOf(incoming) + 1));
  return headers;
}

/** How the body goes to the application: as it came. */
export function bodyHeaders(incoming: IncomingMessage): string[] {
  if (incoming.headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked'];
  const isPlain = 'content-length' in incoming.headers || bodiless.has(incoming.method ?? '');
  return isPlain ? [] : ['Content-Length', '0'];
}

/** A cookie without its Domain: one for all hosts of the domain would be sent to neighbours, or stand in for theirs. */
function ofHostAlone(cookie: string): string {
  const [pair = '', ...attributes] = cookie.split(';');
  const nameOf = (attribute: string): string => (attribute.split('=', 1)[0] ?? '').trim().toLowerCase();
  return [pair, ...attributes.filter((attribute) => nameOf(attribute) !== 'domain')].join(';');
}

/** Headers for the client: all that are the application's to say. */
export function responseHeaders(response: IncomingMessage): string[] {
  const dropped = droppedNames(response);
  const headers: string[] = [];
  for (const [name, value] of pairsOf(response.rawHeaders)) {
    const key = name.toLowerCase();
    const isOwnCookie = key === 'set-cookie' && value.trim().toLowerCase().startsWith(cookieName.toLowerCase());
    if (!dropped.has(key) && !isOwnCookie) headers.push(name, key === 'set-cookie' ? ofHostAlone(value) : value);
  }
  return headers;
}
