import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { TestDocker } from '#test/docker.ts';
import { image } from '#test/docker/docker-drivers.ts';
import { type PlannedContainer, plannedContainer } from '#test/docker/planned-container.ts';

/** A Docker engine with things on it that are not Headgate's, and somebody who wants them. */

export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** The most characters of an answer: for lists of images and the like the beginning is enough. */
const answerCharsMax = 100_000;

/** A way to the Docker engine: its socket, or the door in front of it. */
export type Way = (method: string, path: string, body?: object | string | Buffer) => Promise<Answer>;

export function wayTo(where: { readonly socketPath: string } | { readonly port: number }): Way {
  return (method, path, body) =>
    new Promise((resolve, reject) => {
      const type = body instanceof Buffer ? 'application/x-tar' : 'application/json';
      const sent = request({ ...where, method, path, agent: false, headers: { 'content-type': type } }, (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        const finish = (): void => resolve({ status: answer.statusCode ?? 0, text });
        answer.on('data', (chunk: string) => {
          text += chunk;
          if (text.length < answerCharsMax) return;
          finish();
          answer.destroy();
        });
        answer.on('end', finish);
        answer.on('error', reject);
      });
      sent.on('error', reject);
      if (body === undefined) sent.end();
      else sent.end(typeof body === 'string' || body instanceof Buffer ? body : JSON.stringify(body));
    });
}

export const secret = `secret-${randomBytes(8).toString('hex')}`;
export const foreignImage = 'shop/app:v1';

export interface Scene {
  readonly docker: TestDocker;
  /** Folder of the machine with a file `secret`; `models` in it is the one that engines may mount. */
  readonly folder: string;
  readonly models: string;
  /** Somebody's container, which answers every request with the secret. */
  readonly shop: { readonly id: string; readonly address: string; readonly pid: number };
  /** The container of a gateway of somebody's. */
  readonly otherGateway: string;
  /** Somebody's networks, by name; the second one is called as an engine's would be. */
  readonly networks: readonly [string, string];
  /** Somebody's interface. */
  readonly bridge: string;
  /** One more container of somebody's, which does not run. @returns its id */
  victim(network?: string): Promise<string>;
  remove(): Promise<void>;
}

const foreignNetworks = ['shop_default', 'headgate-shop-0123456789'] as const;
const idle = ['/usr/bin/node', '--eval', 'setInterval(() => {}, 1e6)'];
const answering = `require('node:http').createServer((_, a) => a.end('${secret}')).listen(8000)`;

export async function makeScene(docker: TestDocker): Promise<Scene> {
  const folder = mkdtempSync(join(tmpdir(), 'hg-escape-'));
  const models = join(folder, 'models');
  mkdirSync(join(models, 'below'), { recursive: true });
  for (const dir of [folder, join(models, 'below')]) writeFileSync(join(dir, 'secret'), secret);
  for (const name of [foreignImage, 'shop/old:v1']) {
    const [repo = '', tag = ''] = name.split(':');
    await docker.call('POST', `/images/${image}/tag?repo=${repo}&tag=${tag}`);
  }
  for (const Name of foreignNetworks) await docker.call('POST', '/networks/create', { Name, Driver: 'bridge' });
  await docker.call('POST', '/volumes/create', { Name: 'shop_db' });
  const DriverOpts = { type: 'none', o: 'bind', device: folder };
  await docker.call('POST', '/volumes/create', { Name: 'shop_folder', Driver: 'local', DriverOpts });
  const make = async (body: object): Promise<string> => {
    const { Id: id } = (await docker.call('POST', '/containers/create', body)) as { Id: string };
    return id;
  };
  const write = `require('node:fs').writeFileSync('/db/secret', '${secret}'); ${answering}`;
  const id = await make({
    Image: foreignImage,
    Entrypoint: ['/usr/bin/node', '--eval', write],
    Env: [`SECRET=${secret}`],
    HostConfig: { NetworkMode: foreignNetworks[0], Binds: ['shop_db:/db'] },
  });
  await docker.call('POST', `/containers/${id}/start`);
  const { State: state, NetworkSettings: found } = (await docker.call('GET', `/containers/${id}/json`)) as {
    State: { Pid: number };
    NetworkSettings: { Networks: Record<string, { IPAddress: string }> };
  };
  const address = found.Networks[foreignNetworks[0]]?.IPAddress ?? '';
  const otherGateway = await make({
    Image: foreignImage,
    Entrypoint: idle,
    Env: [`SECRET=${secret}`],
    Labels: { 'headgate.gateway': 'true' },
    HostConfig: { NetworkMode: foreignNetworks[0] },
  });
  const bridge = `hge${randomBytes(4).toString('hex')}`;
  execFileSync('ip', ['link', 'add', bridge, 'type', 'bridge']);
  return {
    docker,
    folder,
    models,
    shop: { id, address, pid: state.Pid },
    otherGateway,
    networks: foreignNetworks,
    bridge,
    victim: (network = 'none') => make({ Image: foreignImage, Entrypoint: idle, HostConfig: { NetworkMode: network } }),
    async remove() {
      await docker.call('DELETE', `/containers/${id}?force=1`).catch(() => undefined);
      execFileSync('ip', ['link', 'del', bridge]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A container that runs a script, as the driver asks for it. */
export function planned(script: string): PlannedContainer {
  return plannedContainer({ kind: 'openai', driver: { entrypoint: ['/usr/bin/node', '--eval'], args: [script] } });
}

/**
 * Runs a script in a container that is made as the driver makes it, but for what is changed. The network of its engine
 * is there.
 * @returns what it printed; null where it was not let run
 */
export async function runScript(
  way: Way,
  script: string,
  change: (body: PlannedContainer['body']) => object | string = (body) => body,
): Promise<string | null> {
  const { name, body } = planned(script);
  const made = await way('POST', `/v1.41/containers/create?name=${name}`, change(body));
  if (made.status !== 201) return null;
  const { Id: id } = JSON.parse(made.text) as { Id: string };
  return startAndRead(way, id);
}

/** @returns what a container printed until its end; null where it was not let run */
export async function startAndRead(way: Way, id: string): Promise<string | null> {
  try {
    if ((await way('POST', `/v1.41/containers/${id}/start`)).status !== 204) return null;
    for (;;) {
      const { text } = await way('GET', `/v1.41/containers/${id}/json`);
      const { State: state } = JSON.parse(text) as { State: { Running: boolean } };
      if (!state.Running) break;
      await pause(20);
    }
    return (await way('GET', `/v1.41/containers/${id}/logs?stdout=true&stderr=true`)).text;
  } finally {
    await way('DELETE', `/v1.41/containers/${id}?v=true&force=true`);
  }
}
