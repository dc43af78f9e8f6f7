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

  interface ParsedKey {
    readonly type: string;
    isPrivateKey(): boolean;
    getPublicSSH(): Buffer;
    getPublicPEM(): string;
    sign(data: Buffer): Buffer | Error;
    verify(data: Buffer, signature: Buffer): boolean | Error;
  }

  export type { Client, ParsedKey };
  // A CommonJS module: its names are on the default.
  const ssh2: {
    readonly Client: typeof Client;
    readonly utils: { parseKey(text: string): ParsedKey | ParsedKey[] | Error };
  };
  export default ssh2;
}
