import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { SshServer, Workplace } from './terraform.ts';

export interface StackNode {
  /** The server that stands for the node. */
  readonly ssh: () => SshServer;
  /** Copies a built-in stack and initializes Terraform for it. */
  readonly prepare: (stack: string) => Promise<Workplace>;
  /** Folder in which stacks put what they run, instead of the node's own folders. */
  readonly node: string;
}

/** Makes this machine the node of built-in stacks for the tests of a file. */
export function useStackNode(): StackNode {
  const node = mkdtempSync(join(tmpdir(), 'hg-node-'));
  const workplaces: Workplace[] = [];
  let server: SshServer | null = null;
  const ssh = (): SshServer => {
    if (server === null) throw new Error('the server is started before the tests');
    return server;
  };
  beforeAll(async () => {
    server = await SshServer.start();
  });
  afterAll(async () => {
    await server?.close();
    for (const place of workplaces) place.close();
    rmSync(node, { recursive: true, force: true });
  });
  return {
    ssh,
    node,
    prepare: async (stack) => {
      const place = new Workplace(stack, ssh().identity);
      workplaces.push(place);
      await place.terraform('init', '-input=false', '-no-color');
      return place;
    },
  };
}

/** Nodes of a cluster that are all this server. */
export const nodesNamed = (server: SshServer, ...names: readonly string[]): object[] =>
  names.map((name) => ({ ...server.node(name), id: `node_${name}` }));

/** Asks again until the answer is not null. */
export async function until<T>(ask: () => T | null | Promise<T | null>): Promise<T> {
  for (;;) {
    const found = await ask();
    if (found !== null) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
