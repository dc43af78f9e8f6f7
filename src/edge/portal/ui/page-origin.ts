import { deleteCookie, setCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';
import { AppError } from '#base/errors.ts';
import type { HttpContext, IsSecure } from '#edge/http/http.ts';

/** The origin from which a browser loads the pages, and the cookie name for it. */
export interface Place {
  /** `https://host[:port]`, or `http://…`. */
  readonly origin: string;
  readonly host: string;
  readonly isSecure: boolean;
  /** True if a session may start here: over TLS, or on this machine. */
  readonly isSafe: boolean;
  readonly cookieName: string;
}

const hostPattern = /^(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/;
const loopbackPattern = /^(?:localhost|[A-Za-z0-9-]+\.localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])$/i;

/** @throws AppError invalid_request_error if the Host header is not the name of a host */
export function placeOf(context: HttpContext, isSecureRequest: IsSecure): Place {
  const { incoming } = context.env;
  const host = incoming.headers.host ?? '';
  if (!hostPattern.test(host)) {
    throw new AppError('invalid_request_error', { message: 'The Host header does not name a host.' });
  }
  const isSecure = isSecureRequest(incoming);
  const [, name = host, port = '80'] = /^(.*?)(?::(\d+))?$/.exec(host) ?? [];
  return {
    origin: `${isSecure ? 'https' : 'http'}://${host}`,
    host,
    isSecure,
    isSafe: isSecure || loopbackPattern.test(name),
    // Browsers share cookies between the ports of a host, so gateways on one host need different names.
    cookieName: isSecure ? '__Host-headgate' : `headgate-${port}`,
  };
}

/** Returns a header as it was received. Hono replaces the request, and its headers, after reading a form. */
export function headerOf({ env: { incoming } }: HttpContext, name: string): string | null {
  const value = incoming.headers[name];
  return typeof value === 'string' ? value : null;
}

/** True if a page polls by itself. Polling does not extend the session and does not count against limits. */
export const asksByItself = (context: HttpContext): boolean => headerOf(context, 'x-poll') !== null;

/** Returns the session token in the browser's cookie; null outside of safe places. */
export function tokenOf(context: HttpContext, { isSafe, cookieName }: Place): string | null {
  return isSafe ? (parse(headerOf(context, 'cookie') ?? '', cookieName)[cookieName] ?? null) : null;
}

export function keepToken(context: HttpContext, place: Place, token: string, maxAgeSeconds: number): void {
  const { cookieName, isSecure: secure } = place;
  setCookie(context, cookieName, token, {
    path: '/',
    httpOnly: true,
    sameSite: 'Lax',
    secure,
    maxAge: maxAgeSeconds,
  });
}

export function forgetToken(context: HttpContext, { cookieName, isSecure: secure }: Place): void {
  deleteCookie(context, cookieName, { path: '/', secure, httpOnly: true, sameSite: 'Lax' });
}

/** Suggests the next action. An origin that differs only in TLS means that the proxy is not a trusted one. */
function nextStep(sent: string | null, origin: string): string {
  const isTlsHidden = sent !== origin && sent === origin.replace(/^http:/, 'https:');
  if (!isTlsHidden) return 'Open the page here and send the form again.';
  return 'If a TLS proxy is in front of the gateway, name its address in HEADGATE_TRUSTED_PROXIES.';
}

/**
 * Accepts forms only from pages of this origin. Browsers send the origin of a form, and no page can fake it (Fetch,
 * sections 3.2 and 3.7).
 * @throws AppError insufficient_scope
 */
export function requireOwnOrigin(context: HttpContext, { origin }: Place): void {
  const site = headerOf(context, 'sec-fetch-site') ?? 'same-origin';
  if (headerOf(context, 'origin') === origin && site === 'same-origin') return;
  throw new AppError('insufficient_scope', {
    message: `This form was not sent by a page of ${origin}, so nothing was changed. ${nextStep(headerOf(context, 'origin'), origin)}`,
  });
}
