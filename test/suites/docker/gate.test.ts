import { PassThrough } from 'node:stream';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { collect, containerEngine, createLab, holding, image, localHost } from '#test/docker/docker-drivers.ts';

const lab = createLab();

it("passes a replica's whole life through the Docker gate", async () => {
  const written = new PassThrough();
  const log = pino({ level: 'warn' }, written);
  const policy = {
    images: [image],
    binds: [],
    volumes: [],
    allowsPorts: false,
    allowsSwarm: false,
    runImages: [],
    runNetworks: [],
  };
  const gate = await startDockerGate({
    host: '127.0.0.1',
    port: 0,
    socketPath: lab.docker().socketPath,
    policy,
    log,
  });
  const docker = { type: 'tcp', host: '127.0.0.1', port: gate.port, tls: null } as const;
  const test = await lab.open([localHost(lab.docker(), { docker })]);
  const id = await test.start(containerEngine());
  await test.untilReady(id);
  const options = { tailLines: 10, follow: false, signal: new AbortController().signal };
  expect(await collect(test.driver.logs(id, options))).not.toEqual([]);
  expect(await test.driver.probeGpus({ host: 'local', gpuIds: ['GPU-bbbb'] })).toMatchObject([{ gpuId: 'GPU-bbbb' }]);
  expect((await test.driver.activity(id))?.downloadedBytes).toBeGreaterThan(0);
  await test.stop(id);
  expect((await test.untilIs(id, 'exited')).exit).toMatchObject({ stopRequested: true });
  await test.driver.forget(id, holding);
  expect(await lab.containersOf(test.fleetId)).toEqual([]);
  expect(await lab.networksOf(test.fleetId)).toEqual([]);
  expect(String(written.read() ?? '')).toBe('');
  await test.driver.close();
  await gate.close();
});
