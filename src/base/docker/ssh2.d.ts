/** The calls of ssh2 that are used here. */
declare module 'ssh2' {
  import type { Duplex } from 'node:stream';

  type Opened = (error: Error | undefined, channel: Duplex) => void;

  class Client {
    on(event: 'ready' | 'close', listener: () => void): this;
    on(event: 'error', listener: (error: Error) => void): this;
    connect(options: object): void;
    openssh_forwardOutStreamLocal(socketPath: string, opened: Opened): void;
    forwardOut(...from: [sourceHost: string, sourcePort: number, host: string, port: number, opened: Opened]): void;
    exec(command: string, opened: Opened): void;
    end(): void;
  }

  export type { Client };
  // A CommonJS module: its names are on the default.
  const ssh2: { readonly Client: typeof Client };
  export default ssh2;
}
