import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { eventually, readMetric, standinFile, useInference, type Body } from './kit.ts';

const replicas = 3;
const bench = useInference(() => ({
  engines: { chat: standinFile('chat', { lines: [`replicas: { min: ${replicas}, max: ${replicas} }`] }) },
}));

interface Running {
  readonly pid: number;
  readonly socketPath: string;
}

function running(): Running[] {
  const folder = join(bench.gateway.dataDir, 'engines', 'running');
  return readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Running);
}

/** Requests that each replica has answered, by its socket. */
async function answered(): Promise<Map<string, number>> {
  const counts = running().map(
    async ({ socketPath }) => [socketPath, await readMetric(socketPath, 'vllm:request_success_total')] as const,
  );
  return new Map(await Promise.all(counts));
}

/** What each replica answers while something is done, the most first. */
async function spread(work: () => Promise<void>): Promise<number[]> {
  const before = await answered();
  await work();
  const after = await answered();
  return [...after].map(([socketPath, count]) => count - (before.get(socketPath) ?? 0)).toSorted((a, b) => b - a);
}

async function ask(body: object): Promise<void> {
  const answer = await bench.chat(body);
  expect(answer.status).toBe(200);
  await answer.text();
}

const long = (name: string): string => `${name} `.repeat(300);
const says = (role: string, content: string): Body => ({ role, content });

describe('a model with several replicas', () => {
  beforeAll(async () => {
    await ask({});
    await eventually(async () => {
      const counts = await answered().catch(() => null);
      return counts !== null && counts.size === replicas;
    }, 30_000);
    // All of them are routed to once each has answered one of several at once.
    await eventually(async () => {
      const counts = await spread(async () => {
        await Promise.all(Array.from({ length: 3 * replicas }, (_, at) => ask({ messages: [says('user', `${at}`)] })));
      });
      return (counts.at(-1) ?? 0) > 0;
    }, 30_000);
  });

  it('spreads requests at once over all of them', async () => {
    const counts = await spread(async () => {
      await Promise.all(
        Array.from({ length: 30 }, (_, at) => ask({ stream: true, messages: [says('user', long(`other ${at}`))] })),
      );
    });
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(30);
    expect(counts[0]).toBeLessThanOrEqual(16);
  });

  it('brings the turns of a conversation to one of them', async () => {
    const messages = [says('user', long('question'))];
    const counts = await spread(async () => {
      for (let turn = 0; turn < 6; turn += 1) {
        await ask({ messages, stream: turn % 2 === 0 });
        messages.push(says('assistant', long(`answer ${turn}`)), says('user', `turn ${turn}`));
      }
    });
    expect(counts).toEqual([6, 0, 0]);
  });

  it('keeps what a prompt_cache_key names on one of them', async () => {
    const counts = await spread(async () => {
      for (let request = 0; request < 6; request += 1) {
        await ask({ prompt_cache_key: 'k', messages: [says('user', `${request}`)] });
      }
    });
    expect(counts).toEqual([6, 0, 0]);
  });

  it('answers on when one is killed, and brings its requests to the others', async () => {
    const messages = [says('user', long('before'))];
    const before = await answered();
    await ask({ messages });
    const after = await answered();
    const [home] = [...after].find(([socketPath, count]) => count > (before.get(socketPath) ?? 0)) ?? [''];
    const victim = running().find(({ socketPath }) => socketPath === home);
    if (victim === undefined) throw new Error('nobody answered');
    process.kill(victim.pid, 'SIGKILL');
    for (let request = 0; request < 10; request += 1) await ask({ messages });
  });
});
