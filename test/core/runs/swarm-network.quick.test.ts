import { expect, it } from 'vitest';
import { closedLine } from '#base/net/closed-network.ts';
import { type DockerApi, DockerError } from '#base/docker/docker.ts';
import type { ContainerSettings } from '#core/runs/runner/docker/bodies.ts';
import { createDockerRunner } from '#core/runs/runner/docker/docker-runner.ts';

/** The output of a phase, as Docker frames it. */
function framed(text: string): Buffer {
  const header = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
}

/** A node whose engine answers the start of a container with these errors, one after the other, then starts it. */
function nodeThatAnswers(reasons: readonly string[]) {
  const left = [...reasons];
  const made: string[] = [];
  const removed: string[] = [];
  const api = {
    list: () => Promise.resolve(made.filter((id) => !removed.includes(id)).map((Id) => ({ Id, Labels: {} }))),
    create: (name: string) => Promise.resolve((made.push(`${name}#${made.length}`), made.at(-1))),
    putArchive: () => Promise.resolve(),
    async start() {
      const reason = left.shift();
      if (reason !== undefined) throw new DockerError('start', 404, reason);
    },
    logTail: () => Promise.resolve(framed(`${closedLine}\n`)),
    inspect: () => Promise.resolve({ State: { Status: 'running' } }),
    remove: (id: string) => Promise.resolve(void removed.push(id)),
    removeNetwork: () => Promise.resolve(),
  } as unknown as DockerApi;
  const settings = { image: 'runs:1', network: 'headgate_runs', egress: 'internet', mirror: null } as ContainerSettings;
  const runner = createDockerRunner({ api, host: 'vm', engineId: 'e', fleetId: 'f', settings });
  return { runner, made, removed };
}

it('rejects a run for any other error of the node, and keeps the message of the engine as the cause', async () => {
  const said = 'bind source path does not exist: /srv/providers';
  const { runner, made } = nodeThatAnswers([said]);
  await expect(runner.prepare('run', [], [])).rejects.toMatchObject({
    message: 'the Docker engine of vm rejected the run',
    cause: expect.objectContaining({ reason: said }),
  });
  expect(made).toHaveLength(1);
});

it('retries on the node when the swarm network was just removed there, and leaves one container', async () => {
  const { runner, made, removed } = nodeThatAnswers(['network ei3btzw7sr4 not found']);
  await runner.prepare('run', [], []);
  expect([made.length, removed]).toEqual([2, [made[0]]]);
});
