import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { Agent, fetch, type RequestInit, type Response, WebSocket } from 'undici';
import { eventually } from '#test/inference/inference-gateway.ts';
import { freePorts } from '#test/free-port.ts';

const caddyfile = new URL('../../../compose/Caddyfile', import.meta.url).pathname;

/** The authority that signs Caddy's certificates by ACME, and its address for that. */
export interface Authority {
  readonly address: string;
  readonly directory: string;
  /** A file. */
  readonly root: string;
}

/** Debian's Caddy with the file of compose/, but for its ports and a certificate authority of its own. */
export class Caddy {
  readonly port: number;
  readonly httpPort: number;
  readonly #folder = mkdtempSync(join(tmpdir(), 'hg-caddy-'));
  readonly #child: ChildProcess;
  readonly #address: string;
  readonly #root: string;
  #agent: Agent | null = null;

  private constructor([httpPort, port]: readonly [number, number], webUrl: string, authority: Authority | null) {
    this.httpPort = httpPort;
    this.port = port;
    this.#address = authority?.address ?? '127.0.0.1';
    this.#root = authority?.root ?? join(this.#folder, 'caddy', 'pki', 'authorities', 'local', 'root.crt');
    const options = [
      ...(authority === null
        ? ['local_certs', 'skip_install_trust']
        : [`acme_ca ${authority.directory}`, `acme_ca_root ${authority.root}`]),
      `http_port ${this.httpPort}`,
      `https_port ${this.port}`,
      `default_bind ${this.#address}`,
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

  /** @param authority without one it signs for itself */
  static async start(webUrl: string, authority: Authority | null = null): Promise<Caddy> {
    const free = authority === null ? await freePorts(2) : 0;
    // An authority asks only at these ports.
    const caddy = new Caddy(authority === null ? [free, free + 1] : [80, 443], webUrl, authority);
    let said = '';
    caddy.#child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
    await eventually(async () => {
      if (caddy.#child.exitCode !== null) throw new Error(said);
      return existsSync(caddy.#root) && (await answers(caddy.port, caddy.#address));
    });
    return caddy;
  }

  /** Names that authorities have signed certificates for. */
  get certified(): readonly string[] {
    const folder = join(this.#folder, 'caddy', 'certificates');
    return existsSync(folder) ? readdirSync(folder).flatMap((issuer) => readdirSync(join(folder, issuer))) : [];
  }

  get ca(): string {
    return readFileSync(this.#root, 'utf8');
  }

  /** Knows every name, as the machine's own, and trusts only this Caddy. */
  get agent(): Agent {
    this.#agent ??= new Agent({
      connect: { ca: this.ca, lookup: (_, __, callback) => callback(null, [{ address: this.#address, family: 4 }]) },
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
    const socket = connectTls({ host: this.#address, port: this.port, servername: name, ca: this.ca });
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    return socket;
  }

  /** Returns the answer to these bytes, until the connection ends or nothing more comes. */
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

/** Checks whether something listens there. */
export function answers(port: number, address = '127.0.0.1'): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectSocket(port, address, () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
