import type { IncomingMessage } from 'node:http';
import type { Throttle } from '#base/redis/redis.ts';
import type { Entrance, Exposure, Exposures } from '#core/web-addresses/web-addresses.ts';
import type { Guesses } from './guesses.ts';
import { cookiesOf, hostOf, isLoop, isWellFormed, pairsOf } from './headers.ts';
import { type Page, pages } from './pages.ts';

/** Decides about each request for an application: which application it is for, and whether it may pass. */

export interface GateParts {
  readonly exposures: Pick<Exposures, 'find' | 'isKnown' | 'admit' | 'enterPath'>;
  readonly keys: KeyFinder;
  /** Limits guesses at imported keys. */
  readonly guesses: Guesses;
  /** Counts invalid cookies and links, by address. */
  readonly wrongEntrances: Throttle;
  /** Returns the client address that guesses are counted by. */
  readonly addressOf: (incoming: IncomingMessage) => string;
}

/** Finds API keys of this gateway in requests for applications. */
export interface KeyFinder {
  /** True if the text contains a key that was created here. */
  readonly holdsKey: (text: string) => boolean;
  /** True if there are imported keys, which an operator chose. */
  readonly hasImported: () => boolean;
  /** True if the text is an imported key. Checked for untrusted texts, so it must not query a store. */
  readonly isImported: (text: string) => boolean;
}

export type Passage =
  | { readonly kind: 'refused'; readonly page: Page }
  /** Somebody opens a link, without using it yet. */
  | { readonly kind: 'door'; readonly exposure: Exposure }
  /** Somebody uses a link. */
  | { readonly kind: 'enter'; readonly exposure: Exposure; readonly link: string }
  | { readonly kind: 'open'; readonly exposure: Exposure; readonly entrance: Entrance | null };

const refused = (page: Page): Passage => ({ kind: 'refused', page });

/** Decides whether a request passes. @throws errors of the stores */
export async function pass(incoming: IncomingMessage, parts: GateParts): Promise<Passage> {
  const { exposures } = parts;
  const host = hostOf(incoming);
  if (host === null || !isWellFormed(incoming)) return refused(pages.badRequest);
  const exposure = exposures.find(host);
  if (exposure === null) return refused(exposures.isKnown() ? pages.noApplication : pages.notYet);
  if (isLoop(incoming)) return refused(pages.loop);
  if (incoming.method === 'TRACE') return refused(pages.badMethod);
  const ofKeys = keyRefusal(incoming, parts);
  if (ofKeys !== null) return refused(ofKeys);
  if (exposure.isSuspended) return refused(pages.suspended);
  const link = linkOf(incoming, exposures.enterPath);
  if (link !== null) return follow(incoming, exposure, link);
  if (exposure.access === 'public') return { kind: 'open', exposure, entrance: null };
  const entrance = await findEntrance(incoming, exposure, exposures);
  if (entrance === null)
    return refused(
      cookiesOf(incoming).own.length === 0 ? pages.members : await guessed(incoming, parts, pages.members),
    );
  return isOwnSite(incoming) ? { kind: 'open', exposure, entrance } : refused(pages.otherSite);
}

/**
 * Uses a link only for a POST by a form. Programs that preview links, and mail servers that scan for malware, request a
 * link before a person does.
 */
function follow(incoming: IncomingMessage, exposure: Exposure, link: string): Passage {
  const { method = '' } = incoming;
  if (method === 'GET' || method === 'HEAD') return { kind: 'door', exposure };
  if (method !== 'POST') return refused(pages.badLinkMethod);
  return isSentByOwnPage(incoming) ? { kind: 'enter', exposure, link } : refused(pages.otherSite);
}

/** Returns the link's secret; null if the path is not that of links. */
function linkOf({ url = '' }: IncomingMessage, enterPath: string): string | null {
  const [path, query = ''] = url.split('?', 2);
  return path === enterPath ? (new URLSearchParams(query).get('link') ?? '') : null;
}

async function findEntrance(
  incoming: IncomingMessage,
  exposure: Exposure,
  exposures: Pick<Exposures, 'admit'>,
): Promise<Entrance | null> {
  const [secret, ...others] = cookiesOf(incoming).own;
  // A browser sends one cookie of this name. Several cookies are an attempt to trick the gateway.
  return secret === undefined || others.length > 0 ? null : exposures.admit(exposure, secret);
}

/**
 * True if a page of this application, or no page, sent the request, or if the visitor navigates here. Applications
 * below one domain are one site for browsers, so requests by a neighbor's page would carry this visitor's cookie.
 */
function isOwnSite(incoming: IncomingMessage): boolean {
  const { origin, host = '', 'sec-fetch-site': site, 'sec-fetch-mode': mode } = incoming.headers;
  if (origin !== undefined && origin.toLowerCase() !== `https://${host.toLowerCase()}`) return false;
  return site === undefined || site === 'same-origin' || site === 'none' || mode === 'navigate';
}

/**
 * True if the application's own page sent the form, so that forms of other pages cannot open an application. Browsers
 * send the origin of every POST.
 */
function isSentByOwnPage(incoming: IncomingMessage): boolean {
  const site = incoming.headers['sec-fetch-site'];
  return isOwnSite(incoming) && (site === undefined || site === 'same-origin');
}

/** Separators that split a value, from whole values to single words: an imported key may contain any of them. */
const separators = [/\s+/, /[\s,;=&?"'<>()]+/, /[^A-Za-z0-9_~+-]+/];
/** Fewest characters of an imported key. */
const importedMin = 32;
/** Prefix with which SDKs in a browser send a key for a websocket. */
const protocolPrefix = 'openai-insecure-api-key.';

/** Counts an invalid cookie or link, and returns its page; another page after too many from one address. */
export async function guessed(
  incoming: IncomingMessage,
  { wrongEntrances, addressOf }: Pick<GateParts, 'wrongEntrances' | 'addressOf'>,
  page: Page,
): Promise<Page> {
  const { allowed, resetMs } = await wrongEntrances.hit(addressOf(incoming));
  if (allowed) return page;
  return { ...pages.tooManyGuesses, headers: { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) } };
}

/**
 * Rejects requests that contain API keys, because the application must not learn keys of people who mistake its address
 * for the gateway's.
 */
function keyRefusal(incoming: IncomingMessage, { keys, guesses, addressOf }: GateParts): Page | null {
  const values = valuesOfRequest(incoming);
  if (values.some((value) => keys.holdsKey(value))) return pages.keyInRequest;
  if (!keys.hasImported()) return null;
  const candidates = new Set(
    values.flatMap((value) => [...candidateKeysOf(value)]).filter((word) => word.length >= importedMin),
  );
  if (guesses.areTooMany(addressOf(incoming), candidates)) return pages.tooManyGuesses;
  return [...candidates].some((word) => keys.isImported(word)) ? pages.keyInRequest : null;
}

/** Returns the URL and all header values, raw and decoded. The body is not included. */
function valuesOfRequest({ url = '', rawHeaders }: IncomingMessage): readonly string[] {
  const values = [url, decoded(url)];
  for (const [, value] of pairsOf(rawHeaders)) values.push(value, decoded(value), ...basicOf(value));
  return [...new Set(values)];
}

function candidateKeysOf(value: string): Set<string> {
  const candidates = new Set([value.trim()]);
  for (const separator of separators) {
    for (const word of value.split(separator)) {
      candidates.add(word);
      if (word.startsWith(protocolPrefix)) candidates.add(word.slice(protocolPrefix.length));
    }
  }
  // Parameters and cookies whose values contain separators.
  for (const part of value.split(/[;&?]/)) candidates.add(part.slice(part.indexOf('=') + 1).trim());
  return candidates;
}

/** Returns user and password of `Basic` credentials. */
function basicOf(value: string): string[] {
  const [scheme = '', text = ''] = value.trim().split(/\s+/, 2);
  if (scheme.toLowerCase() !== 'basic') return [];
  const plain = Buffer.from(text, 'base64').toString('latin1');
  const colon = plain.indexOf(':');
  return [plain.slice(0, colon), plain.slice(colon + 1)];
}

/** Decodes percent-encoding escape by escape, so that an invalid escape does not affect the others. */
function decoded(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (_, digits: string) => String.fromCodePoint(Number.parseInt(digits, 16)));
}
