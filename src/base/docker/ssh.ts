import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Agent } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Client as SshClient } from 'ssh2';
import { loadSsh2 } from '#base/ssh2.ts';
import type { DockerAddress } from './address.ts';

/** One lasting SSH connection to a host: to its Docker engine's socket, and to the addresses of its containers. */
export interface SshConnection {
  /** Agent for HTTP requests to the Docker engine. */
  readonly agent: Agent;
  /** Opens a connection from the host to one of its containers. */
  forward(host: string, port: number): Promise<Duplex>;
  close(): void;
}

type SshAddress = Extract<DockerAddress, { type: 'ssh' }>;
type Opened = (error: Error | undefined, channel: Duplex) => void;

const readyTimeoutMs = 10_000;
const keepaliveIntervalMs = 10_000;

export function createSshConnection(address: SshAddress): SshConnection {
  let current: Promise<SshClient> | null = null;
  const client = (): Promise<SshClient> => {
    if (current !== null) return current;
    const opening: Promise<SshClient> = connect(address, () => {
      if (current === opening) current = null;
    });
    current = opening;
    return opening;
  };
  const agent = new DockerAgent(async () => dialDocker(await client(), address.socketPath));
  return {
    agent,
    async forward(host, port) {
      const connection = await client();
      return open((opened) => connection.forwardOut('127.0.0.1', 0, host, port, opened));
    },
    close() {
      const open = current;
      current = null;
      agent.destroy();
      open?.then(
        (connection) => connection.end(),
        () => undefined,
      );
    },
  };
}

class DockerAgent extends Agent {
  readonly #dial: () => Promise<Duplex>;

  constructor(dial: () => Promise<Duplex>) {
    super({ keepAlive: false });
    this.#dial = dial;
  }

  override createConnection(
    _options: unknown,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    void this.#connect(callback);
    return undefined;
  }

  async #connect(callback?: (error: Error | null, stream: Duplex) => void): Promise<void> {
    try {
      callback?.(null, await this.#dial());
    } catch (error) {
      // Node uses the stream only when there is no error.
      callback?.(error instanceof Error ? error : new Error(String(error)), undefined as never);
    }
  }
}

/** @param onGone called once, when the connection has failed or ended */
function connect(address: SshAddress, onGone: () => void): Promise<SshClient> {
  return new Promise((resolve, reject) => {
    const connection = new (loadSsh2().Client)();
    const fail = (error: Error): void => {
      onGone();
      reject(error);
    };
    connection
      .on('ready', () => resolve(connection))
      .on('error', fail)
      .on('close', () => fail(new Error('The SSH connection was closed.')));
    connection.connect({
      host: address.host,
      port: address.port,
      username: address.user,
      privateKey: readFileSync(address.key),
      readyTimeout: readyTimeoutMs,
      keepaliveInterval: keepaliveIntervalMs,
      keepaliveCountMax: 3,
      hostVerifier: (key: Buffer) => fingerprint(key) === address.hostKey.replace(/=+$/, ''),
    });
  });
}

/** Formats a key's fingerprint as `ssh-keygen -l` prints it: base64 without padding. */
function fingerprint(key: Buffer): string {
  return `SHA256:${createHash('sha256').update(key).digest('base64').replace(/=+$/, '')}`;
}

/** Opens a stream to the engine's socket; through the docker program if the SSH server forwards no sockets. */
async function dialDocker(connection: SshClient, socketPath: string): Promise<Duplex> {
  try {
    return await open((opened) => connection.openssh_forwardOutStreamLocal(socketPath, opened));
  } catch {
    return open((opened) => connection.exec('docker system dial-stdio', opened));
  }
}

function open(start: (opened: Opened) => void): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    start((error, channel) => {
      if (error !== undefined) reject(error);
      else resolve(channel);
    });
  });
}
