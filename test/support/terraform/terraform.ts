import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { descendantsOf } from '#base/process-identity.ts';
import { freePort } from '#test/free-port.ts';

const run = promisify(execFile);

export const builtinFolder = new URL('../../../src/core/stacks/builtin/', import.meta.url).pathname;

const environment = (home: string): NodeJS.ProcessEnv => ({
  PATH: process.env['PATH'] ?? '',
  HOME: home,
  CHECKPOINT_DISABLE: '1',
  TF_IN_AUTOMATION: '1',
  TF_CLI_CONFIG_FILE: '/dev/null',
});

/** A copy of a module with an access identity beside it, as a run finds it. */
export class Workplace {
  readonly folder = mkdtempSync(join(tmpdir(), 'hg-tf-'));
  readonly module = join(this.folder, 'module');

  constructor(stack: string, identity = 'no key') {
    cpSync(join(builtinFolder, stack), this.module, { recursive: true });
    mkdirSync(join(this.module, '.platform'));
    writeFileSync(join(this.module, '.platform', 'id'), identity, { mode: 0o600 });
  }

  /** @returns what it printed. @throws with that and what it complained about */
  async terraform(...args: readonly string[]): Promise<string> {
    const ended = await run('terraform', [`-chdir=${this.module}`, ...args], { env: environment(this.folder) }).catch(
      ({ stdout, stderr }: { stdout: string; stderr: string }) => new Error(`${stdout}${stderr}`),
    );
    if (ended instanceof Error) throw ended;
    return ended.stdout;
  }

  /** `apply` or `destroy` with these variables. */
  async change(command: 'apply' | 'destroy', variables: object): Promise<string> {
    const file = join(this.folder, 'variables.json');
    writeFileSync(file, JSON.stringify(variables), { mode: 0o600 });
    return this.terraform(command, '-auto-approve', '-input=false', '-no-color', `-var-file=${file}`);
  }

  close(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export type HostKeyKind = 'rsa' | 'ecdsa' | 'ed25519';

/** An OpenSSH server on this machine, for this user, with keys of its own. */
export class SshServer {
  readonly port: number;
  readonly identity: string;
  readonly hostKey: string;
  readonly user = userInfo().username;
  readonly #folder = mkdtempSync(join(tmpdir(), 'hg-ssh-'));
  readonly #child: ChildProcess;

  private constructor(port: number, [kind, ...more]: readonly [HostKeyKind, ...HostKeyKind[]]) {
    this.port = port;
    chmodSync(this.#folder, 0o700);
    const keys = [['id', 'ed25519'] as const, ...[kind, ...more].map((one) => [one, one] as const)];
    for (const [name, type] of keys) {
      execFileSync('ssh-keygen', ['-q', '-t', type, '-N', '', '-f', join(this.#folder, name)]);
    }
    this.identity = readFileSync(join(this.#folder, 'id'), 'utf8');
    this.hostKey = this.hostKeyOf(kind);
    const settings = [
      `Port ${port}`,
      'ListenAddress 127.0.0.1',
      ...[kind, ...more].map((one) => `HostKey ${join(this.#folder, one)}`),
      `AuthorizedKeysFile ${join(this.#folder, 'id.pub')}`,
      'PidFile none',
      'StrictModes no',
      'UsePAM no',
      'PasswordAuthentication no',
      'KbdInteractiveAuthentication no',
      'PermitRootLogin prohibit-password',
    ];
    writeFileSync(join(this.#folder, 'config'), settings.join('\n'));
    mkdirSync('/run/sshd', { recursive: true });
    this.#child = spawn('/usr/sbin/sshd', ['-D', '-e', '-f', join(this.#folder, 'config')], { stdio: 'ignore' });
  }

  /** @param kinds of its host keys; one, as a rule, and Debian's has all three */
  static async start(kinds: readonly [HostKeyKind, ...HostKeyKind[]] = ['ed25519']): Promise<SshServer> {
    const server = new SshServer(await freePort(), kinds);
    while (!(await server.#answers())) await new Promise((resolve) => setTimeout(resolve, 50));
    return server;
  }

  hostKeyOf(kind: HostKeyKind): string {
    return readFileSync(join(this.#folder, `${kind}.pub`), 'utf8').trim();
  }

  /** The node that it is, as a run is given it. */
  node(name: string): object {
    return { name, address: '127.0.0.1', ssh_port: this.port, ssh_user: this.user, host_key: this.hostKey, gpus: 0 };
  }

  /** Lets whoever has the private key of this line in. */
  authorize(publicKey: string): void {
    appendFileSync(join(this.#folder, 'id.pub'), `${publicKey}\n`);
  }

  /** A node that loses its power: the server and every session end at once. */
  die(): void {
    this.#signal('SIGKILL');
  }

  /** A node of which only the kernel still runs: connections stay open, and nobody answers. */
  hang(): void {
    this.#signal('SIGSTOP');
  }

  goOn(): void {
    this.#signal('SIGCONT');
  }

  /** Programs that run in sessions. */
  get programs(): readonly string[] {
    return descendantsOf(this.#child.pid ?? 0).map(({ program }) => program);
  }

  #signal(name: NodeJS.Signals): void {
    const sessions = descendantsOf(this.#child.pid ?? 0);
    this.#child.kill(name);
    for (const { pid } of sessions) {
      try {
        process.kill(pid, name);
      } catch {
        // It ended with the one before it.
      }
    }
  }

  #answers(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error('sshd ended');
    return new Promise((resolve) => {
      const socket = connect(this.port, '127.0.0.1', () => {
        socket.destroy();
        resolve(true);
      });
      socket.on('error', () => resolve(false));
    });
  }

  async close(): Promise<void> {
    const isOver = this.#child.exitCode !== null || this.#child.signalCode !== null;
    const closed = new Promise((resolve) => this.#child.once('exit', resolve));
    if (!isOver && this.#child.kill()) await closed;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
