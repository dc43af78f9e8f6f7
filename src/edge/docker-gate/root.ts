import { readFileSync, statSync } from 'node:fs';
import { request } from 'node:http';

/**
 * The group of the Docker socket has another number on every machine, and who may open the socket may have that group
 * alone. So the door may be started as root: it looks at the socket, takes its group, and is root no more.
 */

/** Group of the socket; null where there is none. */
export function socketGroup(socketPath: string): number | null {
  return statOf(socketPath)?.gid ?? null;
}

/**
 * Ends being root, for good: as `user`, in the group of that number, with `group` besides and no other.
 *
 * @param user number of the user and of its group
 * @throws Error where something of root is left
 */
export function dropRoot(user: number, group: number | null): void {
  try {
    process.setgroups?.(group === null ? [] : [group]);
    process.setgid?.(user);
    process.setuid?.(user);
  } catch (error) {
    const message = 'The door to the Docker socket needs the capabilities SETUID and SETGID where it starts as root.';
    throw new Error(message, { cause: error });
  }
  const status = readFileSync('/proc/self/status', 'utf8');
  const left = /^Cap(?:Inh|Prm|Eff|Amb):\s*0*[1-9a-f].*$/m.exec(status)?.[0];
  if (left !== undefined) throw new Error(`The door to the Docker socket could not give up being root: ${left}.`);
  if (canBeRoot()) throw new Error('The door to the Docker socket could be root again.');
}

function canBeRoot(): boolean {
  try {
    process.setuid?.(0);
    return true;
  } catch {
    return false;
  }
}

/**
 * Asks the Docker engine behind the socket once.
 * @returns null where it answers, else one sentence that says what to do
 */
export function whyClosed(socketPath: string): Promise<string | null> {
  return new Promise((resolve) => {
    const asked = request({ socketPath, path: '/_ping', agent: false, timeout: answerTimeoutMs }, (answer) => {
      answer.resume();
      const { statusCode = 0 } = answer;
      resolve(statusCode < 500 ? null : `The Docker engine behind ${socketPath} answers ${statusCode}: see its log.`);
    });
    asked.on('timeout', () => asked.destroy(new Error('ETIMEDOUT')));
    asked.on('error', (error: NodeJS.ErrnoException) => resolve(sentenceOf(socketPath, error.code ?? error.message)));
    asked.end();
  });
}

const answerTimeoutMs = 3000;

function statOf(path: string): { readonly uid: number; readonly gid: number; readonly mode: number } | null {
  try {
    const { uid, gid, mode } = statSync(path);
    return { uid, gid, mode: mode & 0o7777 };
  } catch {
    return null;
  }
}

/** A number that stands for every user and group that a container does not know. */
const unknownId = 65_534;

function sentenceOf(socketPath: string, code: string): string {
  const found = statOf(socketPath);
  if (found === null) {
    return `There is no Docker socket at ${socketPath}: set DOCKER_SOCKET to the path that "docker context inspect" prints.`;
  }
  const owned = `It is owned by user ${found.uid} and group ${found.gid}, with mode ${found.mode.toString(8)}`;
  if (code === 'EACCES' || code === 'EPERM') {
    const cannot = `The Docker socket ${socketPath} cannot be opened`;
    if (found.gid === unknownId) {
      return `${cannot}: the Docker engine remaps users, so set userns_mode: host for the service docker-gate.`;
    }
    if ((found.mode & 0o060) !== 0o060) return `${cannot}. ${owned}: run chmod g+rw on it, so that its group may.`;
    const groups = process.getgroups?.().join(', ') ?? '';
    return `${cannot}. ${owned}, and this program has the groups ${groups}: set DOCKER_GID=${found.gid}.`;
  }
  return `Nothing answers at the Docker socket ${socketPath} (${code}): start Docker, and this service again if Docker has made a new socket.`;
}
