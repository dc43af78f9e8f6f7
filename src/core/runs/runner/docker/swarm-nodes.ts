import { isLate } from '#base/is-late.ts';
import { Resolver } from 'node:dns/promises';

/** The name of all docker-gates on a Swarm's nodes: `tasks.SERVICE`, which Docker's DNS server resolves. */
export interface SwarmGates {
  readonly host: string;
  readonly port: number;
}

/** An open connection to a gate. */
interface Gate {
  close(): void;
}

export interface SwarmNodes<G extends Gate> {
  /** Returns one gate for each current address of the name; never throws. */
  find(): Promise<readonly G[]>;
  /** Null while the name has addresses. */
  trouble(): string | null;
  close(): void;
}

/** Age up to which the addresses are reused. */
const freshMs = 5000;
const askWaitMs = 5000;

/**
 * Follows a name whose addresses change with the tasks of a service. A failed lookup drops no known address: each gate
 * is checked by itself.
 * @param open is called once for each address
 */
export function createSwarmNodes<G extends Gate>(
  { host }: SwarmGates,
  open: (address: string) => G,
  resolve: (name: string) => Promise<readonly string[]> = gateAddresses,
): SwarmNodes<G> {
  const known = new Map<string, G>();
  let trouble: string | null = null;
  let refreshing: Promise<void> | null = null;
  let refreshedAtMs = Number.NEGATIVE_INFINITY;

  async function refresh(): Promise<void> {
    try {
      const addresses = new Set(await resolve(host));
      for (const [address, gate] of known) {
        if (addresses.has(address)) continue;
        gate.close();
        known.delete(address);
      }
      for (const address of addresses) if (!known.has(address)) known.set(address, open(address));
      trouble = null;
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
      trouble = `${host} has no address (${code}): docker-gate does not run there, or the gateway is not in its network`;
    }
    refreshedAtMs = Date.now();
  }

  return {
    async find() {
      if (Date.now() - refreshedAtMs >= freshMs) {
        refreshing ??= refresh().finally(() => (refreshing = null));
        if (await isLate(refreshing, askWaitMs)) trouble = `${host} has no address: the DNS server does not respond`;
      }
      return [...known.values()];
    },
    trouble: () => trouble,
    close() {
      for (const gate of known.values()) gate.close();
    },
  };
}

/**
 * Resolves a name only with Docker's own DNS server: a lookup through the machine's may hang for long.
 * @throws Error with the code of the lookup if the name has no address
 */
export function gateAddresses(name: string): Promise<readonly string[]> {
  return new Resolver({ timeout: 2000, tries: 2 }).resolve4(name);
}
