import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually, readMetric, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const replicas = 3;
const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat', {
      flags: ['--ttft-ms', '50'],
      lines: [`replicas: { min: ${replicas}, max: ${replicas} }`],
    }),
  },
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

/** How many requests which replicas answer while something is done, by their sockets; those with none left out. */
async function homesOf(work: () => Promise<unknown>): Promise<Map<string, number>> {
  const before = await answered();
  await work();
  const after = await answered();
  const counts = [...after].map(([socketPath, count]) => [socketPath, count - (before.get(socketPath) ?? 0)] as const);
  return new Map(counts.filter(([, count]) => count > 0));
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
    });
    // Each has answered one of several requests at once: all are routed to.
    await eventually(async () => {
      const homes = await homesOf(() =>
        Promise.all(Array.from({ length: 9 }, (_, at) => ask({ messages: [says('user', `${at}`)] }))),
      );
      return homes.size === replicas;
    });
  });

  it('spreads simultaneous requests over all of them', async () => {
    const homes = await homesOf(() =>
      Promise.all(
        Array.from({ length: 30 }, (_, at) => ask({ stream: true, messages: [says('user', long(`other ${at}`))] })),
      ),
    );
    expect([...homes.values()].reduce((sum, count) => sum + count, 0)).toBe(30);
    expect(homes.size).toBe(replicas);
    expect(Math.max(...homes.values())).toBeLessThanOrEqual(16);
  });

  it('sends each turn of a conversation to the replica that had the turns before', async () => {
    const conversations = Array.from({ length: 9 }, (_, at) => [says('user', long(`question ${at}`))]);
    await Promise.all(conversations.map((messages) => ask({ messages })));
    const homes = new Set<string>();
    for (const messages of conversations) {
      const found = await homesOf(async () => {
        for (let turn = 0; turn < 3; turn += 1) {
          messages.push(says('assistant', long(`answer ${turn}`)), says('user', `turn ${turn}`));
          await ask({ messages, stream: turn % 2 === 0 });
        }
      });
      expect([...found.values()]).toEqual([3]);
      for (const home of found.keys()) homes.add(home);
    }
    expect(homes.size).toBe(replicas);
  });

  it.each(['prompt_cache_key', 'user'])('keeps requests with the same %s on one of them', async (field) => {
    const homes = new Set<string>();
    for (let key = 0; key < 16; key += 1) {
      const found = await homesOf(async () => {
        for (let request = 0; request < 2; request += 1) {
          await ask({ [field]: `key ${key}`, messages: [says('user', `${request}`)] });
        }
      });
      expect([...found.values()]).toEqual([2]);
      for (const home of found.keys()) homes.add(home);
    }
    expect(homes.size).toBeGreaterThan(1);
  });

  it('still uses all of them after requests at which each one failed', async () => {
    const statuses: number[] = [];
    for (let request = 0; request < 12; request += 1) {
      statuses.push((await bench.chat({ messages: [says('user', `${request}`)], standin: { status: 500 } })).status);
    }
    expect(statuses).toEqual(statuses.map(() => 502));
    const homes = await homesOf(() =>
      Promise.all(Array.from({ length: 12 }, (_, at) => ask({ messages: [says('user', long(`after ${at}`))] }))),
    );
    expect(homes.size).toBe(replicas);
  });

  it('keeps serving when one is killed, on the others', async () => {
    const messages = [says('user', long('before'))];
    const [home] = (await homesOf(() => ask({ messages }))).keys();
    const victim = running().find(({ socketPath }) => socketPath === home);
    if (victim === undefined) throw new Error('nobody answered');
    process.kill(victim.pid, 'SIGKILL');
    const statuses: number[] = [];
    for (let request = 0; request < 10; request += 1) statuses.push((await bench.chat({ messages })).status);
    expect(statuses).toEqual(statuses.map(() => 200));
  });
});
