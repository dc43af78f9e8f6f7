import { createHmac } from 'node:crypto';
import { deleteCookie } from 'hono/cookie';
import { parse, serialize } from 'hono/utils/cookie';
import { formTokenOf } from '#core/sessions/sessions.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { headerOf, type Place } from './place.ts';

/**
 * What a page says of the change that led to it. The address has a word for it, which anybody can write into a link;
 * a cookie proves that a form of this very session led there. It is said once.
 */

const lastsSeconds = 300;

const nameOf = ({ cookieName }: Place): string => `${cookieName}-notice`;

const attributes = ({ isSecure: secure }: Place) => ({ path: '/', httpOnly: true, sameSite: 'Lax', secure }) as const;

const proofOf = (token: string, address: URL): string =>
  createHmac('sha256', formTokenOf(token)).update(`notice ${address.pathname}${address.search}`).digest('base64url');

/** The answer to a form, which may lead to a page that says what was done. */
export function withNotice(response: Response, place: Place, token: string): Response {
  const to = response.headers.get('location');
  const address = to === null ? null : new URL(to, place.origin);
  if (address?.searchParams.has('notice') !== true) return response;
  const cookie = serialize(nameOf(place), proofOf(token, address), { ...attributes(place), maxAge: lastsSeconds });
  response.headers.append('set-cookie', cookie);
  return response;
}

/** The word in the address, where a form of this session led to it just now; else empty. */
export function takeNotice(context: HttpContext, place: Place, token: string): string {
  const name = nameOf(place);
  const address = new URL(context.req.url);
  const proof = parse(headerOf(context, 'cookie') ?? '', name)[name];
  if (proof !== proofOf(token, address)) return '';
  deleteCookie(context, name, attributes(place));
  return address.searchParams.get('notice') ?? '';
}
