import { PassThrough } from 'node:stream';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { createDockerDriver } from '#core/fleet/drivers/docker/docker.ts';
import { containerEngine, createLab, holding, image, localHost, newId } from '#test/docker/docker-drivers.ts';
import { createLog } from '#base/log.ts';
import { createRegistryLogins } from '#base/docker/docker.ts';

const lab = createLab();

it('finds and removes images through the Docker gate, except those that containers use', async () => {
  const [repository = ''] = image.split(':');
  const old = `${repository}:v0.29.0`;
  const foreign = 'headgate-test/foreign:v1';
  const tag = (reference: string): Promise<unknown> => {
    const [repo = '', name = ''] = reference.split(':');
    return lab.docker().call('POST', `/images/${image}/tag?repo=${repo}&tag=${name}`);
  };
  await tag(old);
  await tag(foreign);
  const none = { binds: [], volumes: [], allowsPorts: false, allowsSwarm: false, runNetworks: [] };
  const policy = { ...none, images: [image, old], runImages: [foreign] };
  const place = { host: '127.0.0.1', port: 0, socketPath: lab.docker().socketPath };
  const gate = await startDockerGate({ ...place, policy, log: pino({ level: 'warn' }, new PassThrough()) });
  const host = localHost(lab.docker(), { docker: { type: 'tcp', host: '127.0.0.1', port: gate.port, tls: null } });
  const log = createLog('silent');
  const logins = createRegistryLogins({ folder: null, log });
  const fleet = { fleetId: newId(), fleetSecret: 'a secret', env: {}, logins, log, selfContainer: null };
  const driver = createDockerDriver({ hosts: [host], ...fleet });
  await driver.open([]);

  expect(await driver.storedImages([old, image, foreign, `${repository}:v0.1.0`])).toMatchObject([
    { name: old, host: 'local', bytes: expect.any(Number) },
    { name: image },
    { name: foreign },
  ]);
  const test = await lab.open([localHost(lab.docker())]);
  const id = await test.start(containerEngine({ image: old }));
  await test.untilIs(id, 'running');
  await driver.removeImage('local', old);
  expect(await driver.storedImages([old, image])).toMatchObject([{ name: image }]);
  await expect(driver.removeImage('local', foreign)).rejects.toThrow(/is not allowed/);
  await lab.docker().call('DELETE', `/images/${foreign}`);
  // The last name of an image that a container uses.
  await expect(driver.removeImage('local', image)).rejects.toThrow(/could not be deleted on local: .*container/);
  await test.stop(id);
  await test.untilIs(id, 'exited');
  await test.driver.forget(id, holding);
  await driver.close();
  await gate.close();
});
