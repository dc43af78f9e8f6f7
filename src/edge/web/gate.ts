import type { IncomingMessage } from 'node:http';
import type { Entrance, Exposure, Exposures } from '#core/exposures/exposures.ts';
import type { Throttle } from '#base/throttle.ts';
import type { Guesses } from './guesses.ts';
import { cookiesOf, hostOf, isLoop, isWellFormed, pairsOf } from './headers.ts';
import { type Page, pages } from './pages.ts';

/** What stands before an application: which one it is, and who may ask it. */

export interface GateParts {
  readonly exposures: Pick<Exposures, 'find' | 'isKnown' | 'admit' | 'enterPath'>;
  readonly keys: KeyFinder;
  /** Of operators' keys. */
  readonly guesses: Guesses;
  /** Counts cookies and links that are none, by address. */
  readonly wrongEntrances: Throttle;
  /** What guesses are counted by. */
  readonly addressOf: (incoming: IncomingMessage) => string;
}

/** Finds API keys of the gateway's in what is meant for an application. */
export interface KeyFinder {
  /** Whether a text holds one that was made here. */
  readonly holdsKey: (text: string) => boolean;
  /** Whether there are any that an operator chose. */
  readonly hasImported: () => boolean;
  /** Whether it is one that an operator chose. It is asked for strangers' words, and asks no store. */
  readonly isImported: (text: string) => boolean;
}

export type Passage =
  | { readonly kind: 'refused'; readonly page: Page }
  /** Somebody follows a link, and has not used it. */
  | { readonly kind: 'door'; readonly exposure: Exposure }
  /** A link is being used. */
  | { readonly kind: 'enter'; readonly exposure: Exposure; readonly link: string }
  | { readonly kind: 'open'; readonly exposure: Exposure; readonly entrance: Entrance | null };

const refused = (page: Page): Passage => ({ kind: 'refused', page });

/** @throws what the stores throw */
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
 * Programs that show where a link leads, and mail servers that look for malware, ask for it before anybody does: only a
 * form that a person sends uses it.
 */
function follow(incoming: IncomingMessage, exposure: Exposure, link: string): Passage {
  const { method = '' } = incoming;
  if (method === 'GET' || method === 'HEAD') return { kind: 'door', exposure };
  if (method !== 'POST') return refused(pages.badLinkMethod);
  return isSentByOwnPage(incoming) ? { kind: 'enter', exposure, link } : refused(pages.otherSite);
}

/** Null for every other path. */
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
  // A browser has one of the name: who sends more plays games.
  return secret === undefined || others.length > 0 ? null : exposures.admit(exposure, secret);
}

/**
 * Applications below one domain are one site for browsers, so a page of a neighbour's would ask with its visitor's
 * cookie: what another page asks for is refused, unless the visitor goes there.
 */
function isOwnSite(incoming: IncomingMessage): boolean {
  const { origin, host = '', 'sec-fetch-site': site, 'sec-fetch-mode': mode } = incoming.headers;
  if (origin !== undefined && origin.toLowerCase() !== `https://${host.toLowerCase()}`) return false;
  return site === undefined || site === 'same-origin' || site === 'none' || mode === 'navigate';
}

/** Nobody is led into an application by a form of another page: browsers name the page of every POST. */
function isSentByOwnPage(incoming: IncomingMessage): boolean {
  const site = incoming.headers['sec-fetch-site'];
  return isOwnSite(incoming) && (site === undefined || site === 'same-origin');
}

/** Between the words of a value, from the whole of it to single words: a key that an operator chose may hold any of them. */
const separators = [/\s+/, /[\s,;=&?"'<>()]+/, /[^A-Za-z0-9_~+-]+/];
/** Operators' keys have no fewer characters. */
const importedMin = 32;
/** As SDKs send a key with a websocket from a page. */
const protocolPrefix = 'openai-insecure-api-key.';

/** Of a cookie or a link that is none: the page for it, while an address has not sent too many of them. */
export async function guessed(
  incoming: IncomingMessage,
  { wrongEntrances, addressOf }: Pick<GateParts, 'wrongEntrances' | 'addressOf'>,
  page: Page,
): Promise<Page> {
  const { allowed, resetMs } = await wrongEntrances.hit(addressOf(incoming));
  if (allowed) return page;
  return { ...pages.tooManyGuesses, headers: { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) } };
}

/** An application must not learn keys of people who take its address for that of the gateway. */
function keyRefusal(incoming: IncomingMessage, { keys, guesses, addressOf }: GateParts): Page | null {
  const values = valuesOfRequest(incoming);
  if (values.some((value) => keys.holdsKey(value))) return pages.keyInRequest;
  if (!keys.hasImported()) return null;
  const words = new Set(values.flatMap((value) => [...wordsOf(value)]).filter((word) => word.length >= importedMin));
  if (guesses.areTooMany(addressOf(incoming), words)) return pages.tooManyGuesses;
  return [...words].some((word) => keys.isImported(word)) ? pages.keyInRequest : null;
}

/** Everything of a request but its body, as it came and decoded. */
function valuesOfRequest({ url = '', rawHeaders }: IncomingMessage): readonly string[] {
  const values = [url, decoded(url)];
  for (const [, value] of pairsOf(rawHeaders)) values.push(value, decoded(value), ...basicOf(value));
  return [...new Set(values)];
}

function wordsOf(value: string): Set<string> {
  const words = new Set([value.trim()]);
  for (const separator of separators) {
    for (const word of value.split(separator)) {
      words.add(word);
      if (word.startsWith(protocolPrefix)) words.add(word.slice(protocolPrefix.length));
    }
  }
  // A parameter or a cookie whose value has separators in it.
  for (const part of value.split(/[;&?]/)) words.add(part.slice(part.indexOf('=') + 1).trim());
  return words;
}

/** User and password of `Basic` credentials. */
function basicOf(value: string): string[] {
  const [scheme = '', text = ''] = value.trim().split(/\s+/, 2);
  if (scheme.toLowerCase() !== 'basic') return [];
  const plain = Buffer.from(text, 'base64').toString('latin1');
  const colon = plain.indexOf(':');
  return [plain.slice(0, colon), plain.slice(colon + 1)];
}

/** One wrong escape leaves the others as they are meant. */
function decoded(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (_, digits: string) => String.fromCodePoint(Number.parseInt(digits, 16)));
}
