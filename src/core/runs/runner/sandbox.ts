import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';

export interface RunUser {
  readonly uid: number;
  readonly gid: number;
}

/** The user that runs have where the gateway is root: it owns nothing and is nobody's. */
export const runUser = { uid: 65_532, gid: 65_532 } as const;

/** setpriv(1): a command as that user, without any privilege of root's. */
export const asRunUser = ({ uid, gid }: RunUser): string[] => [
  'setpriv',
  `--reuid=${uid}`,
  `--regid=${gid}`,
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
  /** `/etc/hosts` of a run whose network is its own; null: it has the machine's. */
  readonly hosts: string | null;
}

export const sandboxPaths = { work: '/work', mirror: '/mirror', terraformDir: '/opt/terraform' } as const;

/** What of /etc programs need to find hosts in the machine's network. */
const etcOfNetwork = ['/etc/resolv.conf', '/etc/hosts'];

/** What of /etc programs need to find certificates and names of users; of /etc/ssl not the private keys. */
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
 * bubblewrap around a command: the machine's programs, read-only, the work folder, and nothing else of the machine; own
 * process ids, so that no other process is seen or signalled; and an end when its keeper ends. Nothing can be written but
 * the work folder and two small folders in memory. It is to be started as another user than root: a run as root of the
 * machine could write kernel settings in /proc/sys by its user id alone, which no user namespace forbids.
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

/** On most systems these are links into /usr, on others folders of their own. */
function rootFolder(path: string): string[][] {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return [];
  return found.isSymbolicLink() ? [['--symlink', readlinkSync(path), path]] : [['--ro-bind', path, path]];
}

/** Of a folder in memory, which counts as memory of the run where that is bounded. */
const memoryFolderBytes = String(64 * 1024 * 1024);

/**
 * prlimit(1) and nice(1) for a run. Processes count per user, so their bound is for a fork bomb and not exact. Memory
 * that a process may write to is bounded where nothing bounds that of the run: not its addresses, of which programs in
 * Go reserve many.
 * @param dataBytesMax of one process; null: the run as a whole is bounded
 */
export function resourceLimits(dataBytesMax: number | null): string[] {
  const data = dataBytesMax === null ? [] : [`--data=${dataBytesMax}`];
  return ['nice', '-n', '10', 'prlimit', '--nproc=2048', '--nofile=4096', '--fsize=1073741824', '--core=0', ...data];
}
