import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestDocker } from '#test/docker.ts';
import { importImage, librariesOf, place } from '#test/docker-image.ts';
import { findProgram } from '#test/compose.ts';

/** Images of runs and of nodes, made of programs of this machine; nothing is pulled. */

export const runImage = 'headgate-test/runs:1';
export const nodeImage = 'headgate-test/node:1';

const applets = [
  'sh',
  'cat',
  'tail',
  'sleep',
  'id',
  'env',
  'ls',
  'mkdir',
  'touch',
  'rm',
  'seq',
  'base64',
  'nc',
  'nslookup',
  'tee',
  'chmod',
  'printf',
  'grep',
  'dd',
  'true',
  'wc',
];

export async function importRunImages(docker: TestDocker): Promise<void> {
  await build(docker, runImage, ['ENTRYPOINT ["/usr/local/bin/terraform"]'], (root) => {
    addProgram(root, '/usr/local/bin/terraform', program('terraform'));
    const iptables = realpathSync(program('iptables'));
    addProgram(root, iptables, iptables);
    for (const name of ['iptables', 'ip6tables']) symlinkSync(iptables, join(root, 'usr/sbin', name));
    for (const module of globSync('/usr/lib/*/xtables/lib{xt,ipt,ip6t}_{standard,conntrack,REJECT}.so'))
      place(root, module, module);
  });
  const start = 'exec /usr/sbin/sshd -D -e -f /keys/config';
  await build(docker, nodeImage, [`ENTRYPOINT ["/bin/sh","-c",${JSON.stringify(start)}]`], (root) => {
    for (const name of ['sshd', 'scp'])
      addProgram(root, join('/usr', name === 'sshd' ? 'sbin' : 'bin', name), program(name));
    for (const session of globSync('/usr/lib/openssh/sshd-{session,auth}')) addProgram(root, session, session);
    for (const folder of ['etc', 'root', 'run/sshd']) mkdirSync(join(root, folder), { recursive: true });
    const users = ['root:x:0:0:root:/root:/bin/sh', 'sshd:x:100:65534::/run/sshd:/bin/false'];
    writeFileSync(join(root, 'etc/passwd'), `${users.join('\n')}\n`);
    writeFileSync(join(root, 'etc/shadow'), 'root:*:19000::::::\nsshd:*:19000::::::\n', { mode: 0o600 });
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nnogroup:x:65534:\n');
    chmodSync(join(root, 'run/sshd'), 0o755);
  });
}

function program(name: string): string {
  const found = findProgram(name, process.env) ?? [`/usr/sbin/${name}`].find((path) => existsSync(path));
  if (found === undefined) throw new Error(`there is no ${name}`);
  return found;
}

function addProgram(root: string, path: string, source: string): void {
  place(root, path, source);
  chmodSync(join(root, path), 0o755);
  const libraries = isStatic(source) ? [] : librariesOf(source);
  for (const library of libraries) place(root, library, library);
}

function isStatic(path: string): boolean {
  try {
    return !execFileSync('ldd', [path], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).includes('=>');
  } catch {
    return true;
  }
}

async function build(
  docker: TestDocker,
  name: string,
  changes: readonly string[],
  fill: (root: string) => void,
): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'hg-run-image-'));
  try {
    chmodSync(root, 0o755);
    const busybox = program('busybox');
    place(root, '/bin/busybox', busybox);
    chmodSync(join(root, 'bin/busybox'), 0o755);
    for (const applet of applets) symlinkSync('busybox', join(root, 'bin', applet));
    mkdirSync(join(root, 'tmp'));
    chmodSync(join(root, 'tmp'), 0o1777);
    mkdirSync(join(root, 'usr/sbin'), { recursive: true });
    fill(root);
    const tarPath = `${root}.tar`;
    execFileSync('tar', ['--create', '--owner=0', '--group=0', '--file', tarPath, '--directory', root, '.']);
    await importImage(docker, { name, tarPath, changes });
    rmSync(tarPath);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}
