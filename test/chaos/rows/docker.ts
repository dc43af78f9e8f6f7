import { writeFileSync } from 'node:fs';
import { startDocker, type TestDocker, whyNoDocker } from '#test/docker.ts';
import { loadStandinImage } from '#test/docker-image.ts';
import { dockerFile, hostsFile } from '#test/docker/docker-gateways.ts';
import { labelFilter } from '#test/shared-docker.ts';
import { mustApi } from '../parts/api.ts';
import { askOnce } from '../parts/client.ts';
import { within } from '../parts/wait.ts';
import type { Row } from '../row.ts';
import { askFor, conclude, warm } from './steps.ts';

/** Engines in containers, on a Docker engine that the row starts. */

const engine = '/v1/admin/engines/chat';
const waitMsMax = 60_000;

function whyMissing(): string | null {
  const why = whyNoDocker(process.env);
  return why === null ? null : `needs Docker: ${why}`;
}

/** Engine files for a container whose tokens are in the journal. */
function dockerFiles(docker: TestDocker, journal: string): Record<string, string> {
  writeFileSync(journal, '');
  const flags = ['--enable-request-id-headers', '--journal', '/journal'];
  const fields = { volumes: [`${journal}:/journal`] };
  return { chat: dockerFile('chat', { flags, fields }), hosts: hostsFile(docker.socketPath) };
}

/** Creates and starts a container with a gateway's label, in a network of its own as compose gives it one. */
async function startGatewayContainer(docker: TestDocker, image: string): Promise<string> {
  await docker.call('POST', '/networks/create', { Name: 'outside', Driver: 'bridge' });
  const { Id: id } = (await docker.call('POST', '/containers/create', {
    Image: image,
    Entrypoint: ['/usr/bin/node', '--eval', 'setInterval(() => {}, 1000)'],
    Labels: { 'headgate.gateway': 'true' },
    HostConfig: { NetworkMode: 'outside' },
  })) as { Id: string };
  await docker.call('POST', `/containers/${id}/start`);
  return id;
}

const containerStopped: Row = {
  name: 'gateway-container-stopped',
  what: 'a gateway container is down while an engine stops and its network is removed, and starts again',
  missing: whyMissing,
  limitSeconds: 600,
  async run(stage) {
    const docker = await startDocker();
    stage.later(() => docker.stop());
    const image = await loadStandinImage(docker);
    const scene = await stage.open({ engine: 'own', files: (journal) => dockerFiles(docker, journal) });
    const key = await scene.key('10');
    await warm(scene, [key]);
    const [where] = scene.where();
    if (where === undefined) throw new Error('the gateway has ended');
    const networks = async (): Promise<{ Name: string }[]> => {
      const filters = labelFilter('headgate.engine', 'chat');
      return (await docker.call('GET', `/networks?filters=${filters}`)) as { Name: string }[];
    };
    const [network] = await networks();
    if (network === undefined) throw new Error('the engine has no network of its own');
    const container = await startGatewayContainer(docker, image);
    await docker.call('POST', `/networks/${network.Name}/connect`, { Container: container });
    await docker.call('POST', `/containers/${container}/stop?t=0`);

    await mustApi(where.url, `${engine}/stop`, { method: 'POST' });
    const isRemoved = async (): Promise<boolean> => (await networks()).length === 0;
    const removed = await within(waitMsMax * stage.slack, isRemoved);
    stage.must(removed !== null, 'the network of the stopped engine was not removed');
    await docker.call('POST', `/containers/${container}/start`);
    const { State: state } = (await docker.call('GET', `/containers/${container}/json`)) as {
      State: { Running: boolean };
    };
    stage.must(state.Running, 'the gateway container does not run again');

    await mustApi(where.url, `${engine}/start`, { method: 'POST' });
    const seen = [await askOnce(where, askFor(key, 'after the restart'))];
    stage.must(
      seen.every(({ complete }) => complete),
      'the engine does not serve after its restart',
    );
    stage.saw(seen);
    await conclude(stage, scene, { keys: [key], seen, engineDied: true });
  },
};

export const dockerRows: readonly Row[] = [containerStopped];
