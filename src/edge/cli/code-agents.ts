import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { ClientConfig } from '#base/config.ts';
import { normalUrl } from '#base/login-file.ts';
import { processIdentity } from '#base/process-identity.ts';
import type { CommandContext } from './command.ts';
import { FailedError } from './errors.ts';

/** Coding agents on this machine: where they lie, and how pi gets there. */

/** https://github.com/earendil-works/pi; later ones name a dependency that not every registry has. */
export const pi = { name: '@earendil-works/pi-coding-agent', version: '0.87.1' } as const;

export interface AgentHome {
  readonly dir: string;
  /**
   * The agent's own settings and sessions for this gateway's models, apart from those of the user's own pi and of other
   * gateways: an agent that runs reads them again, and would send this gateway's key where another one is.
   */
  readonly settingsDir: string;
  writeModels(models: object): void;
}

/** @throws FailedError for a user without a home */
export function createAgentHome({ programsDir, url }: ClientConfig): AgentHome {
  if (programsDir === null) throw new FailedError('there is no home folder to install an agent in: set XDG_DATA_HOME');
  const settingsDir = join(programsDir, 'pi-settings', folderOf(url));
  return {
    dir: programsDir,
    settingsDir,
    writeModels(models) {
      const draft = join(settingsDir, `models.json.${process.pid}`);
      try {
        mkdirSync(settingsDir, { recursive: true, mode: 0o700 });
        writeFileSync(draft, `${JSON.stringify(models, null, 2)}\n`);
        renameSync(draft, join(settingsDir, 'models.json'));
      } catch (error) {
        throw new FailedError(`${settingsDir} cannot be written (${error instanceof Error ? error.message : ''})`);
      }
    },
  };
}

/** `127.0.0.1-8080-1f3a9c0b`: of one gateway alone. */
function folderOf(url: string): string {
  const name = normalUrl(url);
  const host = (URL.parse(name)?.host ?? '').replaceAll(/[^A-Za-z0-9.-]+/g, '-').slice(0, 60);
  return `${host}-${createHash('sha256').update(name).digest('hex').slice(0, 8)}`;
}

/** A program of that name on the PATH. */
export function findProgram({ PATH = '' }: ClientConfig['environment'], name: string): string | null {
  const paths = PATH.split(':').flatMap((folder) => (folder.startsWith('/') ? [join(folder, name)] : []));
  return paths.find((path) => isProgram(path)) ?? null;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** `pi-coding-agent-0.87.1.4711`: what the process 4711 installs. */
const draftName = /^pi-coding-agent-\d+\.\d+\.\d+\.(\d+)$/;

/** What was left by an installation that was killed: no process has its number any more. */
function removeOldDrafts(dir: string): void {
  if (!existsSync(dir)) return;
  for (const name of readdirSync(dir)) {
    const pid = draftName.exec(name)?.[1];
    if (pid !== undefined && processIdentity(Number(pid)) === null) {
      rmSync(join(dir, name), { recursive: true, force: true });
    }
  }
}

/**
 * Installs pi with npm, as npm is set up, unless it is there: all of it or nothing, also where it is broken off.
 * @returns its program, for Node
 * @throws FailedError saying why it cannot be had
 */
export async function installPi(context: CommandContext, { dir }: AgentHome): Promise<string> {
  const folder = join(dir, `pi-coding-agent-${pi.version}`);
  const program = join(folder, 'node_modules', pi.name, 'dist', 'bundle', 'cli.js');
  try {
    removeOldDrafts(dir);
  } catch {
    // They take room and nothing else.
  }
  if (existsSync(program)) return program;
  const npm = findProgram(context.config.environment, 'npm');
  if (npm === null) throw new FailedError('npm, which comes with Node, is not on the PATH: pi cannot be installed');
  const draft = `${folder}.${process.pid}`;
  const what = `installing pi ${pi.version} (160 MB on disk), this once`;
  const progress = context.terminal.progress(what);
  if (!context.terminal.isInteractive) context.err(`headgate: ${what}\n`);
  try {
    mkdirSync(draft, { recursive: true });
    writeFileSync(join(draft, 'package.json'), '{"private":true}\n');
    await runNpm(context, npm, draft);
    // Another one of us may have been quicker.
    if (!existsSync(program)) {
      rmSync(folder, { recursive: true, force: true });
      renameSync(draft, folder);
    }
    return program;
  } catch (error) {
    if (error instanceof FailedError) throw error;
    throw new FailedError(`pi cannot be installed in ${folder} (${error instanceof Error ? error.message : ''})`);
  } finally {
    progress.end();
    rmSync(draft, { recursive: true, force: true });
  }
}

/** No install script runs: pi needs none. A registry that is away is said soon. */
const npmFlags = [
  '--ignore-scripts',
  '--no-audit',
  '--no-fund',
  '--no-progress',
  '--loglevel=error',
  '--fetch-retry-mintimeout=1000',
  '--fetch-retry-maxtimeout=5000',
];

const endSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Told to end, it ends npm first: what that still wrote would stay. The second time it does not wait for npm's consent. */
async function runNpm({ config }: CommandContext, npm: string, folder: string): Promise<void> {
  const args = ['install', '--prefix', folder, ...npmFlags, `${pi.name}@${pi.version}`];
  // The key is none of npm's business.
  const environment = { ...config.environment, HEADGATE_API_KEY: undefined };
  let signals = 0;
  let isInterrupted = false;
  const end = (signal: NodeJS.Signals): void => {
    signals += 1;
    isInterrupted ||= signal === 'SIGINT';
    child.kill(signals === 1 ? 'SIGTERM' : 'SIGKILL');
  };
  // Before npm begins: a signal that comes once it runs must not find nobody.
  for (const signal of endSignals) process.on(signal, end);
  const child = spawn(npm, args, { cwd: folder, env: environment, stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  const [code, said] = await Promise.all([ended, text(child.stderr)]).finally(() => {
    for (const signal of endSignals) process.off(signal, end);
  });
  if (signals > 0) throw new FailedError('broken off', { isInterrupted });
  if (code === 0) return;
  const [why = `npm ended with ${code ?? 'a signal'}`] = said
    .split('\n')
    .map((line) => line.replace(/^npm (error|ERR!) ?/, '').trim())
    .filter((line) => line !== '' && !/^(code|errno|syscall) |A complete log/.test(line));
  throw new FailedError(
    `${pi.name} ${pi.version} cannot be had from the registry that npm is set up with ("npm config get registry"): ${why}`,
  );
}
