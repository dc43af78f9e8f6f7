import { connect as connectPlain, isIP, type Socket, type SocketConnectOpts } from 'node:net';
import { connect as connectTls, type SecureContext } from 'node:tls';
import type { Endpoint } from '#base/net/net.ts';
import type { EngineBody } from './engine-call.ts';

/** The current user of a connection. No callback follows onLost. */
export interface SocketUser {
  onOpen(): void;
  /** Receives bytes 0 to length; they are valid only during the call, and may be changed. */
  onBytes(bytes: Buffer, length: number): void;
  /** `clean`: the other side ended the connection without an error. */
  onLost(clean: boolean): void;
}

/** Shared read buffer of all plain connections: the bytes of one read are used up before the next read begins. */
const readBuffer = Buffer.allocUnsafeSlow(64 * 1024);

const keepAliveProbeAfterMs = 30_000;

/**
 * One connection to an engine. Calls use the connection one after another; it closes itself if bytes arrive outside of
 * a call.
 */
export class EngineSocket {
  user: SocketUser | null;
  idleSinceMs = 0;
  readonly #socket: Socket;
  readonly #onGone: (socket: EngineSocket) => void;
  #gone = false;

  constructor(
    endpoint: Endpoint,
    secureContext: SecureContext | null,
    user: SocketUser,
    onGone: (socket: EngineSocket) => void,
  ) {
    this.user = user;
    this.#onGone = onGone;
    this.#socket = secureContext === null ? this.#openPlain(endpoint) : this.#openTls(endpoint, secureContext);
    this.#socket.on('end', () => this.#lose(true));
    // 'close' follows every error and carries the same information.
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => this.#lose(false));
  }

  /** True if the connection can carry the next request. */
  get usable(): boolean {
    return !this.#gone && this.#socket.writable && this.#socket.writableLength === 0;
  }

  /** Writes a request. `head` is latin1, and so is a string body. */
  write(head: string, body: EngineBody | null): void {
    const socket = this.#socket;
    if (body === null) {
      socket.write(head, 'latin1');
    } else if (typeof body === 'string') {
      socket.write(head + body, 'latin1');
    } else {
      socket.cork();
      socket.write(head, 'latin1');
      for (const part of Buffer.isBuffer(body) ? [body] : body) if (part.length > 0) socket.write(part);
      socket.uncork();
    }
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(): void {
    this.user = null;
    this.#lose(false);
  }

  #openPlain(endpoint: Endpoint): Socket {
    const onread = {
      buffer: readBuffer,
      callback: (length: number): boolean => {
        this.#pass(readBuffer, length);
        return true;
      },
    };
    const target: SocketConnectOpts =
      endpoint.socketPath === null
        ? { host: endpoint.host, port: endpoint.port, ...tcpOptions }
        : { path: endpoint.socketPath };
    const socket = connectPlain({ ...target, onread });
    socket.on('connect', () => this.user?.onOpen());
    return socket;
  }

  #openTls(endpoint: Endpoint, secureContext: SecureContext): Socket {
    const target =
      endpoint.socketPath === null
        ? { host: endpoint.host, port: endpoint.port, ...tcpOptions }
        : { path: endpoint.socketPath };
    // Server names must be names: an address must not be sent as one, and is checked against the certificate anyway.
    const servername = isIP(endpoint.host) === 0 ? { servername: endpoint.host } : {};
    const socket = connectTls({ ...target, ...servername, secureContext, ALPNProtocols: ['http/1.1'] });
    socket.on('secureConnect', () => this.user?.onOpen());
    socket.on('data', (bytes: Buffer) => this.#pass(bytes, bytes.length));
    return socket;
  }

  #pass(bytes: Buffer, length: number): void {
    if (this.user === null) this.close();
    else this.user.onBytes(bytes, length);
  }

  #lose(clean: boolean): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#socket.destroy();
    this.#onGone(this);
    const user = this.user;
    this.user = null;
    user?.onLost(clean);
  }
}

const tcpOptions = { noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveProbeAfterMs };
