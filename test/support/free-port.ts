import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below those that systems hand out (32768 and up on Linux, 49152 elsewhere), of which every other test takes some at
 * any moment: a port that is free here stays so until its server has it.
 */
const lowest = 20_000;
const highest = 32_000;

/** A port of the loopback on which nobody listens. */
export function freePort(): Promise<number> {
  return freePorts(1);
}

/** The first of so many free ports in a row. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = lowest + Math.floor(Math.random() * (highest - lowest - count));
    const servers = Array.from({ length: count }, () => createServer());
    const taken = await Promise.allSettled(
      servers.map((server, index) => once(server.listen(first + index, '127.0.0.1'), 'listening')),
    );
    await Promise.all(servers.map((server) => new Promise((resolve) => void server.close(resolve))));
    if (taken.every(({ status }) => status === 'fulfilled')) return first;
  }
}
