import type { Socket } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { head, hear, serveCustomer, stubborn, tell, useVictim } from './attacked-gateway.ts';

const descriptorsMax = 400;
const victim = useVictim({ descriptorsMax });
const open = new Set<Socket>();

afterAll(() => {
  for (const socket of open) socket.destroy();
});

/** A new connection in the place of each that is closed. */
function keepOpen(first: string): void {
  const socket = stubborn(victim().url);
  open.add(socket);
  hear(socket);
  socket.write(first);
  socket.on('end', () => socket.destroy());
  socket.on('close', () => {
    open.delete(socket);
    setTimeout(() => keepOpen(first), 1000);
  });
}

it.each([
  ['say nothing', 'GET'],
  ['were answered', head('GET', '/v1/pricing')],
])('serves a customer while more connections than descriptors are open that %s', async (name, first) => {
  for (let count = 0; count < 2 * descriptorsMax; count += 1) keepOpen(first);
  const elsewhere = { keepAlive: false, localAddress: '127.0.0.2' };
  const served = await serveCustomer(victim(), `while ${2 * descriptorsMax} connections ${name}`, 50, elsewhere);
  tell(`${victim().descriptors()} of ${descriptorsMax} descriptors`);
  expect(served.answers).toBe(50);
  expect(victim().descriptors()).toBeLessThan(descriptorsMax);
});
