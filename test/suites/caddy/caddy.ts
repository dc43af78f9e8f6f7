import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { Agent, fetch, type RequestInit, type Response, WebSocket } from 'undici';
import { eventually } from '../../edge/inference/inference-gateway.ts';
import { freePorts } from '../../support/free-port.ts';

const caddyfile = new URL('../../../compose/Caddyfile', import.meta.url).pathname;

/** Debian's Caddy with the file of compose/, but for its ports and a certificate authority of its own. */
export class Caddy {
  readonly port: number;
  readonly httpPort: number;
  readonly #folder = mkdtempSync(join(tmpdir(), 'hg-caddy-'));
  readonly #child: ChildProcess;
  #agent: Agent | null = null;

  private constructor(httpPort: number, webUrl: string) {
    this.httpPort = httpPort;
    this.port = httpPort + 1;
    const options = [
      'local_certs',
      'skip_install_trust',
      `http_port ${this.httpPort}`,
      `https_port ${this.port}`,
      'default_bind 127.0.0.1',
    ];
    const env = {
      PATH: process.env['PATH'],
      HOME: this.#folder,
      XDG_DATA_HOME: this.#folder,
      XDG_CONFIG_HOME: this.#folder,
      HEADGATE_WEB_URL: webUrl,
      CADDY_GLOBAL_OPTIONS: options.join('\n\t'),
    };
    const args = ['run', '--config', caddyfile, '--adapter', 'caddyfile'];
    this.#child = spawn('caddy', args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  }

  static async start(webUrl: string): Promise<Caddy> {
    const caddy = new Caddy(await freePorts(2), webUrl);
    let said = '';
    caddy.#child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
    await eventually(async () => {
      if (caddy.#child.exitCode !== null) throw new Error(said);
      return existsSync(caddy.#root) && (await answers(caddy.port));
    });
    return caddy;
  }

  get #root(): string {
    return join(this.#folder, 'caddy', 'pki', 'authorities', 'local', 'root.crt');
  }

  get ca(): string {
    return readFileSync(this.#root, 'utf8');
  }

  /** Knows every name, as the machine's own, and trusts this Caddy alone. */
  get agent(): Agent {
    this.#agent ??= new Agent({
      connect: { ca: this.ca, lookup: (_, __, callback) => callback(null, [{ address: '127.0.0.1', family: 4 }]) },
    });
    return this.#agent;
  }

  /** An address of a run with the port that Caddy has here. */
  at(url: string, path?: string): URL {
    const here = new URL(path ?? '', url);
    if (path === undefined) here.href = url;
    here.port = String(this.port);
    return here;
  }

  get(url: string, path?: string, init: RequestInit = {}): Promise<Response> {
    return fetch(this.at(url, path), { redirect: 'manual', dispatcher: this.agent, ...init });
  }

  async text(url: string, path?: string, init: RequestInit = {}): Promise<{ status: number; text: string }> {
    const answer = await this.get(url, path, init);
    return { status: answer.status, text: await answer.text() };
  }

  websocket(url: string, path: string, headers: Readonly<Record<string, string>> = {}): WebSocket {
    const address = this.at(url, path);
    address.protocol = 'wss:';
    return new WebSocket(address, { dispatcher: this.agent, headers });
  }

  /** A TLS connection by a name, for bytes of one's own. @throws what TLS says */
  async tls(name: string): Promise<TLSSocket> {
    const socket = connectTls({ host: '127.0.0.1', port: this.port, servername: name, ca: this.ca });
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    return socket;
  }

  /** What comes back for these bytes until the connection ends or nothing more comes. */
  async raw(name: string, bytes: string): Promise<string> {
    const socket = await this.tls(name);
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    socket.end(bytes);
    await once(socket, 'close');
    return text;
  }

  async close(): Promise<void> {
    await this.#agent?.destroy();
    this.#child.kill('SIGKILL');
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, 'exit');
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectSocket(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
