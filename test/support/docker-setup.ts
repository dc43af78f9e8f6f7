import type { TestProject } from 'vitest/node';
import { keepImages, startDocker } from './docker.ts';
import { loadStandinImage } from './docker-image.ts';
import { shareInRun } from './share.ts';
import type { SharedDocker } from './shared-docker.ts';

/** One Docker engine for a whole run, with the stand-in's image in it. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const shared = await shareInRun<SharedDocker>('docker', async () => {
    const docker = await startDocker();
    try {
      await loadStandinImage(docker);
      const { socketPath, dir } = docker;
      return { value: { socketPath, dir, images: keepImages(docker) }, stop: () => docker.stop() };
    } catch (error) {
      await docker.stop();
      throw error;
    }
  });
  project.provide('testDocker', shared.value);
  return shared.release;
}
