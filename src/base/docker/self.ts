import { existsSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';

/**
 * Returns the id of the container that this gateway runs in, or null. Docker mounts /etc/hostname and other files from
 * the container's own folder, whose name is the id; older cgroups contain the id, too; the hostname is the beginning of
 * the id unless an operator set another.
 */
export function findOwnContainer(): string | null {
  const mounted = /\/containers\/([0-9a-f]{64})\/(?:hostname|hosts|resolv\.conf) /.exec(
    readText('/proc/self/mountinfo'),
  );
  if (mounted?.[1] !== undefined) return mounted[1];
  const group = /\/docker[/-]([0-9a-f]{64})/.exec(readText('/proc/self/cgroup'));
  if (group?.[1] !== undefined) return group[1];
  return existsSync('/.dockerenv') && /^[0-9a-f]{12}$/.test(hostname()) ? hostname() : null;
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
