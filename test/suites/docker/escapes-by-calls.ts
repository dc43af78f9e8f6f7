import { image } from '#test/docker/docker-drivers.ts';
import { foreignImage, planned, type Scene, secret } from './escape-scene.ts';
import { asking, type Escape, shows, within } from './escapes.ts';
import { networkBody } from '#test/docker/planned-container.ts';

/** Networks, containers, images and volumes that are somebody else's. */

export const networks: readonly Escape[] = [
  shows(
    'a network of somebody else',
    ({ shop }) => asking(`${shop.address}:8000`),
    ({ networks: [first] }) => within({ NetworkMode: first }),
    (text) => text.includes(secret),
  ),
  shows(
    'one that is called as an engine’s would be',
    () => `console.log('it is in there')`,
    ({ networks: [, second] }) => within({ NetworkMode: second }),
    (text) => text.includes('it is in there'),
  ),
  shows(
    'a second network of somebody else',
    ({ shop }) => asking(`${shop.address}:8000`),
    ({ networks: [first] }) =>
      (body) => ({
        ...within({ NetworkMode: first })(body),
        NetworkingConfig: { EndpointsConfig: { [first]: {} } },
      }),
    (text) => text.includes(secret),
  ),
  {
    name: 'an interface of the machine as a network',
    async attempt(way, { bridge }) {
      const body = {
        ...networkBody('headgate-taken-0123456789'),
        Options: { 'com.docker.network.bridge.name': bridge },
      };
      const made = await way('POST', '/v1.41/networks/create', body);
      if (made.status !== 201) return false;
      const { Id: id } = JSON.parse(made.text) as { Id: string };
      // The engine gives the interface an address of the new network.
      const { text } = await way('GET', `/v1.41/networks/${id}`);
      await way('DELETE', `/v1.41/networks/${id}`);
      return text.includes(bridge);
    },
  },
  {
    name: 'somebody’s network joined later',
    async attempt(way, { shop, networks: [first] }) {
      const script = `setTimeout(() => {}, 1e6)`;
      const { name, body } = planned(script);
      const made = await way('POST', `/v1.41/containers/create?name=${name}`, body);
      const { Id: id } = JSON.parse(made.text) as { Id: string };
      const joined = await way('POST', `/v1.41/networks/${first}/connect`, {
        Container: id,
        EndpointConfig: { GwPriority: -1 },
      });
      await way('DELETE', `/v1.41/containers/${id}?v=true&force=true`);
      return joined.status === 200 && shop.id !== '';
    },
  },
  {
    name: 'somebody’s container in a network of ours',
    async attempt(way, { shop }) {
      const { network } = planned('');
      const body = { Container: shop.id, EndpointConfig: { GwPriority: -1 } };
      const { status } = await way('POST', `/v1.41/networks/${network}/connect`, body);
      if (status === 200)
        await way('POST', `/v1.41/networks/${network}/disconnect`, { Container: shop.id, Force: true });
      return status === 200;
    },
  },
];

/** A call on what is somebody else's, of which the engine's own answer is the proof. */
function answered(
  name: string,
  method: string,
  path: string | ((scene: Scene) => string | Promise<string>),
  body?: object | Buffer,
): Escape {
  return {
    name,
    async attempt(way, scene) {
      const { status } = await way(method, typeof path === 'string' ? path : await path(scene), body);
      return status < 400;
    },
  };
}

const ofShop =
  (rest: string) =>
  ({ shop }: Scene): string =>
    `/v1.41/containers/${shop.id}${rest}`;
const ofVictim =
  (rest: string) =>
  async (scene: Scene): Promise<string> =>
    `/v1.41/containers/${await scene.victim()}${rest}`;
/** An archive with nothing in it. */
const emptyTar = Buffer.alloc(1024);

export const calls: readonly Escape[] = [
  answered('an inspection of somebody’s container', 'GET', ofShop('/json')),
  answered(
    'its inspection by the beginning of its id',
    'GET',
    ({ shop }) => `/v1.41/containers/${shop.id.slice(0, 12)}/json`,
  ),
  answered('its log', 'GET', ofShop('/logs?stdout=true')),
  answered('its processes', 'GET', ofShop('/top')),
  answered('its files', 'GET', ofShop('/archive?path=/db')),
  answered('files in it', 'PUT', ofShop('/archive?path=/db'), emptyTar),
  answered('all of it', 'GET', ofShop('/export')),
  answered('a program in it', 'POST', ofShop('/exec'), { Cmd: ['/usr/bin/node', '--version'] }),
  // Unpaused: a program cannot be started in a container that is paused, which another of these tries to.
  answered(
    'an image of it',
    'POST',
    ({ shop }) => `/v1.41/commit?container=${shop.id}&repo=headgate-test/taken&tag=v1&pause=false`,
  ),
  answered('other limits for it', 'POST', ofShop('/update'), { CpuShares: 512 }),
  answered('another name for it', 'POST', ofVictim('/rename?name=headgate-a-0123456789')),
  answered('its start', 'POST', ofVictim('/start')),
  answered('its stop', 'POST', ofVictim('/stop?t=0')),
  answered('its end', 'DELETE', ofVictim('?force=true')),
  {
    name: 'its way out of its network',
    async attempt(way, scene) {
      const [first] = scene.networks;
      const body = { Container: await scene.victim(first), Force: true };
      return (await way('POST', `/v1.41/networks/${first}/disconnect`, body)).status < 400;
    },
  },
  {
    name: 'the secrets of another gateway',
    attempt: async (way, { otherGateway }) =>
      (await way('GET', `/v1.41/containers/${otherGateway}/json`)).text.includes(secret),
  },
  answered('an inspection of a network', 'GET', ({ networks: [first] }) => `/v1.41/networks/${first}`),
  answered('the end of a network', 'DELETE', ({ networks: [, second] }) => `/v1.41/networks/${second}`),
  answered('an inspection of an image', 'GET', `/v1.41/images/${foreignImage}/json`),
  answered(
    'another name for an image',
    'POST',
    `/v1.41/images/${foreignImage}/tag?repo=headgate-test/vllm-standin&tag=v9`,
  ),
  answered('the end of an image’s name', 'DELETE', '/v1.41/images/shop/old:v1'),
  answered('an image of one’s own', 'POST', '/v1.41/images/create?fromSrc=-&repo=headgate-test/own&tag=v1', emptyTar),
  answered('the files of an image', 'GET', `/v1.41/images/${image}/get`),
  answered('all volumes', 'GET', '/v1.41/volumes'),
  answered('a volume that is a folder', 'POST', '/v1.41/volumes/create', {
    Name: 'hf-cache-3',
    DriverOpts: { type: 'none', o: 'bind', device: '/' },
  }),
  answered('everything there is', 'GET', '/v1.41/system/df'),
  answered('plugins', 'GET', '/v1.41/plugins'),
  answered('the end of all images that are not used', 'POST', '/v1.41/images/prune'),
];
