import { execFile } from 'node:child_process';
import { existsSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { repository, runCli, useFolders } from './run-cli.ts';

const run = promisify(execFile);
const folders = useFolders();

/** What bash offers for a line, with its last word typed this far. */
async function offers(script: string, line: string, env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const words = line.split(' ');
  const program = `${script}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _headgate; echo "\${COMPREPLY[*]}"`;
  const { stdout } = await run('bash', ['--norc', '-c', program], { env: { ...process.env, ...env } });
  return stdout
    .trim()
    .split(' ')
    .filter((word) => word !== '');
}

const [zsh, fish] = ['/usr/bin/zsh', '/usr/bin/fish'];

/** A gateway whose clusters have names that a shell would run, and a shell's environment that asks it. */
async function useNames() {
  const names = ['research', 'rm -rf', '$(touch hacked)', '`x`', '-f', 'a;b'];
  const server = createServer((_, response) => {
    response.end(JSON.stringify({ data: names.map((name) => ({ id: 'cluster_1', name })) }));
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  const bin = folders();
  symlinkSync(join(repository, 'src/programs/headgate.js'), join(bin, 'headgate'));
  symlinkSync(process.execPath, join(bin, 'node'));
  const env = {
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
    HEADGATE_URL: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    HEADGATE_API_KEY: 'k',
  };
  return { env, close: () => void server.close() };
}

describe('headgate completion', () => {
  it('offers in bash the commands that there are, their options and what these may be', async () => {
    const { stdout: script, code } = await runCli(['completion', 'bash']);
    expect(code).toBe(0);
    const first = await offers(script, 'headgate ');
    expect(first).toEqual(expect.arrayContaining(['engines', 'login', 'completion', 'backup', 'help']));
    expect(await offers(script, 'headgate eng')).toEqual(['engines']);
    expect(await offers(script, 'headgate engines re')).toEqual(['restart', 'reset', 'reload']);
    expect(await offers(script, 'headgate engines logs --')).toEqual(
      expect.arrayContaining(['--tail', '--follow', '--json']),
    );
    expect(await offers(script, 'headgate completion ')).toEqual(['bash', 'zsh', 'fish']);
    expect(await offers(script, 'headgate engines logs x --tail ')).toEqual([]);
  });

  it('offers what the gateway has, by names that no shell takes for its own, and nothing where it does not answer', async () => {
    const { env, close } = await useNames();
    const { stdout: script } = await runCli(['completion', 'bash']);
    expect(await offers(script, 'headgate clusters rm ', env)).toEqual(['research']);
    expect(await offers(script, 'headgate runs apply x --cluster ', env)).toEqual(['research']);
    expect(await offers(script, 'headgate clusters rm --y', env)).toEqual(['--yes']);
    close();
    expect(await offers(script, 'headgate clusters rm ', env)).toEqual([]);
  });

  it.runIf(existsSync(zsh))('offers them in zsh, too', async () => {
    const { env, close } = await useNames();
    const { stdout: script } = await runCli(['completion', 'zsh']);
    // The names as zsh has them, without its line editor.
    const stand = 'compdef() { :; }; compadd() { print -l -- $found; }';
    const program = `${stand}; ${script}\n_headgate_names clusters`;
    const { stdout } = await run(zsh, ['-f', '-c', program], { env: { ...process.env, ...env } });
    close();
    expect(stdout).toBe('research\n');
  });

  it.runIf(existsSync(fish))('offers them in fish, too', async () => {
    const { env, close } = await useNames();
    const file = join(folders(), 'script');
    writeFileSync(file, (await runCli(['completion', 'fish'])).stdout);
    const line = ['-c', `source ${file}; complete -C 'headgate runs apply x --cluster '`];
    const { stdout } = await run(fish, line, { env: { ...process.env, ...env } });
    close();
    expect(stdout).toBe('research\tby name or id\n');
  });

  it.each([
    ['zsh', '/usr/bin/zsh'],
    ['fish', '/usr/bin/fish'],
  ])('is a script that %s can read', async (shell, program) => {
    const { stdout: script } = await runCli(['completion', shell]);
    expect(script).toContain('engines');
    if (!existsSync(program)) return;
    const file = join(folders(), 'script');
    writeFileSync(file, script);
    expect(await run(program, ['-n', file])).toMatchObject({ stderr: '' });
    if (shell !== 'fish') return;
    const asked = await run(program, ['-c', `source ${file}; complete -C 'headgate engines re'`]);
    expect(asked.stdout).toMatch(/^restart\t/m);
    const flags = await run(program, ['-c', `source ${file}; complete -C 'headgate engines logs --ta'`]);
    expect(flags.stdout).toMatch(/^--tail/m);
  });
});
