import { connect, isIP, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { createNames } from './dns.ts';

/** Connects this process to internet hosts that users name. */
export interface Outbound {
  /** Returns all addresses of a host. @param signal cancels the query */
  resolve(hostname: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Opens a connection to an address that was found to be public. */
  dial(address: string, port: number): Socket;
}

const names = createNames();

export const internet: Outbound = {
  resolve: (hostname, signal) => names.resolve(hostname, signal),
  dial: (host, port) => connect({ host, port, autoSelectFamily: false }),
};

/** Addresses of one host that are tried. */
const addressesMax = 4;
/** Milliseconds after which the next address is tried as well: RFC 8305. */
const staggerMs = 250;

/**
 * Returns the first connection that an address accepts. The next address is tried when one fails, and when one is
 * silent for `staggerMs`, so that a silent address does not delay the others. All other connections are closed.
 * @param addresses addresses that were checked; no name is resolved
 * @throws Error if no address accepts a connection; the reason of `signal` if it aborts
 */
export function dialFirst(
  { dial }: Pick<Outbound, 'dial'>,
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  const waiting = addresses.slice(0, addressesMax);
  const open = new Set<Socket>();
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  let timer: NodeJS.Timeout | undefined;
  const leave = (): void => fail(signal.reason as Error);

  function end(): void {
    clearTimeout(timer);
    waiting.length = 0;
    signal.removeEventListener('abort', leave);
    for (const socket of open) socket.destroy();
    open.clear();
  }

  function fail(error: Error): void {
    end();
    reject(error);
  }

  function take(socket: Socket): void {
    open.delete(socket);
    end();
    resolve(socket);
  }

  function next(): void {
    clearTimeout(timer);
    const address = waiting.shift();
    if (address === undefined) return open.size > 0 ? undefined : fail(new Error('no address accepts connections'));
    const socket = dial(address, port);
    open.add(socket);
    // Stays on: a socket whose error nobody hears ends the process. What closes was destroyed, or has failed.
    socket.on('error', () => undefined);
    socket.once('close', () => void (open.delete(socket) && next()));
    if (socket.connecting) socket.once('connect', () => take(socket));
    else return take(socket);
    timer = setTimeout(next, staggerMs);
  }

  if (signal.aborted) return Promise.reject(signal.reason as Error);
  signal.addEventListener('abort', leave, { once: true });
  next();
  return promise;
}

/** Wire server of Azure's hosts, although its address is in a public range. */
const azureWireServer = '168.63.129.16';

/**
 * True if an address belongs to the public internet. Addresses with a special purpose do not: this machine, private
 * networks, links, and addresses that stand for those of IPv4. IPv6 addresses outside 2000::/3 do not either: none is
 * assigned to the internet, and some, such as the old ::a.b.c.d, have no named range.
 */
export function isPublicAddress(text: string): boolean {
  if (!ipaddr.isValid(text)) return false;
  const address = ipaddr.process(text);
  if (address instanceof ipaddr.IPv6 && ((address.parts[0] ?? 0) & 0xe000) !== 0x2000) return false;
  return address.range() === 'unicast' && address.toString() !== azureWireServer;
}

/** Normalizes an address: IPv6 has many notations, some of which stand for IPv4 addresses. Zones are removed. */
export const plainAddress = (address: string): string => ipaddr.process(address.replace(/%.*$/, '')).toString();

/** `URL` has made 127.0.0.1 of 0x7f.1 and 2130706433; IPv6 stands in brackets. Null for a name. */
export function literalAddress(hostname: string): string | null {
  const bare = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(bare) === 0 ? null : bare;
}
