import { readFileSync } from 'node:fs';

/**
 * Drops root after reading the group of the Docker socket. The group's number differs between machines, and only its
 * members may be able to open the socket. So the gate may start as root, reads the socket's group, joins it, and drops
 * root.
 */

/**
 * Drops root permanently. The process continues as `user`, with the group of the same number, and with `group` as its
 * only other group.
 *
 * @param user number of the user and of its group
 * @throws Error if root cannot be dropped completely
 */
export function dropRoot(user: number, group: number | null): void {
  try {
    process.setgroups?.(group === null ? [] : [group]);
    process.setgid?.(user);
    process.setuid?.(user);
  } catch (error) {
    const message = 'docker-gate requires the capabilities SETUID and SETGID if it starts as root.';
    throw new Error(message, { cause: error });
  }
  const status = readFileSync('/proc/self/status', 'utf8');
  const left = /^Cap(?:Inh|Prm|Eff|Amb):\s*0*[1-9a-f].*$/m.exec(status)?.[0];
  if (left !== undefined) throw new Error(`docker-gate could not drop the rights of root: ${left}.`);
  if (canBeRoot()) throw new Error('docker-gate dropped root, but could become root again.');
}

function canBeRoot(): boolean {
  try {
    process.setuid?.(0);
    return true;
  } catch {
    return false;
  }
}
