import { Agent, request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { makeSecret } from '#core/keys/secret.ts';
import { serveCustomer, tell, useVictim } from './attacked-gateway.ts';

// One address is answered 401 for as many wrong keys as a customer's other mistakes; here many addresses ask at once.
const victim = useVictim({ env: { HEADGATE_WRONG_KEYS_PER_MINUTE: '1000000' } });
const connections = 50;

interface Asked {
  readonly path: string;
  readonly keyOf: () => string;
  readonly headers?: () => Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Asks for a path over and over, on many connections at once, until told to stop. */
function flood({ path, keyOf, headers = () => ({}), body }: Asked): { stop(): Promise<ReadonlyMap<number, number>> } {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const seen = new Map<number, number>();
  let going = true;
  const ask = (): Promise<number> =>
    new Promise((resolve) => {
      const method = body === undefined ? 'GET' : 'POST';
      const all = { authorization: `Bearer ${keyOf()}`, 'content-type': 'application/json', ...headers() };
      const sent = request(new URL(path, victim().url), { agent, method, headers: all }, (answer) => {
        answer.resume().on('end', () => resolve(answer.statusCode ?? 0));
      });
      sent.on('error', () => resolve(0));
      sent.end(body);
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

const attackers = (): string => victim().attacker.key;
const body = JSON.stringify({ model: 'chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 1 });
const path = '/v1/chat/completions';

describe.each<[string, Asked, number]>([
  ['keys that are made up', { path: '/v1/models', keyOf: madeUp }, 401],
  ['summaries of one key', { path: '/v1/usage/summary?group_by=model', keyOf: attackers }, 200],
  ['requests of one key', { path, keyOf: attackers, body }, 429],
  [
    'refused bodies of one key',
    { path, keyOf: attackers, body: body.replace('"max_tokens"', '"n":0,"max_tokens"') },
    400,
  ],
  ['idempotency keys', { path, keyOf: attackers, body, headers: () => ({ 'idempotency-key': uuidv7() }) }, 429],
])('a flood of %s', (name, asked, status) => {
  it('leaves a customer every answer', async () => {
    const attack = flood(asked);
    const served = await serveCustomer(victim(), `in a flood of ${name}`, 50);
    const seen = await attack.stop();
    tell(`${JSON.stringify([...seen])} meanwhile`);
    expect(served.answers).toBe(50);
    expect(seen.get(status)).toBeGreaterThan(0);
  });
});
