import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { request } from 'node:https';
import { connect as connectTls } from 'node:tls';
import { AppError } from '#base/errors.ts';
import { dialFirst, isPublicAddress, literalAddress, type Outbound } from '#base/net/net.ts';
import { ConcurrencyLimit } from '#base/queues/queues.ts';
import { packageBytesMax, PackageRefusedError, sizeText } from '#core/stacks/package/package.ts';

/** Network access for downloads of packages and icons. */
export interface Downloads {
  readonly outbound: Outbound;
  /** Ports that a URL may name; only 443 by default. */
  readonly ports: readonly number[];
  readonly timeoutMs: number;
}

/** A kind of download, with its limits. */
export interface Wanted {
  /** Name in messages and of the queue: images and packages do not wait for each other. */
  readonly what: 'package' | 'image';
  readonly bytesMax: number;
  readonly tooLarge: () => AppError;
}

const redirectsMax = 3;
const urlCharsMax = 2048;
const redirects = new Set([301, 302, 303, 307, 308]);

const downloadLimit = new ConcurrencyLimit({ atOncePerNameMax: 4, waitingPerNameMax: 32, waitMsMax: 30_000 });

export const packageTooLarge = (): AppError =>
  new AppError('package_too_large', { message: `The package is larger than ${sizeText(packageBytesMax)}.` });

const wantedPackage: Wanted = { what: 'package', bytesMax: packageBytesMax, tooLarge: packageTooLarge };

/**
 * Downloads an https URL, only from public addresses: each host is resolved once, all its addresses are checked, and
 * the connection goes to the first of them that accepts. Redirects follow the same rules. No cookie, key or other part
 * of the caller's request is sent.
 * @throws PackageRefusedError with the problem of the URL or the response; AppError package_too_large; TooManyWaitError
 */
export function download(url: string, downloads: Downloads, wanted: Wanted = wantedPackage): Promise<Buffer> {
  return downloadLimit.during(wanted.what, () => fetchFollowing(url, downloads, wanted));
}

async function fetchFollowing(first: string, downloads: Downloads, wanted: Wanted): Promise<Buffer> {
  const deadline = new AbortController();
  const late = refusal(`did not send the ${wanted.what} within ${downloads.timeoutMs / 1000} seconds`);
  const timer = setTimeout(() => deadline.abort(late), downloads.timeoutMs);
  try {
    let url = parseUrl(first, null, downloads.ports);
    for (let hop = 0; hop <= redirectsMax; hop += 1) {
      const answer = await fetchOnce(url, downloads, wanted, deadline.signal);
      if (answer.kind === 'found') return answer.bytes;
      url = parseUrl(answer.location, url, downloads.ports);
    }
    throw refusal(`was redirected more than ${redirectsMax} times`);
  } finally {
    clearTimeout(timer);
  }
}

const refusal = (message: string): PackageRefusedError => new PackageRefusedError([{ field: 'url', message }]);

/** @param base URL that redirected here; null for the requested URL. @throws PackageRefusedError */
function parseUrl(text: string, base: URL | null, ports: readonly number[]): URL {
  const where = base === null ? '' : 'was redirected to an address that ';
  const url = text.length > urlCharsMax ? null : URL.parse(text, base?.href);
  if (url === null) throw refusal(base === null ? 'must be a URL' : `${where}is not a URL`);
  const problems: string[] = [];
  if (url.protocol !== 'https:') problems.push('must begin with https://');
  if (url.username !== '' || url.password !== '') problems.push('must not contain a user or a password');
  if (url.protocol === 'https:' && !ports.includes(Number(url.port || 443))) {
    problems.push(`must use no port other than ${ports.join(', ')}`);
  }
  const literal = literalAddress(url.hostname);
  if (literal !== null && !isPublicAddress(literal)) problems.push('must be a public address');
  if (problems.length > 0) {
    throw new PackageRefusedError(problems.map((message) => ({ field: 'url', message: where + message })));
  }
  return url;
}

type Fetched =
  | { readonly kind: 'found'; readonly bytes: Buffer }
  | { readonly kind: 'redirect'; readonly location: string };

async function fetchOnce(url: URL, { outbound }: Downloads, wanted: Wanted, signal: AbortSignal): Promise<Fetched> {
  const addresses = await publicAddressesOf(url.hostname, outbound, signal);
  const raw = await dialFirst(outbound, addresses, Number(url.port || 443), signal).catch((error: unknown) => {
    throw signal.aborted ? error : refusal('is unreachable');
  });
  const response = await ask(url, raw, signal);
  try {
    const status = response.statusCode ?? 0;
    const { location } = response.headers;
    if (redirects.has(status) && location !== undefined) return { kind: 'redirect', location };
    if (status !== 200) throw refusal(`returned status ${status}`);
    const encoding = response.headers['content-encoding'] ?? 'identity';
    if (encoding !== 'identity') throw refusal('used a content encoding that was not requested');
    return { kind: 'found', bytes: await readBytes(response, wanted, signal) };
  } finally {
    response.destroy();
  }
}

/** Returns the addresses that the connection may use, so that the name is not resolved a second time. */
async function publicAddressesOf(
  hostname: string,
  outbound: Outbound,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const literal = literalAddress(hostname);
  if (literal !== null) return [literal];
  const addresses = await outbound.resolve(hostname, signal).catch(() => []);
  signal.throwIfAborted();
  if (addresses.length === 0) throw refusal('has a host name that cannot be resolved');
  if (!addresses.every(isPublicAddress)) throw refusal('has a host whose address is not public');
  return addresses;
}

function ask(url: URL, raw: Socket, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const fail = (): void => reject(signal.aborted ? (signal.reason as Error) : refusal('is unreachable'));
    const servername = literalAddress(url.hostname) === null ? url.hostname : '';
    const socket = connectTls({ socket: raw, servername, host: url.hostname.replace(/^\[(.*)\]$/, '$1') });
    raw.on('error', fail);
    socket.on('error', fail);
    const outgoing = request(url, {
      // Any agent, and `false` too, would resolve the name and connect by itself.
      createConnection: () => socket,
      // Without an agent the default port is unknown, and the Host header would name port 80.
      defaultPort: 443,
      signal,
      headers: { 'user-agent': 'headgate', accept: '*/*', 'accept-encoding': 'identity' },
      maxHeaderSize: 16_384,
    });
    outgoing.on('response', resolve);
    outgoing.on('error', () => {
      raw.destroy();
      fail();
    });
    // For a response that changes the protocol, Node.js emits only this event: no response and no error.
    outgoing.on('close', fail);
    outgoing.end();
  });
}

async function readBytes(
  response: IncomingMessage,
  { what, bytesMax, tooLarge }: Wanted,
  signal: AbortSignal,
): Promise<Buffer> {
  if (Number(response.headers['content-length'] ?? 0) > bytesMax) throw tooLarge();
  const parts: Buffer[] = [];
  let length = 0;
  try {
    for await (const part of response as AsyncIterable<Buffer>) {
      length += part.length;
      if (length > bytesMax) throw tooLarge();
      parts.push(part);
    }
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw signal.aborted ? (signal.reason as Error) : refusal(`closed the connection before the ${what} was complete`);
  }
  return Buffer.concat(parts);
}
