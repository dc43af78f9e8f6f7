import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';

/** The user that runs have where the gateway is root: it owns nothing and is nobody's. */
export const runUser = { uid: 65_532, gid: 65_532 } as const;

/** setpriv(1): a command as that user, without any privilege of root's. */
export const asRunUser = [
  'setpriv',
  `--reuid=${runUser.uid}`,
  `--regid=${runUser.gid}`,
  '--clear-groups',
  '--inh-caps=-all',
  '--no-new-privs',
];

export interface SandboxPlace {
  /** Of the gateway's machine: it becomes `/work`. */
  readonly workDir: string;
  readonly terraform: string;
  /** Of the gateway's machine; null where there is none. */
  readonly mirror: string | null;
  /** The gateway is root: bubblewrap is started as `runUser`. */
  readonly dropsRoot: boolean;
}

export const sandboxPaths = { work: '/work', mirror: '/mirror', terraformDir: '/opt/terraform' } as const;

/** What of /etc programs need to find hosts, certificates and names of users; of /etc/ssl not the private keys. */
const etcFiles = [
  '/etc/resolv.conf',
  '/etc/hosts',
  '/etc/nsswitch.conf',
  '/etc/ssl/certs',
  '/etc/ssl/openssl.cnf',
  '/etc/ssl/cert.pem',
  '/etc/ca-certificates',
  '/etc/pki/ca-trust',
  '/etc/pki/tls/certs',
  '/etc/passwd',
];

/**
 * bubblewrap around a command: the machine's programs, read-only, the work folder, and nothing else of the machine; own
 * process ids, so that no other process is seen or signalled. The network is the machine's. A run as root of the machine
 * could write kernel settings in /proc/sys by its user id alone, which no user namespace forbids: hence `dropsRoot`.
 */
export function sandboxCommand({ workDir, terraform, mirror, dropsRoot }: SandboxPlace, cwd: string): string[] {
  const mounts = [
    ['--ro-bind', '/usr', '/usr'],
    ...['/bin', '/sbin', '/lib', '/lib32', '/lib64'].flatMap(rootFolder),
    ...etcFiles.filter((path) => existsSync(path)).map((path) => ['--ro-bind', path, path]),
    ['--proc', '/proc'],
    ['--dev', '/dev'],
    ['--tmpfs', '/tmp'],
    ['--bind', workDir, sandboxPaths.work],
    ['--ro-bind', terraform, `${sandboxPaths.terraformDir}/${basename(terraform)}`],
    ...(mirror === null ? [] : [['--ro-bind', mirror, sandboxPaths.mirror]]),
  ].flat();
  const apart = ['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'];
  const rest = ['--new-session', '--cap-drop', 'ALL', '--hostname', 'run', '--chdir', cwd, '--'];
  return [...(dropsRoot ? asRunUser : []), 'bwrap', ...apart, ...mounts, ...rest];
}

/** On most systems these are links into /usr, on others folders of their own. */
function rootFolder(path: string): string[][] {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return [];
  return found.isSymbolicLink() ? [['--symlink', readlinkSync(path), path]] : [['--ro-bind', path, path]];
}

/** prlimit(1) for a run: processes count per user, so the bound is for a fork bomb and not exact. */
export const resourceLimits = ['prlimit', '--nproc=4096', '--nofile=4096', '--fsize=1073741824', '--core=0'] as const;
