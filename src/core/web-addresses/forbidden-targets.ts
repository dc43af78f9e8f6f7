import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import ipaddr from 'ipaddr.js';
import type { Clock } from '#base/clock.ts';
import { createNames, plainAddress } from '#base/net/net.ts';

/**
 * Blocks addresses that no web address may lead to, whoever registers a node: listeners of the gateway itself, its
 * PostgreSQL, Redis and Docker, and the addresses at which clouds serve a machine's secrets.
 */
export interface Doors {
  /**
   * Checks a host and port.
   * @returns the addresses of the host, none for a name that cannot be resolved now. Connect to these addresses and not
   * to the name, which may resolve to others a moment later
   * @throws ClosedDoorError if nothing may lead there
   */
  pass(host: string, port: number): Promise<readonly string[]>;
}

export class ClosedDoorError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ClosedDoorError';
  }
}

/** An address or a name, and a port. */
export interface Door {
  readonly host: string;
  readonly port: number;
}

export interface DoorsOptions {
  /** Ports that the gateway listens on, whatever its address. */
  readonly ownPorts: readonly number[];
  /** Servers that the gateway itself connects to. */
  readonly stores: readonly Door[];
  readonly clock: Pick<Clock, 'monotonicMs'>;
  /** Returns all addresses of a node's host. @throws Error for a name that does not exist */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
  /** Returns all addresses of a store, from the system's resolver, as the store's client does. */
  readonly resolveStore?: (host: string) => Promise<readonly string[]>;
}

/** Cloud metadata addresses besides the link-local ones. */
const cloudAddresses: ReadonlySet<string> = new Set(['168.63.129.16', '100.100.100.200', 'fd00:ec2::254']);
/** Time that resolved addresses of a name are reused. */
const rememberedMs = 10_000;
const namesMax = 1000;

const ownProblem = 'web_port is used by the gateway itself';
const storeProblem = 'web_port is used by a service that the gateway depends on, such as its database or Docker';
const cloudProblem = 'the address of the node is reserved for cloud services';

export function createDoors(options: DoorsOptions): Doors {
  const { ownPorts, stores, clock, resolve = createNames().resolve, resolveStore = resolveBySystem } = options;
  const addressesOf = createMemory(clock, resolve);
  const addressesOfStore = createMemory(clock, resolveStore);

  return {
    async pass(host, port) {
      const addresses = await addressesOf(host);
      if (addresses.some(isOfCloud)) throw new ClosedDoorError(cloudProblem);
      const isHere = isOwn(addresses);
      if (isHere && ownPorts.includes(port)) throw new ClosedDoorError(ownProblem);
      for (const store of stores.filter((one) => one.port === port)) {
        const others = await addressesOfStore(store.host);
        const isSame = store.host === host || others.some((address) => addresses.includes(address));
        if (isSame || (isHere && isOwn(others))) throw new ClosedDoorError(storeProblem);
      }
      return addresses;
    },
  };
}

function isOfCloud(address: string): boolean {
  return ipaddr.process(address).range() === 'linkLocal' || cloudAddresses.has(address);
}

/** True if one of the addresses belongs to this machine. */
function isOwn(addresses: readonly string[]): boolean {
  const mine = new Set(
    Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => plainAddress(address))),
  );
  return addresses.some((address) => {
    const range = ipaddr.process(address).range();
    return range === 'loopback' || range === 'unspecified' || mine.has(address);
  });
}

function createMemory(
  clock: DoorsOptions['clock'],
  resolve: (host: string) => Promise<readonly string[]>,
): (host: string) => Promise<readonly string[]> {
  const known = new Map<string, { readonly addresses: readonly string[]; readonly untilMs: number }>();
  return async (host) => {
    if (isIP(host) !== 0) return [plainAddress(host)];
    const nowMs = clock.monotonicMs();
    const before = known.get(host);
    if (before !== undefined && before.untilMs > nowMs) return before.addresses;
    // If the resolver fails, the last known addresses are better than none.
    const addresses = await resolve(host).then(
      (found) => found.map(plainAddress),
      () => before?.addresses ?? [],
    );
    if (known.size >= namesMax) known.clear();
    known.set(host, { addresses, untilMs: nowMs + rememberedMs });
    return addresses;
  };
}

async function resolveBySystem(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address);
}
