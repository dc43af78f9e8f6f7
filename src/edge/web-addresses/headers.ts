import type { IncomingMessage } from 'node:http';

/** Headers that go to an application, and headers that come back. */

/** The prefix binds the cookie to its host: other hosts, even below the same domain, can neither set nor read it. */
export const cookieName = '__Host-headgate_access';
const hopsName = 'x-headgate-hops';
/** Most gateways in a chain: an application may lead to another application, but not in a loop. */
const hopsMax = 4;

/** Headers of a single connection (RFC 9110, section 7.6.1). */
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
/** Headers about the client that only the gateway may set. */
const ownNames: ReadonlySet<string> = new Set(['forwarded', 'x-real-ip', 'expect', 'cookie', hopsName]);
/** Headers that a Connection header may not remove. */
const framing: ReadonlySet<string> = new Set(['content-length', 'host']);
/** Methods whose requests have no body by default (Node's list). */
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

/** Returns the requested host in lower case, without a port; null unless the request names exactly one. */
export function hostOf(incoming: IncomingMessage): string | null {
  const [value, ...others] = valuesOf(incoming, 'host');
  if (value === undefined || others.length > 0) return null;
  return /^([A-Za-z0-9.-]{1,253})(?::\d{1,5})?$/.exec(value)?.[1]?.toLowerCase() ?? null;
}

/** True unless a request is framed in two ways or bypasses the Host header; such requests are not passed on. */
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

/** Cookies of a request: the application's and the gateway's. */
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

/**
 * Returns headers for the application, flat as Node accepts them. Keeps Host, and drops the client's headers about
 * proxies.
 */
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

/** Returns headers that frame the body as it arrived. */
export function bodyHeaders(incoming: IncomingMessage): string[] {
  if (incoming.headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked'];
  const isPlain = 'content-length' in incoming.headers || bodiless.has(incoming.method ?? '');
  return isPlain ? [] : ['Content-Length', '0'];
}

/** Removes the cookie's Domain: a cookie for the whole domain would be sent to neighbors, or override theirs. */
function withoutDomain(cookie: string): string {
  const [pair = '', ...attributes] = cookie.split(';');
  const nameOf = (attribute: string): string => (attribute.split('=', 1)[0] ?? '').trim().toLowerCase();
  return [pair, ...attributes.filter((attribute) => nameOf(attribute) !== 'domain')].join(';');
}

/** Returns headers for the client. Drops hop-by-hop headers, and cookies under the gateway's own name. */
export function responseHeaders(response: IncomingMessage): string[] {
  const dropped = droppedNames(response);
  const headers: string[] = [];
  for (const [name, value] of pairsOf(response.rawHeaders)) {
    const key = name.toLowerCase();
    const isOwnCookie = key === 'set-cookie' && value.trim().toLowerCase().startsWith(cookieName.toLowerCase());
    if (!dropped.has(key) && !isOwnCookie) headers.push(name, key === 'set-cookie' ? withoutDomain(value) : value);
  }
  return headers;
}
