import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePort } from '#test/free-port.ts';

/** Another address of this machine, on which one port leads to a server of the loopback and every other one is closed. */
export class Relay {
  readonly port: number;
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  private constructor(port: number, target: number) {
    this.port = port;
    this.#server = createServer((near) => {
      this.#open.add(near);
      const far = connect(target, '127.0.0.1');
      near.pipe(far).pipe(near);
      const end = (): void => {
        near.destroy();
        far.destroy();
      };
      for (const socket of [near, far]) socket.on('error', end).on('close', end);
      near.on('close', () => this.#open.delete(near));
    });
  }

  static async start(host: string, target: number): Promise<Relay> {
    const relay = new Relay(await freePort(), target);
    await new Promise<void>((resolve) => relay.#server.listen(relay.port, host, resolve));
    return relay;
  }

  get connections(): number {
    return this.#open.size;
  }

  async close(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}
