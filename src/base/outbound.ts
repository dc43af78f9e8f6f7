import { lookup } from 'node:dns/promises';
import { connect, isIP, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';

/** How this process reaches hosts of the internet that somebody names. */
export interface Outbound {
  /** All addresses of a host. */
  resolve(hostname: string): Promise<readonly string[]>;
  /** A connection to an address that was found to be public. */
  dial(address: string, port: number): Socket;
}

export const internet: Outbound = {
  resolve: async (hostname) => (await lookup(hostname, { all: true, verbatim: true })).map(({ address }) => address),
  dial: (host, port) => connect({ host, port, autoSelectFamily: false }),
};

/** Public by its number, and the wire server of Azure's hosts all the same. */
const azureWireServer = '168.63.129.16';

/**
 * Whether an address belongs to the internet at large: everything that has a purpose of its own is none of it, such as
 * this machine, private networks, links, and addresses that stand for those of IPv4. Of IPv6 nothing is given out
 * beyond 2000::/3: what lies there and has no name yet, such as the old ::a.b.c.d, is none of it either.
 */
export function isPublicAddress(text: string): boolean {
  if (!ipaddr.isValid(text)) return false;
  const address = ipaddr.process(text);
  if (address instanceof ipaddr.IPv6 && ((address.parts[0] ?? 0) & 0xe000) !== 0x2000) return false;
  return address.range() === 'unicast' && address.toString() !== azureWireServer;
}

/** `URL` has made 127.0.0.1 of 0x7f.1 and 2130706433; IPv6 stands in brackets. Null for a name. */
export function literalAddress(hostname: string): string | null {
  const bare = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(bare) === 0 ? null : bare;
}
