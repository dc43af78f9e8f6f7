import { runScript, type Scene, type Way } from './escape-scene.ts';
import type { PlannedContainer } from '#test/docker/planned-container.ts';

/** Ways out of what a gateway may do with a Docker engine. Each is one that the engine itself lets pass. */
export interface Escape {
  readonly name: string;
  /** @returns whether somebody who has nothing but this way got what is not his */
  readonly attempt: (way: Way, scene: Scene) => Promise<boolean>;
}

export type Body = PlannedContainer['body'];

export const within =
  (fields: object) =>
  (body: Body): object => ({ ...body, HostConfig: { ...body.HostConfig, ...fields } });
/** Adds members to the text of an object, after those that are there: Go takes the last one, whatever its case. */
export const appended = (body: object, members: string): string => JSON.stringify(body).replace(/\}$/, `,${members}}`);
export const inHostConfig = (body: Body, members: string): string =>
  JSON.stringify(body).replace('"HostConfig":{', `"HostConfig":{${members},`);

export const printing = (path: string): string => `console.log(require('node:fs').readFileSync('${path}', 'utf8'))`;
export const printsStatus = printing('/proc/self/status');
export const asking = (address: string): string =>
  `require('node:http').get('http://${address}/', (a) => a.pipe(process.stdout)).on('error', () => {})`;
export const bind = (source: string, more: object = {}): object => ({
  Mounts: [{ Type: 'bind', Source: source, Target: '/x', ReadOnly: false, ...more }],
});
export const volume = (source: string, more: object = {}): object => ({
  Mounts: [{ Type: 'volume', Source: source, Target: '/x', ReadOnly: false, ...more }],
});

/** Checks whether a script, in a container that is changed so, prints more than it would otherwise. */
export function shows(
  name: string,
  script: (scene: Scene) => string,
  change: (scene: Scene) => (body: Body) => object | string,
  isSeen: (output: string, scene: Scene) => boolean,
): Escape {
  return {
    name,
    async attempt(way, scene) {
      const output = await runScript(way, script(scene), change(scene));
      return output !== null && isSeen(output, scene);
    },
  };
}
