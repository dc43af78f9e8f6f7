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
import { type ClientConfig, normalUrl } from '#base/config/config.ts';
import { processIdentity } from '#base/process-identity.ts';
import { type CommandContext, FailedError } from '#edge/cli/shell/shell.ts';

/** Finds and installs coding agents on this machine. */

/** Package of pi (https://github.com/earendil-works/pi). Later versions name a dependency that some registries lack. */
export const pi = { name: '@earendil-works/pi-coding-agent', version: '0.87.1' } as const;

export interface AgentHome {
  readonly dir: string;
  /**
   * Folder of the agent's settings and sessions for this gateway's models, separate from the user's own pi and from
   * other gateways: a running agent reads its settings again, and would send this gateway's key to another gateway.
   */
  readonly settingsDir: string;
  writeModels(models: object): void;
}

/** @throws FailedError for a user without a home folder */
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

/** Returns the folder name of one gateway: `127.0.0.1-8080-1f3a9c0b`. */
function folderOf(url: string): string {
  const name = normalUrl(url);
  const host = (URL.parse(name)?.host ?? '').replaceAll(/[^A-Za-z0-9.-]+/g, '-').slice(0, 60);
  return `${host}-${createHash('sha256').update(name).digest('hex').slice(0, 8)}`;
}

/** Returns the path of a program on the PATH; null if there is none. */
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

/** Matches the draft folder of an installation: `pi-coding-agent-0.87.1.4711` is of process 4711. */
const draftName = /^pi-coding-agent-\d+\.\d+\.\d+\.(\d+)$/;

/** Removes drafts of killed installations, whose process no longer runs. */
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
 * Installs pi with the user's npm settings, unless pi is there already: completely or not at all, even if interrupted.
 * @returns pi's program, for Node
 * @throws FailedError saying why pi cannot be installed
 */
export async function installPi(context: CommandContext, { dir }: AgentHome): Promise<string> {
  const folder = join(dir, `pi-coding-agent-${pi.version}`);
  const program = join(folder, 'node_modules', pi.name, 'dist', 'bundle', 'cli.js');
  try {
    removeOldDrafts(dir);
  } catch {
    // Old drafts only take disk space.
  }
  if (existsSync(program)) return program;
  const npm = findProgram(context.config.environment, 'npm');
  if (npm === null) throw new FailedError('npm is not on the PATH, so pi cannot be installed; npm comes with Node');
  const draft = `${folder}.${process.pid}`;
  const what = `installing pi ${pi.version} (160 MB on disk), only on first use`;
  const progress = context.terminal.progress(what);
  if (!context.terminal.isInteractive) context.err(`headgate: ${what}\n`);
  try {
    mkdirSync(draft, { recursive: true });
    writeFileSync(join(draft, 'package.json'), '{"private":true}\n');
    await runNpm(context, npm, draft);
    // Another process may have installed pi meanwhile.
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

/** Flags for npm. No install script runs: pi needs none. Short timeouts report an unreachable registry soon. */
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

/**
 * Runs npm. On a signal, ends npm first: files that npm writes after this process ended would stay. A second signal
 * kills npm without waiting.
 */
async function runNpm({ config }: CommandContext, npm: string, folder: string): Promise<void> {
  const args = ['install', '--prefix', folder, ...npmFlags, `${pi.name}@${pi.version}`];
  // npm does not get the key.
  const environment = { ...config.environment, HEADGATE_API_KEY: undefined };
  let signals = 0;
  let isInterrupted = false;
  const end = (signal: NodeJS.Signals): void => {
    signals += 1;
    isInterrupted ||= signal === 'SIGINT';
    child.kill(signals === 1 ? 'SIGTERM' : 'SIGKILL');
  };
  // The handlers must exist before npm starts: a signal could otherwise end this process and leave npm running.
  for (const signal of endSignals) process.on(signal, end);
  const child = spawn(npm, args, { cwd: folder, env: environment, stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  const [code, said] = await Promise.all([ended, text(child.stderr)]).finally(() => {
    for (const signal of endSignals) process.off(signal, end);
  });
  if (signals > 0) throw new FailedError('interrupted', { isInterrupted });
  if (code === 0) return;
  const [why = `npm ended with ${code ?? 'a signal'}`] = said
    .split('\n')
    .map((line) => line.replace(/^npm (error|ERR!) ?/, '').trim())
    .filter((line) => line !== '' && !/^(code|errno|syscall) |A complete log/.test(line));
  throw new FailedError(
    `cannot install ${pi.name} ${pi.version} from npm's registry ("npm config get registry" prints it): ${why}`,
  );
}
