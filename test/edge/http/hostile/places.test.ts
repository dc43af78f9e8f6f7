import { Agent, request, type ClientRequest } from 'node:http';
import { afterAll, expect, it } from 'vitest';
import { engineFile } from '#test/programs/gateway-process.ts';
import { serveCustomer, tell, until, useVictim } from './attacked-gateway.ts';

const inFlightMax = 40;
const victim = useVictim({
  engines: { chat: engineFile('chat', { flags: ['--max-num-seqs', '256'] }) },
  env: { HEADGATE_MAX_IN_FLIGHT: String(inFlightMax) },
});
const open: ClientRequest[] = [];

afterAll(() => {
  for (const sent of open) sent.destroy();
});

/** A stream of a token now and then, which its client reads. */
function openStream(statuses: number[]): void {
  const body = JSON.stringify({
    model: 'chat',
    stream: true,
    messages: [{ role: 'user', content: 'Hello' }],
    max_tokens: 5000,
    standin: { tpot_ms: 200, output_tokens: 5000 },
  });
  const headers = { authorization: `Bearer ${victim().attacker.key}`, 'content-type': 'application/json' };
  const init = { method: 'POST', headers, agent: new Agent() };
  const sent = request(new URL('/v1/chat/completions', victim().url), init, (answer) => {
    statuses.push(answer.statusCode ?? 0);
    answer.resume().on('error', () => undefined);
  });
  sent.on('error', () => undefined);
  sent.end(body);
  open.push(sent);
}

it('leaves a quarter of the places to others when an organization without limits fills the rest', async () => {
  const { keyId, managementKey } = victim().attacker;
  await victim().api(`/v1/keys/${keyId}`, { key: managementKey, method: 'PATCH', body: { max_concurrency: null } });
  const statuses: number[] = [];
  for (let count = 0; count < 2 * inFlightMax; count += 1) openStream(statuses);
  await until(() => statuses.length === 2 * inFlightMax);
  const served = await serveCustomer(
    victim(),
    `while one organization asks for ${2 * inFlightMax} of ${inFlightMax} places`,
  );
  tell(`${statuses.filter((status) => status === 200).length} streams run`);
  expect(served.answers).toBe(50);
  expect(statuses.filter((status) => status === 200)).toHaveLength((inFlightMax * 3) / 4);
  expect(statuses.filter((status) => status === 503)).toHaveLength((inFlightMax * 5) / 4);
});
