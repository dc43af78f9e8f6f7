import { readFileSync } from 'node:fs';

/**
 * The group of the Docker socket has another number on every machine, and who may open the socket may have that group
 * alone. So the door may be started as root: it looks at the socket, takes its group, and is root no more.
 */

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
