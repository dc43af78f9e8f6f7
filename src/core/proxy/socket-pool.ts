import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { endpointKey, type Endpoint } from '#base/endpoint.ts';
import type { CoarseClock } from './coarse-clock.ts';
import { EngineSocket, type SocketUser } from './engine-socket.ts';

/** The connections of one endpoint. */
export interface Lane {
  readonly endpoint: Endpoint;
  /** The Host line of every request. */
  readonly hostLine: string;
  /** The one used last stands at the end. */
  readonly idle: EngineSocket[];
  open: number;
}

export interface SocketPool {
  lane(endpoint: Endpoint): Lane;
  /** The connection that was used last, or null when none waits. */
  takeIdle(lane: Lane, user: SocketUser): EngineSocket | null;
  open(lane: Lane, user: SocketUser): EngineSocket;
  /** Keeps a connection for the next call, if it can still serve one. */
  keep(lane: Lane, socket: EngineSocket): void;
  /** Closes what was idle for too long and forgets endpoints that nobody uses. */
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
  const lanes = new Map<string, Lane>();
  let secureContext: SecureContext | null = null;

  return {
    lane(endpoint) {
      const key = endpointKey(endpoint);
      let lane = lanes.get(key);
      if (lane === undefined) {
        lane = { endpoint, hostLine: hostLineOf(endpoint), idle: [], open: 0 };
        lanes.set(key, lane);
      }
      return lane;
    },

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

    open(lane, user) {
      if (lane.endpoint.tls) secureContext ??= createTrustedContext(options.tlsCa);
      const context = lane.endpoint.tls ? secureContext : null;
      const opened = new EngineSocket(lane.endpoint, context, user, (socket) => {
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
      for (const [key, lane] of lanes) {
        closeIdleUntil(lane, idleBeforeMs);
        if (lane.open === 0) lanes.delete(key);
      }
    },

    closeIdle() {
      for (const lane of lanes.values()) closeIdleUntil(lane, Number.POSITIVE_INFINITY);
    },

    stats: () => countSockets(lanes.values()),
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

function hostLineOf(endpoint: Endpoint): string {
  if (endpoint.socketPath !== null) return 'Host: localhost\r\n';
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;
  return endpoint.port === (endpoint.tls ? 443 : 80) ? `Host: ${host}\r\n` : `Host: ${host}:${endpoint.port}\r\n`;
}
