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
  const test = await lab.open([localHost(lab.docker())]);
  const first = await test.start(containerEngine());
  await test.untilIs(first, 'running');
  const [container] = await lab.containersOf(test.fleetId);
  const name = newId();
  const [own, foreign] = [`headgate-test/${name}:v1`, `headgate-test/${name}-run:v1`];
  // Images of this test only: the Docker engine serves other tests too.
  for (const repo of [own, foreign]) {
    const query = `container=${container?.Id ?? ''}&repo=${repo.split(':')[0] ?? ''}&tag=v1`;
    await lab.docker().call('POST', `/commit?${query}`, {});
  }
  const none = { binds: [], volumes: [], allowsPorts: false, allowsSwarm: false, runNetworks: [] };
  const policy = { ...none, images: [image, own], runImages: [foreign] };
  const place = { host: '127.0.0.1', port: 0, socketPath: lab.docker().socketPath };
  const gate = await startDockerGate({ ...place, policy, log: pino({ level: 'warn' }, new PassThrough()) });
  const host = localHost(lab.docker(), { docker: { type: 'tcp', host: '127.0.0.1', port: gate.port, tls: null } });
  const log = createLog('silent');
  const logins = createRegistryLogins({ folder: null, log });
  const fleet = { fleetId: newId(), fleetSecret: 'a secret', env: {}, logins, log, selfContainer: null };
  const driver = createDockerDriver({ hosts: [host], ...fleet });
  await driver.open([]);

  const missing = `headgate-test/${name}:v0`;
  expect(await driver.storedImages([own, foreign, missing])).toMatchObject([
    { name: own, host: 'local', bytes: expect.any(Number) },
    { name: foreign },
  ]);
  const id = await test.start(containerEngine({ image: own }));
  await test.untilIs(id, 'running');
  await expect(driver.removeImage('local', own)).rejects.toThrow(/could not be deleted on local: .*container/);
  await expect(driver.removeImage('local', foreign)).rejects.toThrow(/is not allowed/);
  for (const replica of [first, id]) {
    await test.stop(replica);
    await test.untilIs(replica, 'exited');
    await test.driver.forget(replica, holding);
  }
  await driver.removeImage('local', own);
  expect(await driver.storedImages([own, foreign])).toMatchObject([{ name: foreign }]);
  await driver.close();
  await gate.close();
});
