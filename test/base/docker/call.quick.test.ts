import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { expect, it } from 'vitest';
import { createDockerApi } from '#base/docker/api.ts';
import { createDockerCalls } from '#base/docker/call.ts';
import { unhandledIn } from '#test/base/unhandled.ts';

it('does not format its open connections on a call to a Docker engine, which takes milliseconds each', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'headgate-docker-call-'));
  const socketPath = join(folder, 'docker.sock');
  const engine = createServer((_, answer) => {
    answer.setHeader('content-type', 'application/json');
    answer.end('{"Version":"28.0.0","ApiVersion":"1.48","MinAPIVersion":"1.24"}');
  });
  engine.listen(socketPath);
  await once(engine, 'listening');
  const agent = new Agent({ keepAlive: true });
  try {
    await createDockerApi({ socketPath, agent }).negotiate();
    // Its agent has a connection now, and is printed as docker-modem does it for its debug log.
    expect([agent.sockets, agent.freeSockets].flatMap((sockets) => Object.values(sockets))).toHaveLength(1);
    expect(inspect(agent, { showHidden: true, depth: null })).toBe('Agent');
    await createDockerApi({ socketPath, agent }).negotiate();
  } finally {
    agent.destroy();
    engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
});

it('fails a call whose keys cannot be read once, and raises no unhandled rejection after its timeout', async () => {
  const tls = (): never => {
    throw new Error('ENOENT: ca.pem');
  };
  const { call } = createDockerCalls({ host: '127.0.0.1', port: 1, tls });
  const left = await unhandledIn(async () => {
    await expect(call('info', 1, () => Promise.resolve())).rejects.toThrow('ENOENT: ca.pem');
    await new Promise((resolve) => setTimeout(resolve, 20));
  });
  expect(left).toEqual([]);
});
