import { execFileSync } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { whyNoDocker } from './docker.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Why the compose files cannot be tried here, or null: images are made of this machine's own programs. */
export function whyNoCompose(environment: Environment): string | null {
  const noDocker = whyNoDocker(environment);
  if (noDocker !== null) return noDocker;
  if (findProgram('docker', environment) === null) return 'there is no docker on PATH';
  if (composeCommand(environment) === null) return 'there is neither docker compose nor docker-compose';
  if (!existsSync(busybox)) return `there is no ${busybox} (package busybox-static)`;
  if (postgresBin() === null) return 'there is no PostgreSQL server under /usr/lib/postgresql';
  const PATH = `${environment['PATH'] ?? ''}:/usr/sbin`;
  const missing = ['redis-server', 'haproxy', 'npm', 'curl', 'openssl'].find(
    (name) => findProgram(name, { PATH }) === null,
  );
  return missing === undefined ? null : `there is no ${missing} on PATH`;
}

export const busybox = '/bin/busybox';

/** Programs of the newest PostgreSQL server that Debian's packages put here. */
export function postgresBin(): string | null {
  return (
    globSync('/usr/lib/postgresql/*/bin/postgres')
      .toSorted()
      .at(-1)
      ?.replace(/\/postgres$/, '') ?? null
  );
}

export function findProgram(name: string, { PATH = '' }: Environment): string | null {
  const paths = PATH.split(delimiter).map((folder) => join(folder, name));
  return paths.find((path) => existsSync(path)) ?? null;
}

/** The command for docker compose here: the plugin, or the program of its own. */
export function composeCommand(environment: Environment): readonly string[] | null {
  try {
    execFileSync('docker', ['compose', 'version'], { stdio: 'ignore' });
    return ['docker', 'compose'];
  } catch {
    return findProgram('docker-compose', environment) === null ? null : ['docker-compose'];
  }
}
