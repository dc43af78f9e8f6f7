import type { Server } from 'node:net';
import { ConfigError } from '#base/config-error.ts';

/** Where a server listens, and the variables that set it. */
export interface ListenAddress {
  readonly host: string;
  /** 0 chooses a free port. */
  readonly port: number;
  readonly hostVariable: string;
  readonly portVariable: string;
  /** Reserves the port for this process, even if the workers of a cluster share their ports. */
  readonly exclusive?: boolean;
}

const backlog = 4096;

/** @throws ConfigError naming the variable if the address is not available */
export function listen(server: Server, address: ListenAddress): Promise<void> {
  const { host, port, hostVariable, portVariable, exclusive = false } = address;
  return new Promise((resolve, reject) => {
    const refuse = ({ code = 'unknown error' }: NodeJS.ErrnoException): void => {
      if (code === 'EADDRINUSE')
        reject(new ConfigError(`${portVariable}: port ${port} is already in use on ${host}; set another port.`));
      else if (code === 'EACCES')
        reject(new ConfigError(`${portVariable}: this user may not open port ${port}; set another port.`));
      else reject(new ConfigError(`${hostVariable}: cannot listen on ${host} (${code}).`));
    };
    server.once('error', refuse);
    server.listen({ host, port, backlog, exclusive }, () => {
      server.off('error', refuse);
      resolve();
    });
  });
}

/** Stops accepting connections; resolves when the last connection has ended. */
export function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    if (server.listening) server.close(() => resolve());
    else resolve();
  });
}

/** `http://host:port`, with the port that was really taken. */
export function urlOf(server: Server, { host, port }: Pick<ListenAddress, 'host' | 'port'>): string {
  const address = server.address();
  const taken = typeof address === 'object' && address !== null ? address.port : port;
  return `http://${host.includes(':') ? `[${host}]` : host}:${taken}`;
}
