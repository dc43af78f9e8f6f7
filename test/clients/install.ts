import { type SpawnOptions, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Client } from './list.ts';

export interface Finished {
  /** Null if the program was ended. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program without input. @throws Error if it cannot be started */
export function runProgram(program: string, args: readonly string[], options: SpawnOptions): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, [...args], { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
    const output = { stdout: '', stderr: '' };
    child.stdout?.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()));
    child.stderr?.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, ...output }));
  });
}

/** Runs a program that must succeed. @returns its output. @throws Error with its last words */
async function mustRun(program: string, args: readonly string[], cwd: string): Promise<string> {
  const { code, stdout, stderr } = await runProgram(program, args, { cwd });
  if (code === 0) return stdout;
  throw new Error(`${program} ${args[0]} failed: ${(stderr.trim() || stdout.trim()).slice(-300)}`);
}

const packagesOf = ({ shown, besides = [] }: Client): string[] => [...new Set([...shown, ...besides])];

/** Claude Code's program comes with the package, and its script puts the program into place. */
const claudeScript = 'node_modules/@anthropic-ai/claude-code/install.cjs';

/**
 * Installs the newest versions of a client's packages.
 * @returns the versions of the packages that the table shows
 * @throws Error with a sentence for the table: npm, pip or python3 failed or is missing
 */
export function installClient(client: Client, folder: string): Promise<string[]> {
  mkdirSync(folder, { recursive: true });
  return client.registry === 'npm' ? installFromNpm(client, folder) : installFromPypi(client, folder);
}

async function installFromNpm(client: Client, folder: string): Promise<string[]> {
  writeFileSync(join(folder, 'package.json'), '{ "private": true, "type": "module" }\n');
  const options = ['--ignore-scripts', '--no-package-lock', '--no-audit', '--no-fund'];
  await mustRun('npm', ['install', ...options, ...packagesOf(client).map((name) => `${name}@latest`)], folder);
  if (existsSync(join(folder, claudeScript))) await mustRun(process.execPath, [claudeScript], folder);
  return client.shown.map((name) => {
    const text = readFileSync(join(folder, 'node_modules', name, 'package.json'), 'utf8');
    return (JSON.parse(text) as { version: string }).version;
  });
}

const versionsProgram =
  'import sys, importlib.metadata as m; print(" ".join(m.version(name) for name in sys.argv[1:]))';

async function installFromPypi(client: Client, folder: string): Promise<string[]> {
  const python = pythonOf(folder);
  if (!existsSync(python)) {
    await mustRun('python3', ['-m', 'venv', '.'], folder).catch((error: Error) => {
      throw 'code' in error && error.code === 'ENOENT' ? new Error('python3 is not on PATH') : error;
    });
  }
  await mustRun(python, ['-m', 'pip', 'install', '--quiet', '--upgrade', ...packagesOf(client)], folder);
  return (await mustRun(python, ['-c', versionsProgram, ...client.shown], folder)).trim().split(' ');
}

/** Path of the Python that has a client from PyPI. */
export const pythonOf = (folder: string): string => join(folder, 'bin', 'python');
