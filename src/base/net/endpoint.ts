/** Where an HTTP/1.1 server listens: a unix socket, or a host and port, with TLS or without. */
export interface Endpoint {
  /** Absolute path of a unix socket; when set, host and port are not used to connect. */
  readonly socketPath: string | null;
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  /** Prefix of every request path, without a trailing slash; '' when there is none. */
  readonly basePath: string;
}

/** A key for pools and maps: the same text for the same endpoint. */
export function endpointKey(endpoint: Endpoint): string {
  if (endpoint.socketPath !== null) return `unix:${endpoint.socketPath}`;
  return `${endpoint.tls ? 'tls' : 'tcp'}:${endpoint.host}:${endpoint.port}`;
}

export function tcpEndpoint(host: string, port: number): Endpoint {
  return { socketPath: null, host, port, tls: false, basePath: '' };
}
