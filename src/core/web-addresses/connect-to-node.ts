import { connect, isIP, type LookupFunction } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Doors } from './forbidden-targets.ts';
import type { Tunnels } from './tunnels.ts';
import type { Exposure, Target } from './types.ts';

/** Thrown if nothing answers at an address's target. */
export class UnreachableError extends Error {
  constructor(cause?: unknown) {
    super('nothing responds on the port of the node', { cause });
    this.name = 'UnreachableError';
  }
}

type Way = 'direct' | 'tunnel';

/** Connects to the software behind an address, only on the registered node. */
export interface Reach {
  /** @throws UnreachableError */
  connect(exposure: Exposure): Promise<Duplex>;
  close(): void;
}

const connectTimeoutMs = 5000;
const rememberedMax = 10_000;

export function createReach(tunnels: Tunnels, doors: Doors): Reach {
  /** The way that worked last, which is tried first. */
  const ways = new Map<string, Way>();

  type Connect = (exposure: Exposure, target: Target, addresses: readonly string[]) => Promise<Duplex>;
  const by: Readonly<Record<Way, Connect>> = {
    direct: (_, { node, port }, addresses) => connectDirectly(node.address, port, addresses),
    tunnel: (exposure, { node, port }) => tunnels.open(exposure, node, port),
  };

  return {
    async connect(exposure) {
      const { target } = exposure;
      if (target === null) throw new UnreachableError();
      const name = JSON.stringify([exposure.clusterId, target.node.address, target.port]);
      const order: readonly Way[] = ways.get(name) === 'tunnel' ? ['tunnel', 'direct'] : ['direct', 'tunnel'];
      const addresses = await doors.pass(target.node.address, target.port).catch((error: unknown) => {
        throw new UnreachableError(error);
      });
      let last: unknown;
      for (const way of order) {
        try {
          const stream = await by[way](exposure, target, addresses);
          if (ways.size >= rememberedMax) ways.clear();
          ways.set(name, way);
          return stream;
        } catch (error) {
          last = error;
        }
      }
      throw new UnreachableError(last);
    },
    close: () => tunnels.close(),
  };
}

/** Connects to the resolved addresses, and not to addresses that the name resolves to later. */
function connectDirectly(host: string, port: number, addresses: readonly string[]): Promise<Duplex> {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  const known: LookupFunction = (_, __, callback) => {
    if (found.length === 0) callback(new Error(`the host name ${host} is unknown`), []);
    else callback(null, found);
  };
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true, keepAlive: true, autoSelectFamily: true, lookup: known });
    const timer = setTimeout(() => socket.destroy(new Error('no response')), connectTimeoutMs);
    socket.once('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.removeAllListeners('error');
      // The next owner adds a listener; until then no error of the socket may end the process.
      socket.on('error', () => undefined);
      resolve(socket);
    });
  });
}
