import { connect as connectPlain, isIP, type Socket, type SocketConnectOpts } from 'node:net';
import { connect as connectTls, type SecureContext } from 'node:tls';
import type { EngineBody } from './engine-call.ts';
import type { Endpoint } from '#base/endpoint.ts';

/** Whoever uses a connection at the moment. After onLost nothing more comes. */
export interface SocketUser {
  onOpen(): void;
  /** Bytes 0 to length are valid during the call only, and may be changed. */
  onBytes(bytes: Buffer, length: number): void;
  /** clean: the other side ended it, rather than an error. */
  onLost(clean: boolean): void;
}

/** All plain connections read into this one: what a read brought is used up before the next read begins. */
const readBuffer = Buffer.allocUnsafeSlow(64 * 1024);

const keepAliveProbeAfterMs = 30_000;

/** One connection to an engine. It passes from call to call, and closes itself when bytes come outside of any call. */
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
    // 'close' follows every error and says the same.
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => this.#lose(false));
  }

  /** Nothing stands between this connection and a next request on it. */
  get usable(): boolean {
    return !this.#gone && this.#socket.writable && this.#socket.writableLength === 0;
  }

  /** head is latin1; so is a body that is a string. */
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
    // Server names are names: an address must not be sent as one, and is checked against the certificate anyway.
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
