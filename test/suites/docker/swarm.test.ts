import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dockerFile, type EngineFile } from './bench.ts';
import { figure, lostOf, until } from './clients.ts';
import { type SwarmGateway, startSwarm, type TestSwarm } from './swarm-lab.ts';

const steady = { stream: true, standin: { output_tokens: 20, tpot_ms: 20, finish: 'stop' } };
const swarmFile = (id: string, { flags = [], fields = {} }: EngineFile = {}): string =>
  dockerFile(id, { flags, fields: { driver: 'swarm', ...fields } });

let swarm: TestSwarm | null = null;
beforeAll(async () => {
  swarm = await startSwarm([[], ['GPU-aaaa']]);
}, 120_000);
afterAll(() => swarm?.stop(), 120_000);

function lab(): TestSwarm {
  if (swarm === null) throw new Error('There is no swarm.');
  return swarm;
}

async function open(engines: Readonly<Record<string, string>>): Promise<{ gateway: SwarmGateway; dir: string }> {
  const dir = lab().folder(engines);
  return { gateway: await lab().open(dir), dir };
}

describe('engines as services of a swarm', () => {
  it('answer task by task on an overlay network, and renew themselves without a lost request', async (test) => {
    const fields = { replicas: { min: 2, max: 2 }, env: { TOKEN: '${SECRET_OF_A_TEST}' } };
    const { gateway, dir } = await open({ chat: swarmFile('chat', { fields }) });
    const first = await gateway.chat('chat');
    expect(first).toMatchObject({ ok: true });
    await until('two replicas', async () => {
      const { replicas } = await gateway.engine('chat');
      return replicas.filter(({ state }: { state: string }) => state === 'ready').length === 2;
    });
    const tasks = (await lab().tasks()).filter(({ ServiceID: id }) => id !== undefined);
    expect(new Set(tasks.map(({ NodeID: node }) => node)).size).toBe(2);

    const load = gateway.load('chat', 4, steady);
    await load.more(10);
    writeFileSync(join(dir, 'chat.yaml'), swarmFile('chat', { fields, flags: ['--max-num-seqs', '7'] }));
    gateway.reload();
    await until('the new ones alone', async () => {
      const all = await lab().services();
      const isNew = all.filter(({ Spec: spec }) => JSON.stringify(spec).includes('--max-num-seqs'));
      return isNew.length === 2 && all.length === 2;
    });
    await load.more(10);
    const answers = await load.stop();
    expect(lostOf(answers)).toEqual([]);
    await figure(test, 'swarm rollout: requests', answers.length);
  });
});
