import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import type { Endpoint } from '#base/endpoint.ts';
import type { CoarseClock } from './coarse-clock.ts';
import { EngineSocket, type SocketUser } from './engine-socket.ts';
import { createLanes, type Lane } from './origins.ts';

export interface SocketPool {
  lane(endpoint: Endpoint): Lane;
  /** The connection that was used last, or null when none waits. */
  takeIdle(lane: Lane, user: SocketUser): EngineSocket | null;
  open(lane: Lane, endpoint: Endpoint, user: SocketUser): EngineSocket;
  /** Keeps a connection for the next call, if it can still serve one. */
  keep(lane: Lane, socket: EngineSocket): void;
  /** Closes what was idle for too long and forgets places that nobody uses. */
  sweep(): void;
  closeIdle(): void;
  stats(): { open: number; idle: number };
}

/** Connections to engines: any number at once, and those left over wait for idleSocketMs at most. */
export function createSocketPool(options: {
  clock: () => CoarseClock;
  idleSocketMs: number;
  tlsCa: string | undefined;
}): SocketPool {
  const lanes = createLanes();
  let secureContext: SecureContext | null = null;

  return {
    lane: (endpoint) => lanes.of(endpoint),

    takeIdle(lane, user) {
      for (let socket = lane.idle.pop(); socket !== undefined; socket = lane.idle.pop()) {
        if (socket.usable) {
          socket.user = user;
          return socket;
        }
        socket.close();
      }
      return null;
    },

    open(lane, endpoint, user) {
      if (endpoint.tls) secureContext ??= createTrustedContext(options.tlsCa);
      const context = endpoint.tls ? secureContext : null;
      const opened = new EngineSocket(endpoint, context, user, (socket) => {
        lane.open -= 1;
        const at = lane.idle.lastIndexOf(socket);
        if (at !== -1) lane.idle.splice(at, 1);
      });
      lane.open += 1;
      return opened;
    },

    keep(lane, socket) {
      socket.user = null;
      if (!socket.usable) {
        socket.close();
        return;
      }
      socket.idleSinceMs = options.clock().nowMs;
      lane.idle.push(socket);
    },

    sweep() {
      const clock = options.clock();
      // One step early: a stamp may be that much too young, and the engine closes its side on time.
      const idleBeforeMs = clock.nowMs - options.idleSocketMs + clock.stepMs;
      for (const lane of lanes.all()) closeIdleUntil(lane, idleBeforeMs);
      lanes.forgetUnused();
    },

    closeIdle() {
      for (const lane of lanes.all()) closeIdleUntil(lane, Number.POSITIVE_INFINITY);
    },

    stats: () => countSockets(lanes.all()),
  };
}

/** The longest idle stand at the front; closing one takes it out. */
function closeIdleUntil(lane: Lane, idleSinceMs: number): void {
  let oldest = lane.idle[0];
  while (oldest !== undefined && oldest.idleSinceMs <= idleSinceMs) {
    oldest.close();
    oldest = lane.idle[0];
  }
}

function countSockets(lanes: Iterable<Lane>): { open: number; idle: number } {
  let open = 0;
  let idle = 0;
  for (const lane of lanes) {
    open += lane.open;
    idle += lane.idle.length;
  }
  return { open, idle };
}

function createTrustedContext(tlsCa: string | undefined): SecureContext {
  return createSecureContext(tlsCa === undefined ? {} : { ca: [...getCACertificates('default'), tlsCa] });
}
