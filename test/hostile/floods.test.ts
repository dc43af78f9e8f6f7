import { Agent, request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { makeSecret } from '#core/keys/secret.ts';
import { uuidv7 } from '#base/id.ts';
import { serveCustomer, tell, useVictim } from './kit.ts';

// One address is answered 401 for as many wrong keys as a customer's other mistakes; here many addresses ask at once.
const victim = useVictim({ env: { HEADGATE_WRONG_KEYS_PER_MINUTE: '1000000' } });
const connections = 50;

/** Asks for a path over and over, on many connections at once, until told to stop. */
function flood(path: string, keyOf: () => string): { stop(): Promise<ReadonlyMap<number, number>> } {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const seen = new Map<number, number>();
  let going = true;
  const ask = (): Promise<number> =>
    new Promise((resolve) => {
      const headers = { authorization: `Bearer ${keyOf()}` };
      const sent = request(new URL(path, victim().url), { agent, headers }, (answer) => {
        answer.resume().on('end', () => resolve(answer.statusCode ?? 0));
      });
      sent.on('error', () => resolve(0));
      sent.end();
    });
  const loops = Array.from({ length: connections }, async () => {
    while (going) {
      const status = await ask();
      seen.set(status, (seen.get(status) ?? 0) + 1);
    }
  });
  return {
    async stop() {
      going = false;
      await Promise.all(loops);
      agent.destroy();
      return seen;
    },
  };
}

const madeUp = (): string => makeSecret('sk-hg-', uuidv7()).secret;

describe.each([
  ['keys that are made up', '/v1/models', madeUp, 401],
  ['summaries of one key', '/v1/usage/summary?group_by=model', () => victim().attacker.managementKey, 200],
])('a flood of %s', (name, path, keyOf, status) => {
  it('leaves a customer every answer', async () => {
    const attack = flood(path, keyOf);
    const served = await serveCustomer(victim(), `in a flood of ${name}`, 50);
    const seen = await attack.stop();
    tell(`${JSON.stringify([...seen])} meanwhile`);
    expect(served.answers).toBe(50);
    expect(seen.get(status)).toBeGreaterThan(0);
  });
});
