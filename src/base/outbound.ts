import { connect, isIP, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { createNames } from './names.ts';

/** How this process reaches hosts of the internet that somebody names. */
export interface Outbound {
  /** All addresses of a host. @param signal gives the question up */
  resolve(hostname: string, signal: AbortSignal): Promise<readonly string[]>;
  /** A connection to an address that was found to be public. */
  dial(address: string, port: number): Socket;
}

const names = createNames();

export const internet: Outbound = {
  resolve: (hostname, signal) => names.resolve(hostname, signal),
  dial: (host, port) => connect({ host, port, autoSelectFamily: false }),
};

/** Addresses of one host that are tried. */
const addressesMax = 4;
/** An address that has not answered by then has company: RFC 8305. */
const staggerMs = 250;

/**
 * The first connection that one of these addresses takes. The next one is tried when one fails, and when it is silent
 * for a moment: one that swallows what is sent to it keeps nobody from the others. All but the first are ended.
 * @param addresses that were looked at; nobody resolves a name
 * @throws Error where none takes one, and what `signal` was aborted with
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
    if (address === undefined) return open.size > 0 ? undefined : fail(new Error('no address takes a connection'));
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

/** Public by its number, and the wire server of Azure's hosts all the same. */
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
