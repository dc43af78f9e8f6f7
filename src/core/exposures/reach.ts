import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Tunnels } from './tunnels.ts';
import type { Exposure, Target } from './types.ts';

/** Nothing answers at what an address leads to. */
export class UnreachableError extends Error {
  constructor(cause?: unknown) {
    super('nothing answers on the port of the node', { cause });
    this.name = 'UnreachableError';
  }
}

type Way = 'direct' | 'tunnel';

/** Connects to the software behind an address, on the node that is registered and on no other host. */
export interface Reach {
  /** @throws UnreachableError */
  connect(exposure: Exposure): Promise<Duplex>;
  close(): void;
}

const connectTimeoutMs = 5000;
const rememberedMax = 10_000;

export function createReach(tunnels: Tunnels): Reach {
  /** What answered last: it is tried first. */
  const ways = new Map<string, Way>();

  const by: Readonly<Record<Way, (exposure: Exposure, target: Target) => Promise<Duplex>>> = {
    direct: (_, { node, port }) => connectDirectly(node.address, port),
    tunnel: (exposure, { node, port }) => tunnels.open(exposure, node, port),
  };

  return {
    async connect(exposure) {
      const { target } = exposure;
      if (target === null) throw new UnreachableError();
      const name = JSON.stringify([exposure.clusterId, target.node.address, target.port]);
      const order: readonly Way[] = ways.get(name) === 'tunnel' ? ['tunnel', 'direct'] : ['direct', 'tunnel'];
      let last: unknown;
      for (const way of order) {
        try {
          const stream = await by[way](exposure, target);
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

function connectDirectly(host: string, port: number): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true, keepAlive: true });
    const timer = setTimeout(() => socket.destroy(new Error('nobody answers')), connectTimeoutMs);
    socket.once('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.removeAllListeners('error');
      // Who takes it over listens; until then nothing that happens to it may end the process.
      socket.on('error', () => undefined);
      resolve(socket);
    });
  });
}
