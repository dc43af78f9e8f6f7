import { afterEach } from 'vitest';
import type { WebSocket } from 'undici';
import { type Body, eventually, type openOrganization } from '#test/inference/inference-gateway.ts';
import { freePort } from '#test/free-port.ts';
import { type Place, type RunGateway, usePlace } from '#test/terraform/run-gateway.ts';
import { Application } from './application.ts';
import { type Authority, Caddy } from './caddy.ts';

export type Organization = Awaited<ReturnType<typeof openOrganization>>;

/** A gateway with Caddy before it, an organization with a cluster, and stacks that do nothing but declare a web port. */
export interface WebPlace {
  readonly place: Place;
  readonly gateway: RunGateway;
  readonly caddy: Caddy;
  readonly webUrl: string;
  readonly organization: { readonly id: string; readonly key: string };
  readonly cluster: Body;
  readonly application: (name?: string, host?: string) => Promise<Application>;
  /** A run that is APPLIED, and whose address answers. */
  readonly ready: (stack: string, web: object, more?: object) => Promise<Body>;
  readonly applied: (stack: string, web: object, more?: object) => Promise<Body>;
  readonly readyOf: (runId: string) => Promise<Body>;
}

/** Its outputs are what the input says, of whatever type. */
export const webStack = `
variable "web" {}
locals {
  web = jsondecode(var.web)
}
${['port', 'node', 'path'].map((name) => `output "web_${name}" {\n  value = try(local.web.${name}, null)\n}\n`).join('')}`;

export function useWebPlace(): (more?: {
  env?: Readonly<Record<string, string>>;
  cluster?: object;
  authority?: Authority;
}) => Promise<WebPlace> {
  const newPlace = usePlace();
  const cleanups: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
  });
  return async ({ env = {}, cluster: moreOfCluster = {}, authority } = {}) => {
    const place = await newPlace();
    const port = await freePort();
    const gateway = await place.start({ env: { HEADGATE_WEB_PORT: String(port), ...env } });
    const webUrl = `http://127.0.0.1:${port}`;
    const caddy = await Caddy.start(webUrl, authority);
    cleanups.push(() => caddy.close());
    const opened = await gateway.made('/v1/organizations', { name: 'Water Works' });
    const organization = { id: opened.id, key: opened.management_key };
    const cluster = await gateway.cluster(place.server, opened.id, { public_domain: 'apps.test', ...moreOfCluster });
    await gateway.upload('web', webStack);
    const readyOf = (runId: string): Promise<Body> =>
      eventually(async () => {
        const run = await gateway.run(runId);
        return run.url_status === 'ready' ? run : null;
      });
    const applied = async (stack: string, web: object, more: object = {}): Promise<Body> => {
      const inputs = { web: JSON.stringify(web) };
      const run = await gateway.made(`/v1/stacks/${stack}/apply`, { cluster_id: cluster.id, inputs, ...more });
      return gateway.becomes(run.id, 'APPLIED');
    };
    return {
      place,
      gateway,
      caddy,
      webUrl,
      organization,
      cluster,
      async application(name, host) {
        const application = await Application.start(name, host);
        cleanups.push(() => application.close());
        return application;
      },
      applied,
      readyOf,
      ready: async (stack, web, more) => readyOf((await applied(stack, web, more)).id),
    };
  };
}

/** Waits until a websocket is open. @throws Error when it cannot be */
export function opened(socket: WebSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.addEventListener('open', () => resolve());
    socket.addEventListener('error', () => reject(new Error('the websocket was refused')));
    socket.addEventListener('close', () => reject(new Error('the websocket was closed')));
  });
}

/** The answer to a message. @throws Error when the connection ends instead */
export function echo(socket: WebSocket, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    socket.addEventListener('message', ({ data }) => resolve(String(data)), { once: true });
    socket.addEventListener('close', () => reject(new Error('the websocket was closed')), { once: true });
    socket.send(text);
  });
}

export const closed = (socket: WebSocket): Promise<void> =>
  new Promise((resolve) => socket.addEventListener('close', () => resolve(), { once: true }));
