import type { IncomingMessage } from 'node:http';
import type { Entrance, Exposure, Exposures } from '#core/exposures/exposures.ts';
import { cookiesOf, hostOf, isLoop, isWellFormed, pairsOf } from './headers.ts';
import { type Page, pages } from './pages.ts';

/** What stands before an application: which one it is, and who may ask it. */

export interface GateParts {
  readonly exposures: Pick<Exposures, 'find' | 'isKnown' | 'admit' | 'enterPath'>;
  readonly keys: KeyFinder;
}

/** Finds API keys of the gateway's in what is meant for an application. */
export interface KeyFinder {
  /** Whether a text holds one that was made here. */
  readonly holdsKey: (text: string) => boolean;
  /** Whether it is one that an operator chose. It is asked for strangers' words, and asks no store. */
  readonly isImported: (text: string) => boolean;
}

export type Passage =
  | { readonly kind: 'refused'; readonly page: Page }
  /** A link is being used. */
  | { readonly kind: 'enter'; readonly exposure: Exposure; readonly link: string }
  | { readonly kind: 'open'; readonly exposure: Exposure; readonly entrance: Entrance | null };

const refused = (page: Page): Passage => ({ kind: 'refused', page });

/** @throws what the stores throw */
export async function pass(incoming: IncomingMessage, { exposures, keys }: GateParts): Promise<Passage> {
  const host = hostOf(incoming);
  if (host === null || !isWellFormed(incoming)) return refused(pages.badRequest);
  const exposure = exposures.find(host);
  if (exposure === null) return refused(exposures.isKnown() ? pages.noApplication : pages.notYet);
  if (isLoop(incoming)) return refused(pages.loop);
  if (incoming.method === 'TRACE') return refused(pages.badMethod);
  if (holdsKey(incoming, keys)) return refused(pages.keyInRequest);
  const link = linkOf(incoming, exposures.enterPath);
  if (link !== null) {
    return incoming.method === 'GET' ? { kind: 'enter', exposure, link } : refused(pages.badMethod);
  }
  if (exposure.access === 'public') return { kind: 'open', exposure, entrance: null };
  const entrance = await findEntrance(incoming, exposure, exposures);
  if (entrance === null) return refused(pages.members);
  return isOwnSite(incoming) ? { kind: 'open', exposure, entrance } : refused(pages.otherSite);
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

/** Between the words of a value, from the whole of it to single words: a key that an operator chose may hold any of them. */
const separators = [/\s+/, /[\s,;=&?"'<>()]+/, /[^A-Za-z0-9_~+-]+/];
/** Operators' keys have no fewer characters. */
const importedMin = 32;
/** As SDKs send a key with a websocket from a page. */
const protocolPrefix = 'openai-insecure-api-key.';

/** An application must not learn keys of people who take its address for that of the gateway. */
function holdsKey({ url = '', rawHeaders }: IncomingMessage, keys: KeyFinder): boolean {
  const values = [url, decoded(url)];
  for (const [, value] of pairsOf(rawHeaders)) values.push(value, decoded(value), ...basicOf(value));
  for (const value of new Set(values)) {
    if (keys.holdsKey(value)) return true;
    for (const word of wordsOf(value)) if (word.length >= importedMin && keys.isImported(word)) return true;
  }
  return false;
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
