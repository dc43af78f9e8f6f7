import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { descendantsOf } from '#base/process-identity.ts';

const keeperNetwork = new URL('../../../src/core/runs/runner/keeper-network.ts', import.meta.url).href;
/** Enters a network of its own, and takes none of the sockets that the listener passes. */
const keeper = `
const { spawnInNetwork } = await import(${JSON.stringify(keeperNetwork)});
const network = { relays: [], proxy: { port: 3128, nodes: [], publicPorts: [] } };
spawnInNetwork(network, { command: ['sleep', '1000'], asUser: [], log: () => undefined });
process.kill(process.pid, 'SIGSTOP');
`;

it('leaves no listener when the keeper is killed while a phase enters its network', { tags: ['root'] }, async () => {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', keeper], { stdio: 'ignore' });
  const pid = child.pid ?? 0;
  // The shell, and the listener that it waits for.
  await expect.poll(() => descendantsOf(pid).length).toBe(2);
  const started = descendantsOf(pid).map((one) => one.pid);
  // 0C38 is port 3128, 0A is LISTEN: the listener now waits until somebody takes its socket.
  const isListening = (): boolean =>
    started.some((one) => /:0C38 [0-9A-F]+:0000 0A /.test(readFileSync(`/proc/${one}/net/tcp`, 'utf8')));
  await expect.poll(isListening).toBe(true);
  child.kill('SIGKILL');
  await expect.poll(() => started.filter((one) => existsSync(`/proc/${one}`))).toEqual([]);
});
