import { type Endpoint, endpointKey } from '#base/endpoint.ts';
import type { EngineSocket } from './engine-socket.ts';

/** The connections of one place; endpoints that differ only in their base path share it. */
export interface Lane {
  /** The Host line of every request. */
  readonly hostLine: string;
  /** The one used last stands at the end. */
  readonly idle: EngineSocket[];
  open: number;
  /** False once it was forgotten for want of use. */
  listed: boolean;
}

export interface Lanes {
  of(endpoint: Endpoint): Lane;
  all(): Iterable<Lane>;
  /** Engines come and go, each at a place of its own. */
  forgetUnused(): void;
}

export function createLanes(): Lanes {
  const lanes = new Map<string, Lane>();
  // Callers keep their endpoints, so that the text of one is rarely put together.
  const laneOfEndpoint = new WeakMap<Endpoint, Lane>();

  return {
    of(endpoint) {
      const known = laneOfEndpoint.get(endpoint);
      if (known?.listed === true) return known;
      const key = endpointKey(endpoint);
      let lane = lanes.get(key);
      if (lane === undefined) {
        lane = { hostLine: hostLineOf(endpoint), idle: [], open: 0, listed: true };
        lanes.set(key, lane);
      }
      laneOfEndpoint.set(endpoint, lane);
      return lane;
    },

    all: () => lanes.values(),

    forgetUnused() {
      for (const [key, lane] of lanes) {
        if (lane.open > 0) continue;
        lane.listed = false;
        lanes.delete(key);
      }
    },
  };
}

function hostLineOf(endpoint: Endpoint): string {
  if (endpoint.socketPath !== null) return 'Host: localhost\r\n';
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;
  return endpoint.port === (endpoint.tls ? 443 : 80) ? `Host: ${host}\r\n` : `Host: ${host}:${endpoint.port}\r\n`;
}
