import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { headerValues, type RawRequest } from './raw-request.ts';

/**
 * Returns the address that a request comes from; `local` if the connection uses no network. X-Forwarded-For is read
 * only if the connection comes from a proxy that the operator named.
 */
export type ClientAddress = (request: RawRequest) => string;

/**
 * Creates a function that returns the address to count a request by: an IPv4 address, or the /64 network of an IPv6
 * address, since a single host has a whole /64 for itself.
 * @param trustedProxies addresses, or networks such as 10.0.0.0/8
 */
export function createClientAddress(trustedProxies: readonly string[]): ClientAddress {
  const wholeAddressOf = createWholeAddress(trustedProxies);
  return (request) => network(wholeAddressOf(request));
}

/**
 * Creates a function that returns the full address, for reports of where a request comes from. @param trustedProxies as
 * above
 */
export function createWholeAddress(trustedProxies: readonly string[]): ClientAddress {
  const isTrusted = createIsTrusted(trustedProxies);
  return (request) => {
    const socketAddress = plain(request.socket?.remoteAddress ?? '');
    if (isIP(socketAddress) === 0) return 'local';
    if (trustedProxies.length === 0 || !isTrusted(socketAddress)) return socketAddress;
    // Each proxy appends the address that called it: the last address that is not a trusted proxy is the client's.
    const hops = headerValues(request, 'x-forwarded-for').flatMap((value) => value.split(','));
    for (const hop of hops.toReversed().map((text) => plain(text.trim()))) {
      if (isIP(hop) === 0) break;
      if (!isTrusted(hop)) return hop;
    }
    return socketAddress;
  };
}

/** Creates a function that returns true if an address is one of the proxies. */
function createIsTrusted(trustedProxies: readonly string[]): (address: string) => boolean {
  const trusted = new BlockList();
  for (const proxy of trustedProxies) {
    const [address = '', bits] = proxy.split('/');
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    if (bits === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(bits), family);
  }
  return (address) => trusted.check(address, isIPv4(address) ? 'ipv4' : 'ipv6');
}

/** Returns an IPv4-mapped IPv6 address as IPv4, and an IPv6 address without its zone, which has no meaning here. */
function plain(address: string): string {
  return /^::ffff:(\d{1,3}(?:\.\d{1,3}){3})$/i.exec(address)?.[1] ?? address.replace(/%.*$/, '');
}

function network(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = '', tail] = address.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0');
  const groups = [...left, ...(tail === undefined ? [] : zeros), ...right].slice(0, 4);
  return `${groups.map((group) => Number.parseInt(group, 16).toString(16)).join(':')}::/64`;
}

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
