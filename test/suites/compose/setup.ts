import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { type BaseImages, buildBaseImages } from './base-images.ts';
import { keepImages, startDocker } from '#test/docker.ts';

/** Files and folders of a clone that the gateway's image is built from. */
export const cloned: readonly string[] = [
  'package.json',
  'package-lock.json',
  '.npmrc',
  '.dockerignore',
  'src',
  'drizzle',
  'engines',
  'compose',
];

/** Tag of all images. */
export const imageTag = 'headgate-test';

export interface ComposeImages {
  /** Folder for `startDocker`. */
  readonly folder: string;
  readonly names: BaseImages;
}

declare module 'vitest' {
  interface ProvidedContext {
    composeImages: ComposeImages;
  }
}

const repository = new URL('../../..', import.meta.url).pathname;

/** Copies what a clone has into a folder. */
export function copyClone(folder: string): void {
  for (const name of cloned) cpSync(join(repository, name), join(folder, name), { recursive: true });
}

/** Variables of a Docker client that builds with the engine itself. */
export function clientEnvironment(socketPath: string): NodeJS.ProcessEnv {
  return { ...process.env, DOCKER_HOST: `unix://${socketPath}`, DOCKER_BUILDKIT: '0', COMPOSE_DOCKER_CLI_BUILD: '0' };
}

/**
 * The images that compose.yaml names, and the layers of the gateway's, for the Docker engines of all files: a build in
 * one of them finds its steps done.
 */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const docker = await startDocker();
  const clone = mkdtempSync(join(tmpdir(), 'headgate-clone-'));
  try {
    const env = clientEnvironment(docker.socketPath);
    const client = (args: readonly string[], input?: Buffer): string => {
      const options = { env, cwd: clone, ...(input === undefined ? {} : { input }), maxBuffer: 2 ** 26 };
      return execFileSync('docker', [...args], options).toString();
    };
    const names = buildBaseImages(client, imageTag);
    copyClone(clone);
    client(['build', '--network=host', '--file=compose/Dockerfile', `--build-arg=NODE_IMAGE=${names.node}`, '.']);
    project.provide('composeImages', { folder: keepImages(docker), names });
  } catch (error) {
    await docker.stop();
    throw error;
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
  return () => docker.stop();
}
