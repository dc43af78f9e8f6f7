import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import type { Endpoint } from '#base/net/net.ts';
import type { CoarseClock } from './coarse-clock.ts';
import { EngineSocket, type SocketUser } from './engine-socket.ts';
import { createOrigins, type Origin } from './origins.ts';

export interface SocketPool {
  originOf(endpoint: Endpoint): Origin;
  /** Returns the most recently used idle connection, or null if none is idle. */
  takeIdle(origin: Origin, user: SocketUser): EngineSocket | null;
  open(origin: Origin, endpoint: Endpoint, user: SocketUser): EngineSocket;
  /** Keeps a connection for the next call, if the connection is still usable. */
  keep(origin: Origin, socket: EngineSocket): void;
  /** Closes connections that were idle for too long, and forgets origins without connections. */
  sweep(): void;
  closeIdle(): void;
  stats(): { open: number; idle: number };
}

/** Connections to engines: any number at once; idle ones are kept for idleSocketMs at most. */
export function createSocketPool(options: {
  clock: () => CoarseClock;
  idleSocketMs: number;
  tlsCa: string | undefined;
}): SocketPool {
  const origins = createOrigins();
  let secureContext: SecureContext | null = null;

  return {
    originOf: (endpoint) => origins.of(endpoint),

    takeIdle(origin, user) {
      for (let socket = origin.idle.pop(); socket !== undefined; socket = origin.idle.pop()) {
        if (socket.usable) {
          socket.user = user;
          return socket;
        }
        socket.close();
      }
      return null;
    },

    open(origin, endpoint, user) {
      if (endpoint.tls) secureContext ??= createTrustedContext(options.tlsCa);
      const context = endpoint.tls ? secureContext : null;
      const opened = new EngineSocket(endpoint, context, user, (socket) => {
        origin.open -= 1;
        const at = origin.idle.lastIndexOf(socket);
        if (at !== -1) origin.idle.splice(at, 1);
      });
      origin.open += 1;
      return opened;
    },

    keep(origin, socket) {
      socket.user = null;
      if (!socket.usable) {
        socket.close();
        return;
      }
      socket.idleSinceMs = options.clock().nowMs;
      origin.idle.push(socket);
    },

    sweep() {
      const clock = options.clock();
      // One step early: a time stamp may be late by one step, and the engine closes its side on time.
      const idleBeforeMs = clock.nowMs - options.idleSocketMs + clock.stepMs;
      for (const origin of origins.all()) closeIdleUntil(origin, idleBeforeMs);
      origins.forgetUnused();
    },

    closeIdle() {
      for (const origin of origins.all()) closeIdleUntil(origin, Number.POSITIVE_INFINITY);
    },

    stats: () => countSockets(origins.all()),
  };
}

/** Closes connections idle since a time. The longest idle are at the front; closing one removes it. */
function closeIdleUntil(origin: Origin, idleSinceMs: number): void {
  let oldest = origin.idle[0];
  while (oldest !== undefined && oldest.idleSinceMs <= idleSinceMs) {
    oldest.close();
    oldest = origin.idle[0];
  }
}

function countSockets(origins: Iterable<Origin>): { open: number; idle: number } {
  let open = 0;
  let idle = 0;
  for (const origin of origins) {
    open += origin.open;
    idle += origin.idle.length;
  }
  return { open, idle };
}

function createTrustedContext(tlsCa: string | undefined): SecureContext {
  return createSecureContext(tlsCa === undefined ? {} : { ca: [...getCACertificates('default'), tlsCa] });
}
