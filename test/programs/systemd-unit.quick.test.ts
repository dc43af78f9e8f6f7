import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = new URL('../../', import.meta.url).pathname;
const unit = readFileSync(`${root}compose/systemd/headgate.service`, 'utf8');

const command = readFileSync(`${root}compose/systemd/headgate`, 'utf8');

const valueOf = (name: string): string => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1] ?? '';

/** Output of systemd's analysis of the unit, with the clone where this one is. */
function analyze(...args: readonly string[]): { readonly status: number | null; readonly said: string } {
  const folder = mkdtempSync(join(tmpdir(), 'headgate-unit-'));
  try {
    const path = join(folder, 'headgate.service');
    writeFileSync(path, unit.replaceAll('/opt/headgate/', root).replaceAll('=/opt/headgate', `=${root}`));
    const { status, stdout, stderr } = spawnSync('systemd-analyze', [...args, path], { encoding: 'utf8' });
    return { status, said: stdout + stderr };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe('the systemd unit', () => {
  it('starts the same program as npm start', () => {
    const { scripts } = JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as { scripts: Record<string, string> };
    const [, command = ''] = /^exec node (.*)$/.exec(scripts['start'] ?? '') ?? [];
    expect(command).not.toBe('');
    expect(valueOf('ExecStart')).toBe(`${valueOf('WorkingDirectory')}/node_modules/.bin/node ${command}`);
  });

  it('has a command that runs with the same user, folders and settings', () => {
    const properties = [...command.matchAll(/--property=(\w+)=(\S+)/g)];
    expect(properties.map(([, name]) => name)).toContain('EnvironmentFile');
    for (const [, name = '', value] of properties) expect([name, value]).toEqual([name, valueOf(name)]);
    const variables = [...command.matchAll(/--setenv=(\S+)/g)].map(([, variable]) => variable);
    expect(variables.join(' ')).toBe(valueOf('Environment'));
    expect(command).toContain(`-- ${valueOf('WorkingDirectory')}/node_modules/.bin/node src/programs/headgate.js "$@"`);
  });

  it('can write only its state folder, which is the data folder', () => {
    expect(valueOf('ProtectSystem')).toBe('strict');
    expect(valueOf('Environment')).toContain(`HEADGATE_DATA_DIR=/var/lib/${valueOf('StateDirectory')}`);
    expect(unit).not.toMatch(/^ReadWritePaths=/m);
  });

  it('allows GPU devices and code compiled by Node and CUDA', () => {
    for (const name of ['PrivateDevices', 'DevicePolicy', 'MemoryDenyWriteExecute']) expect(valueOf(name)).toBe('');
  });

  it('passes systemd-analyze verify and security', { tags: 'systemd' }, () => {
    expect(analyze('verify')).toEqual({ status: 0, said: '' });
    expect(analyze('security', '--offline=true', '--threshold=40')).toMatchObject({ status: 0 });
  });
});
