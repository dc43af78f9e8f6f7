import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { freePort } from '#test/free-port.ts';

/** An application on a node: pages, an event stream that stays open, and a websocket that echoes its messages. */
export class Application {
  readonly port: number;
  readonly name: string;
  /** Requests as they came. */
  readonly seen: IncomingMessage[] = [];
  readonly #server: Server;
  readonly #open = new Set<Duplex>();

  private constructor(name: string, port: number) {
    this.name = name;
    this.port = port;
    this.#server = createServer((incoming, outgoing) => this.#answer(incoming, outgoing));
    this.#server.on('connection', (socket) => {
      this.#open.add(socket);
      socket.on('close', () => this.#open.delete(socket));
    });
    this.#server.on('upgrade', (incoming, socket) => this.#upgrade(incoming, socket));
  }

  static async start(name = 'application', host = '127.0.0.1'): Promise<Application> {
    const application = new Application(name, await freePort());
    await new Promise<void>((resolve) => application.#server.listen(application.port, host, resolve));
    return application;
  }

  get connections(): number {
    return this.#open.size;
  }

  #answer(incoming: IncomingMessage, outgoing: ServerResponse): void {
    this.seen.push(incoming);
    const { url = '', method, headers } = incoming;
    if (url.startsWith('/events')) {
      outgoing.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: first\n\n');
      const timer = setInterval(() => outgoing.write('data: more\n\n'), 100);
      outgoing.on('close', () => clearInterval(timer));
    } else if (url.startsWith('/redirect')) {
      outgoing.writeHead(302, { location: 'http://169.254.169.254/latest/meta-data/' }).end();
    } else if (url.startsWith('/cookies')) {
      const taken = '__Host-headgate_access=stolen; Path=/; Secure';
      outgoing
        .writeHead(200, { 'set-cookie': ['own=1; Path=/', taken], 'x-own': 'yes', connection: 'x-own' })
        .end('ok');
    } else {
      const parts: Buffer[] = [];
      incoming.on('data', (part: Buffer) => parts.push(part));
      incoming.on('end', () => {
        const body = Buffer.concat(parts).toString('latin1');
        outgoing.setHeader('content-type', 'application/json');
        outgoing.end(JSON.stringify({ name: this.name, method, url, headers, body }));
      });
    }
  }

  #upgrade(incoming: IncomingMessage, socket: Duplex): void {
    this.seen.push(incoming);
    const key = `${incoming.headers['sec-websocket-key'] ?? ''}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash('sha1').update(key).digest('base64');
    socket.on('error', () => undefined).on('end', () => socket.end());
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    // Short messages of one frame, as the tests send them.
    socket.on('data', (frame: Buffer) => {
      const opcode = (frame[0] ?? 0) & 15;
      if (opcode !== 1) {
        socket.end();
        return;
      }
      const length = (frame[1] ?? 0) & 127;
      const mask = frame.subarray(2, 6);
      const data = Buffer.from(frame.subarray(6, 6 + length).map((byte, index) => byte ^ (mask[index % 4] ?? 0)));
      socket.write(Buffer.concat([Buffer.from([0x81, length]), data]));
    });
  }

  async close(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
