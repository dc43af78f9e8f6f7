import { afterAll, beforeAll, onTestFinished } from 'vitest';
import type { WebSocket } from 'undici';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { freePort } from '#test/free-port.ts';
import { type Site, useSites } from '#test/terraform/run-gateway.ts';
import { Application } from './application.ts';
import { type Authority, Caddy } from './caddy.ts';

/** A gateway with Caddy before it, an organization with a cluster, and stacks that do nothing but declare a web port. */
export interface WebPlace extends Site {
  readonly caddy: Caddy;
  readonly webUrl: string;
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

/**
 * One gateway and one Caddy for all tests of a file.
 * @param findAuthority of Caddy's certificates; without it Caddy signs for itself
 * @returns opens an organization with a cluster for one test
 */
export function useWebPlace(
  findAuthority: () => Promise<Authority | undefined> = async () => undefined,
): (cluster?: object) => Promise<WebPlace> {
  const ends: (() => Promise<void>)[] = [];
  afterAll(async () => {
    for (const end of ends.splice(0).toReversed()) await end();
  });
  let webUrl = '';
  let caddy: Caddy | null = null;
  const newSite = useSites(async () => {
    const port = await freePort();
    webUrl = `http://127.0.0.1:${port}`;
    return { HEADGATE_WEB_PORT: String(port) };
  });
  beforeAll(async () => {
    const opened = await Caddy.start(webUrl, await findAuthority());
    ends.push(() => opened.close());
    caddy = opened;
  });
  return async (moreOfCluster = {}) => {
    if (caddy === null) throw new Error('Caddy is started before the tests, not while they are collected');
    const site = await newSite({ public_domain: 'apps.test', ...moreOfCluster });
    const { gateway, cluster } = site;
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
      ...site,
      caddy,
      webUrl,
      async application(name, host) {
        const application = await Application.start(name, host);
        onTestFinished(() => application.close());
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
