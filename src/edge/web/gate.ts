import type { IncomingMessage } from 'node:http';
import type { Entrance, Exposure, Exposures } from '#core/exposures/exposures.ts';
import { cookiesOf, hostOf, isLoop, isWellFormed, pairsOf, valuesOf } from './headers.ts';
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
  /** Whether it is one, of whatever form. */
  readonly isKey: (text: string) => boolean | Promise<boolean>;
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
  if (await holdsKey(incoming, keys)) return refused(pages.keyInRequest);
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

/** An application must not learn keys of people who take its address for that of the gateway. */
async function holdsKey(incoming: IncomingMessage, keys: KeyFinder): Promise<boolean> {
  const { url = '', rawHeaders } = incoming;
  if (keys.holdsKey(decoded(url))) return true;
  for (const [, value] of pairsOf(rawHeaders)) if (keys.holdsKey(value)) return true;
  const given = [
    ...valuesOf(incoming, 'authorization').flatMap(credentialsOf),
    ...valuesOf(incoming, 'x-api-key'),
    ...valuesOf(incoming, 'api-key'),
  ];
  for (const text of given) if (keys.holdsKey(text) || (await keys.isKey(text))) return true;
  return false;
}

function credentialsOf(value: string): string[] {
  const [scheme = '', text = ''] = value.trim().split(/ +/, 2);
  if (scheme.toLowerCase() !== 'basic') return [text];
  const plain = Buffer.from(text, 'base64').toString('latin1');
  const colon = plain.indexOf(':');
  return [plain.slice(0, colon), plain.slice(colon + 1)];
}

function decoded(url: string): string {
  try {
    return decodeURIComponent(url);
  } catch {
    return url;
  }
}
