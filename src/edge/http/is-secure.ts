import { createIsTrusted, plain } from './client-address.ts';
import { headerValues, type RawRequest } from './raw-request.ts';

/**
 * True if a browser's request came over TLS, which a proxy that the operator named reports in X-Forwarded-Proto. The
 * gateway's own port speaks plain HTTP.
 */
export type IsSecure = (request: RawRequest) => boolean;

/** @param trustedProxies addresses, or networks such as 10.0.0.0/8 */
export function createIsSecure(trustedProxies: readonly string[]): IsSecure {
  const isTrusted = createIsTrusted(trustedProxies);
  return (request) => {
    if (trustedProxies.length === 0 || !isTrusted(plain(request.socket?.remoteAddress ?? ''))) return false;
    // The last value is from the nearest proxy.
    const protocols = headerValues(request, 'x-forwarded-proto').flatMap((value) => value.split(','));
    return protocols.at(-1)?.trim().toLowerCase() === 'https';
  };
}
