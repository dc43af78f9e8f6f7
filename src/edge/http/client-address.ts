import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { headerValues, type RawRequest } from './raw-request.ts';

/**
 * Where a request comes from; `local` where it came over no network. X-Forwarded-For counts only where the connection
 * comes from a proxy that the operator named.
 */
export type ClientAddress = (request: RawRequest) => string;

/**
 * The address that a request is counted by: an IPv4 address, or the /64 of an IPv6 one, which a single host has for
 * itself.
 * @param trustedProxies addresses, or networks such as 10.0.0.0/8
 */
export function createClientAddress(trustedProxies: readonly string[]): ClientAddress {
  const wholeAddressOf = createWholeAddress(trustedProxies);
  return (request) => network(wholeAddressOf(request));
}

/** The address itself, for who is told where a request comes from. @param trustedProxies as above */
export function createWholeAddress(trustedProxies: readonly string[]): ClientAddress {
  const isTrusted = createIsTrusted(trustedProxies);
  return (request) => {
    const socketAddress = plain(request.socket?.remoteAddress ?? '');
    if (isIP(socketAddress) === 0) return 'local';
    if (trustedProxies.length === 0 || !isTrusted(socketAddress)) return socketAddress;
    // Each proxy appends the address that it was asked from: the last one that is no trusted proxy is the client's.
    const hops = headerValues(request, 'x-forwarded-for').flatMap((value) => value.split(','));
    for (const hop of hops.toReversed().map((text) => plain(text.trim()))) {
      if (isIP(hop) === 0) break;
      if (!isTrusted(hop)) return hop;
    }
    return socketAddress;
  };
}

/** Whether an address is one of the proxies. */
export function createIsTrusted(trustedProxies: readonly string[]): (address: string) => boolean {
  const trusted = new BlockList();
  for (const proxy of trustedProxies) {
    const [address = '', bits] = proxy.split('/');
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    if (bits === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(bits), family);
  }
  return (address) => trusted.check(address, isIPv4(address) ? 'ipv4' : 'ipv6');
}

/** An IPv4 address stays one when it came over a socket of both families, and the zone of an IPv6 one says nothing here. */
export function plain(address: string): string {
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
