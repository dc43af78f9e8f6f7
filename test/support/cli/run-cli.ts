import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'vitest';
import { parseClientConfig, readClientConfig } from '#base/config/read-config.ts';
import { type CliRun, runCli as runCommand } from '#edge/cli/cli.ts';
import { machineCommands } from '#programs/machine-commands.ts';

export const repository = new URL('../../../', import.meta.url).pathname;

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Standard input; none where absent. */
  readonly input?: string;
  /** Ends the command once its output holds this. */
  readonly until?: (stdout: string) => boolean;
  /** Runs a command of the machine as a process, as a user does. */
  readonly asProcess?: boolean;
}

/** Groups of commands that know nothing of their process: what they ask, they ask the gateway. So does `import` of files. */
const ofTheGateway = [
  'audit',
  'clusters',
  'costs',
  'engines',
  'keys',
  'models',
  'organizations',
  'projects',
  'runs',
  'stacks',
  'usage',
  'users',
  'wallet',
  'webhooks',
];
const place = ['HEADGATE_URL', 'HEADGATE_API_KEY'];

/** First words of the commands of the machine itself, such as `backup`. */
const ofTheMachine = machineCommands.map(({ name }) => name.split(' ')[0]);

/**
 * Runs the command `headgate` as a user does: the file that package.json names, in a process of its own. A command that
 * nothing is typed to and that is not broken off runs in this process, which takes a hundredth of the time.
 */
export function runCli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const { env = {}, cwd, input, until } = options;
  const [group = ''] = args;
  const isPlain = cwd === undefined && input === undefined && until === undefined;
  if (!isPlain || options.asProcess === true) return runProcess(args, options);
  if (ofTheMachine.includes(group)) return runOfMachine(args, env);
  const names = group === 'import' ? [] : ofTheGateway.includes(group) ? place : null;
  const isOfThem = names?.length === Object.keys(env).length && names.every((name) => name in env);
  return isOfThem ? runHere(args, env) : runProcess(args, options);
}

/** Only these variables. */
export function runHere(args: readonly string[], env: Readonly<Record<string, string>>): Promise<CliResult> {
  return readOutput({ args, readConfig: () => parseClientConfig(env) });
}

async function readOutput(run: Omit<CliRun, 'out' | 'err'>): Promise<CliResult> {
  const said = { stdout: '', stderr: '' };
  const code = await runCommand({
    ...run,
    out: (text) => void (said.stdout += text),
    err: (text) => void (said.stderr += text),
  });
  return { code, ...said };
}

let commandBefore: Promise<unknown> = Promise.resolve();

/** Runs one command of the machine at a time: such a command reads the environment of its process. */
function runOfMachine(args: readonly string[], env: Readonly<Record<string, string>>): Promise<CliResult> {
  const run = commandBefore.then(async () => {
    const own = process.env;
    process.env = environmentOf(env);
    try {
      return await readOutput({ args, readConfig: readClientConfig, commands: machineCommands });
    } finally {
      process.env = own;
    }
  });
  commandBefore = run.catch(() => undefined);
  return run;
}

/** The login of this machine's user does not concern the tests. */
const environmentOf = (env: Readonly<Record<string, string>>): Record<string, string> => ({
  PATH: process.env['PATH'] ?? '',
  HOME: process.env['HOME'] ?? '',
  XDG_CONFIG_HOME: '/dev/null/none',
  ...env,
});

function runProcess(args: readonly string[], { env = {}, cwd, input, until }: CliOptions = {}): Promise<CliResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [join(repository, 'src/programs/headgate.js'), ...args], {
      cwd: cwd ?? repository,
      env: environmentOf(env),
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    child.stdin?.end(input);
    let isEnding = false;
    let stdout = '';
    let stderr = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      // Once: a second one ends it at once.
      if (!isEnding && until?.(stdout) === true) isEnding = child.kill('SIGINT');
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** A folder for each call, removed after the test. */
export function useFolders(): () => string {
  const made: string[] = [];
  afterEach(() => {
    for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
  });
  return () => {
    const folder = mkdtempSync(join(tmpdir(), 'hg-cli-'));
    made.push(folder);
    return folder;
  };
}
