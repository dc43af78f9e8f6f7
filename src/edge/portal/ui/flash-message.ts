import { createHmac } from 'node:crypto';
import { deleteCookie } from 'hono/cookie';
import { parse, serialize } from 'hono/utils/cookie';
import { formTokenOf } from '#core/sessions/sessions.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { headerOf, type Place } from './page-origin.ts';

/**
 * The notice on a page about the change that led to it. The notice's word is in the URL, which anybody can write into a
 * link; a cookie proves that a form of this session led here. The notice is shown once.
 */

const lastsSeconds = 300;

const nameOf = ({ cookieName }: Place): string => `${cookieName}-notice`;

const attributes = ({ isSecure: secure }: Place) => ({ path: '/', httpOnly: true, sameSite: 'Lax', secure }) as const;

const proofOf = (token: string, address: URL): string =>
  createHmac('sha256', formTokenOf(token)).update(`notice ${address.pathname}${address.search}`).digest('base64url');

/** Adds the proof cookie to a form's answer, if the answer leads to a page with a notice. */
export function withNotice(response: Response, place: Place, token: string): Response {
  const to = response.headers.get('location');
  const address = to === null ? null : new URL(to, place.origin);
  if (address?.searchParams.has('notice') !== true) return response;
  const cookie = serialize(nameOf(place), proofOf(token, address), { ...attributes(place), maxAge: lastsSeconds });
  response.headers.append('set-cookie', cookie);
  return response;
}

/** Returns the word in the URL if a form of this session just led here; otherwise empty. */
export function takeNotice(context: HttpContext, place: Place, token: string): string {
  const name = nameOf(place);
  const address = new URL(context.req.url);
  const proof = parse(headerOf(context, 'cookie') ?? '', name)[name];
  if (proof !== proofOf(token, address)) return '';
  deleteCookie(context, name, attributes(place));
  return address.searchParams.get('notice') ?? '';
}
