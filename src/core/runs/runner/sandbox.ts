import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';

export interface RunUser {
  readonly uid: number;
  readonly gid: number;
}

/** User of runs if the gateway is root: the user owns nothing else. */
export const runUser = { uid: 65_532, gid: 65_532 } as const;

/** setpriv(1): runs a command as that user, without any of root's privileges. */
export const asRunUser = ({ uid, gid }: RunUser): string[] => [
  'setpriv',
  `--reuid=${uid}`,
  `--regid=${gid}`,
  '--clear-groups',
  '--inh-caps=-all',
  '--no-new-privs',
];

export interface SandboxPlace {
  /** On the gateway's machine; mounted as `/work`. */
  readonly workDir: string;
  readonly terraform: string;
  /** On the gateway's machine; null if there is none. */
  readonly mirror: string | null;
  /** `/etc/hosts` of a run with its own network; null: the run has the machine's network. */
  readonly hosts: string | null;
}

export const sandboxPaths = { work: '/work', mirror: '/mirror', terraformDir: '/opt/terraform' } as const;

/** Files of /etc that programs need to find hosts in the machine's network. */
const etcOfNetwork = ['/etc/resolv.conf', '/etc/hosts'];

/** Files of /etc that programs need for certificates and user names, without the private keys in /etc/ssl. */
const etcFiles = [
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
 * Returns a command inside bubblewrap. It sees the machine's programs, read-only, the work folder, and nothing else of
 * the machine. It has its own process ids, so it sees and signals no other process, and ends with its keeper. Only the
 * work folder and two small folders in memory are writable. Must not be started as root: root could write kernel
 * settings in /proc/sys by its user id, which no user namespace prevents.
 */
export function sandboxCommand({ workDir, terraform, mirror, hosts }: SandboxPlace, cwd: string): string[] {
  const etc = hosts === null ? [...etcOfNetwork, ...etcFiles] : etcFiles;
  const mounts = [
    ['--ro-bind', '/usr', '/usr'],
    ...['/bin', '/sbin', '/lib', '/lib32', '/lib64'].flatMap(rootFolder),
    ...etc.filter((path) => existsSync(path)).map((path) => ['--ro-bind', path, path]),
    ...(hosts === null ? [] : [['--ro-bind', hosts, '/etc/hosts']]),
    ['--proc', '/proc'],
    ['--dev', '/dev'],
    ['--size', memoryFolderBytes, '--tmpfs', '/dev/shm'],
    ['--remount-ro', '/dev'],
    ['--size', memoryFolderBytes, '--tmpfs', '/tmp'],
    ['--bind', workDir, sandboxPaths.work],
    ['--ro-bind', terraform, `${sandboxPaths.terraformDir}/${basename(terraform)}`],
    ...(mirror === null ? [] : [['--ro-bind', mirror, sandboxPaths.mirror]]),
    ['--remount-ro', '/'],
  ].flat();
  const apart = ['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'];
  const user = ['--uid', String(runUser.uid), '--gid', String(runUser.gid)];
  const rest = ['--new-session', '--die-with-parent', '--cap-drop', 'ALL', '--hostname', 'run', '--chdir', cwd, '--'];
  return ['bwrap', ...apart, ...user, ...mounts, ...rest];
}

/** Returns mounts for a folder that is a link into /usr on most systems, and a real folder on others. */
function rootFolder(path: string): string[][] {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return [];
  return found.isSymbolicLink() ? [['--symlink', readlinkSync(path), path]] : [['--ro-bind', path, path]];
}

/** Size of a folder in memory, which counts toward the run's memory where that is limited. */
const memoryFolderBytes = String(64 * 1024 * 1024);

/**
 * Returns prlimit(1) and nice(1) for a run. Processes are counted per user, so their limit stops a fork bomb and is not
 * exact. Writable memory per process is limited where the run's is not. The address space is unlimited, because Go
 * programs reserve much of it.
 * @param dataBytesMax limit per process; null: the run as a whole is limited
 */
export function resourceLimits(dataBytesMax: number | null): string[] {
  const data = dataBytesMax === null ? [] : [`--data=${dataBytesMax}`];
  return ['nice', '-n', '10', 'prlimit', '--nproc=2048', '--nofile=4096', '--fsize=1073741824', '--core=0', ...data];
}
