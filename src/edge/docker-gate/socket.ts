import { statSync } from 'node:fs';
import { request } from 'node:http';

/** Checks the Docker socket, and explains how to fix it. */

/** Returns the socket's group; null if there is no socket. */
export function socketGroup(socketPath: string): number | null {
  return statOf(socketPath)?.gid ?? null;
}

/**
 * Sends one request to the Docker engine behind the socket.
 * @returns null if it answers, otherwise a sentence that says what to do
 */
export function describeClosedSocket(socketPath: string): Promise<string | null> {
  return new Promise((resolve) => {
    const asked = request({ socketPath, path: '/_ping', agent: false, timeout: answerTimeoutMs }, (answer) => {
      answer.resume();
      const { statusCode = 0 } = answer;
      resolve(
        statusCode < 500 ? null : `The Docker engine at ${socketPath} returned status ${statusCode}: read its log.`,
      );
    });
    asked.on('timeout', () =>
      asked.destroy(Object.assign(new Error('the Docker engine does not respond'), { code: 'ETIMEDOUT' })),
    );
    asked.on('error', (error) => resolve(unreachableSentence(socketPath, error)));
    asked.end();
  });
}

const answerTimeoutMs = 3000;

interface Found {
  readonly uid: number;
  readonly gid: number;
  /** Permission bits only. */
  readonly mode: number;
  readonly isFolder: boolean;
}

function statOf(path: string): Found | null {
  try {
    const stat = statSync(path);
    return { uid: stat.uid, gid: stat.gid, mode: stat.mode & 0o7777, isFolder: stat.isDirectory() };
  } catch {
    return null;
  }
}

/** The number that stands for all users and groups that a container does not know. */
const unknownId = 65_534;

/** Explains in one sentence why a call did not reach the engine, for the caller and the health check. */
export function unreachableSentence(socketPath: string, error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return knownCodes.has(code) ? sentenceOf(socketPath, code) : 'The Docker engine cannot be reached.';
}

const knownCodes: ReadonlySet<string> = new Set(['EACCES', 'EPERM', 'ENOENT', 'ENOTSOCK', 'ECONNREFUSED', 'ETIMEDOUT']);

function sentenceOf(socketPath: string, code: string): string {
  const found = statOf(socketPath);
  if (found === null) {
    return `There is no Docker socket at ${socketPath}: set DOCKER_SOCKET to the path that "docker context inspect" prints.`;
  }
  // Docker creates a folder if a mounted path does not exist.
  if (found.isFolder) {
    return (
      `${socketPath} is a folder, not a Docker socket: Docker created it, because DOCKER_SOCKET names a path that did ` +
      'not exist. Remove this empty folder on the machine, set DOCKER_SOCKET to the path that "docker context inspect" ' +
      'prints, and recreate the service (docker compose up -d --force-recreate docker-gate).'
    );
  }
  const owned = `It is owned by user ${found.uid} and group ${found.gid}, with mode ${found.mode.toString(8)}`;
  if (code === 'EACCES' || code === 'EPERM') {
    const cannot = `The Docker socket ${socketPath} cannot be opened`;
    if (found.gid === unknownId) {
      return `${cannot}: the Docker engine remaps users, so set userns_mode: host for the service docker-gate.`;
    }
    if ((found.mode & 0o060) !== 0o060)
      return `${cannot}. ${owned}: let its group read and write it (chmod g+rw ${socketPath}).`;
    const groups = process.getgroups?.().join(', ') ?? '';
    return `${cannot}. ${owned}, and docker-gate runs with the groups ${groups}: set DOCKER_GID=${found.gid}.`;
  }
  return `The Docker engine does not respond at ${socketPath} (${code}): start Docker. If Docker created a new socket, also restart docker-gate.`;
}
