import { type Endpoint, endpointKey } from '#base/net/net.ts';
import type { EngineSocket } from './engine-socket.ts';

/** The connections to one server; endpoints that differ only in their base path share them. */
export interface Origin {
  /** The Host line of every request. */
  readonly hostLine: string;
  /** Idle connections, most recently used last. */
  readonly idle: EngineSocket[];
  open: number;
  /** False once the origin was forgotten because it had no connections. */
  listed: boolean;
}

export interface Origins {
  of(endpoint: Endpoint): Origin;
  all(): Iterable<Origin>;
  /** Forgets origins without connections: engines come and go, each at a different address. */
  forgetUnused(): void;
}

export function createOrigins(): Origins {
  const origins = new Map<string, Origin>();
  // Callers keep their endpoints, so that the key of an endpoint is rarely built.
  const originOfEndpoint = new WeakMap<Endpoint, Origin>();

  return {
    of(endpoint) {
      const known = originOfEndpoint.get(endpoint);
      if (known?.listed === true) return known;
      const key = endpointKey(endpoint);
      let origin = origins.get(key);
      if (origin === undefined) {
        origin = { hostLine: hostLineOf(endpoint), idle: [], open: 0, listed: true };
        origins.set(key, origin);
      }
      originOfEndpoint.set(endpoint, origin);
      return origin;
    },

    all: () => origins.values(),

    forgetUnused() {
      for (const [key, origin] of origins) {
        if (origin.open > 0) continue;
        origin.listed = false;
        origins.delete(key);
      }
    },
  };
}

function hostLineOf(endpoint: Endpoint): string {
  if (endpoint.socketPath !== null) return 'Host: localhost\r\n';
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;
  return endpoint.port === (endpoint.tls ? 443 : 80) ? `Host: ${host}\r\n` : `Host: ${host}:${endpoint.port}\r\n`;
}
