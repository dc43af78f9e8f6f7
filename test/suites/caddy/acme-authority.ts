import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '#test/inference/inference-gateway.ts';
import { freePorts } from '#test/free-port.ts';
import { answers } from './caddy.ts';

/**
 * An ACME server, which is another Caddy: it proves that whoever asks for a certificate answers under the name, on ports
 * 80 and 443, as Let's Encrypt does. It has a file of names of its own, in which names are an address of the loopback.
 */
export class AcmeAuthority {
  /** An address of the loopback, where the certified server has ports 80 and 443 for itself. */
  readonly address = `127.${randomInt(1, 255)}.${randomInt(256)}.${randomInt(1, 255)}`;
  readonly directory: string;
  readonly #port: number;
  readonly #folder = mkdtempSync(join(tmpdir(), 'hg-acme-'));
  readonly #child: ChildProcess;

  private constructor(port: number) {
    this.#port = port + 1;
    this.directory = `https://localhost:${port + 1}/acme/local/directory`;
    writeFileSync(this.#hosts, '127.0.0.1 localhost\n');
    const settings = join(this.#folder, 'Caddyfile');
    writeFileSync(
      settings,
      `{
	admin off
	skip_install_trust
	http_port ${port}
	https_port ${port + 1}
	default_bind 127.0.0.1
}
https://localhost:${port + 1} {
	tls internal
	acme_server
}
`,
    );
    const env = {
      PATH: process.env['PATH'],
      HOME: this.#folder,
      XDG_DATA_HOME: this.#folder,
      XDG_CONFIG_HOME: this.#folder,
    };
    const walls = ['--dev-bind', '/', '/', '--ro-bind', this.#hosts, '/etc/hosts', '--die-with-parent', '--'];
    const command = ['caddy', 'run', '--config', settings, '--adapter', 'caddyfile'];
    this.#child = spawn('bwrap', [...walls, ...command], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  }

  static async start(): Promise<AcmeAuthority> {
    const authority = new AcmeAuthority(await freePorts(2));
    let said = '';
    authority.#child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
    await eventually(async () => {
      if (authority.#child.exitCode !== null) throw new Error(said);
      return existsSync(authority.root) && (await answers(authority.#port));
    });
    return authority;
  }

  get #hosts(): string {
    return join(this.#folder, 'hosts');
  }

  /** File of the certificate that it is known by. */
  get root(): string {
    return join(this.#folder, 'caddy', 'pki', 'authorities', 'local', 'root.crt');
  }

  /** It finds whoever is certified under this name from now on. */
  knows(name: string): void {
    // In place: it is the file itself that it has.
    appendFileSync(this.#hosts, `${this.address} ${name}\n`);
  }

  get ca(): string {
    return readFileSync(this.root, 'utf8');
  }

  async close(): Promise<void> {
    this.#child.kill('SIGKILL');
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, 'exit');
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
