import { isLate } from '#base/is-late.ts';
import { Resolver } from 'node:dns/promises';

/** Where the docker-gates of a swarm's nodes are: one name for all of them, `tasks.SERVICE` as Docker tells it. */
export interface SwarmGates {
  readonly host: string;
  readonly port: number;
}

/** What is open of one of them. */
interface Gate {
  close(): void;
}

export interface SwarmNodes<G extends Gate> {
  /** One for each address that the name has now; never throws. */
  find(): Promise<readonly G[]>;
  /** Null while the name has addresses. */
  trouble(): string | null;
  close(): void;
}

/** How old may be what is known of the name. */
const freshMs = 5000;
const askWaitMs = 5000;

/**
 * Follows a name whose addresses come and go with the tasks of a service. One that cannot be looked up says nothing
 * about those that were known: they are kept, and each is asked whether it answers.
 * @param open is called once for each address
 */
export function createSwarmNodes<G extends Gate>(
  { host }: SwarmGates,
  open: (address: string) => G,
  resolve: (name: string) => Promise<readonly string[]> = gateAddresses,
): SwarmNodes<G> {
  const known = new Map<string, G>();
  let trouble: string | null = null;
  let looking: Promise<void> | null = null;
  let lookedAtMs = Number.NEGATIVE_INFINITY;

  async function look(): Promise<void> {
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
      trouble = `${host} has no address (${code}): no docker-gate runs there, or the gateway is not in its network`;
    }
    lookedAtMs = Date.now();
  }

  return {
    async find() {
      if (Date.now() - lookedAtMs >= freshMs) {
        looking ??= look().finally(() => (looking = null));
        if (await isLate(looking, askWaitMs)) trouble = `${host} has no address: no server of names answers`;
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
 * Of Docker's own server of names, and no other way: what asks the machine's instead may hang for long.
 * @throws Error with the code of the lookup where the name has none
 */
export function gateAddresses(name: string): Promise<readonly string[]> {
  return new Resolver({ timeout: 2000, tries: 2 }).resolve4(name);
}
