import { describe, expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { adminKey } from '#test/redis/gateway-cluster.ts';
import { figure, lostOf, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

const floor = createFloor();
const starts = (id: string) => floor.events(id).filter(({ action }) => action === 'start');
const ends = (id: string) => floor.events(id).filter(({ action }) => action === 'die');

describe.concurrent('an engine', () => {
  it('gets a second replica when requests queue in the first, uses both, and ends without replicas', async (test) => {
    const fields = { replicas: { min: 0, max: 2 }, idle_seconds: 3 };
    const { load, engine } = await floor.open({
      engines: { scaled: dockerFile('scaled', { flags: ['--max-num-seqs', '2'], fields }) },
    });
    const running = load('scaled', 8, { standin: { output_tokens: 20, tpot_ms: 20, finish: 'stop' } });
    await running.more(1);
    expect(await floor.containers('scaled')).toHaveLength(1);
    const queuedMs = performance.now();
    const both = await until('requests run on both', async () => {
      const { replicas } = await engine('scaled');
      return replicas.length === 2 && replicas.every((one: { running: number }) => one.running > 0) && replicas;
    });
    await figure(test, 'second replica serves, ms after the queue began', performance.now() - queuedMs);
    // By least load neither is given all of what the two of them have.
    await until('it is spread', async () => {
      const { replicas } = await engine('scaled');
      return replicas.every((one: { running: number }) => one.running >= 3);
    });
    expect(new Set(both.map(({ id }: { id: string }) => id)).size).toBe(2);
    await running.more(16);
    expect(lostOf(await running.stop())).toEqual([]);
    expect(starts('scaled')).toHaveLength(2);
    await until('none is left', async () => (await floor.containers('scaled')).length === 0);
    expect(ends('scaled').map(({ exitCode }) => exitCode)).toEqual(['0', '0']);
    expect(await engine('scaled')).toMatchObject({ state: 'stopped', last_failure: null });
  });

  it('keeps its minimum of replicas without requests, and returns to it', async () => {
    const fields = { replicas: { min: 1, max: 2 }, idle_seconds: 3 };
    const { load, engine } = await floor.open({
      engines: { smallest: dockerFile('smallest', { flags: ['--max-num-seqs', '1'], fields }) },
    });
    await until('one that nobody asked for', async () => (await engine('smallest')).state === 'ready');
    const running = load('smallest', 4, { standin: { output_tokens: 20, tpot_ms: 20, finish: 'stop' } });
    await until(
      'two',
      async () =>
        (await engine('smallest')).replicas.filter((one: { state: string }) => one.state === 'ready').length === 2,
    );
    expect(lostOf(await running.stop())).toEqual([]);
    await until('one', async () => (await floor.containers('smallest')).length === 1);
    expect(await engine('smallest')).toMatchObject({ state: 'ready', replicas: [{ state: 'ready' }] });
    expect([starts('smallest').length, ends('smallest').length]).toEqual([2, 1]);
  });

  it.for([1, 2])(
    'sleeps at level %i when idle, and wakes in the same container for the next request',
    async (level, test) => {
      const id = `sleeper-${level}`;
      const { chat, engine, load, admin } = await floor.open({
        engines: {
          [id]: dockerFile(id, {
            flags: ['--enable-sleep-mode', '--access-log'],
            fields: { sleep_level: level, idle_seconds: 1, gpus: { count: 1 } },
          }),
        },
        gpuIds: [`GPU-${id}`],
      });
      const asleep = async (): Promise<boolean> => (await engine(id)).replicas[0]?.state === 'asleep';
      expect(lostOf([await chat(id)])).toEqual([]);
      const [before] = await floor.containers(id);
      await until('it sleeps', asleep);
      const woken = await chat(id, { stream: true });
      expect(lostOf([woken])).toEqual([]);
      const { data: log } = await admin('GET', `/v1/admin/engines/${id}/logs`);
      const posts = log.flatMap(({ line }: { line: string }) => /"POST (\S+)/.exec(line)?.[1] ?? []);
      const wakes = level === 1 ? ['/wake_up'] : ['/wake_up', '/collective_rpc', '/wake_up', '/reset_prefix_cache'];
      const [checks, sleep, ...rest] = [posts.slice(0, 3), ...posts.slice(3)];
      expect([checks, sleep]).toEqual([Array.from({ length: 3 }, () => '/v1/chat/completions'), '/sleep']);
      // One canary, then the request.
      expect(rest.slice(0, wakes.length + 2)).toEqual([...wakes, '/v1/chat/completions', '/v1/chat/completions']);
      await figure(test, `sleep level ${level}: ms from request to first token`, woken.firstTokenMs ?? Number.NaN);
      await until('it sleeps again', asleep);
      const running = load(id, 8, { stream: true });
      await running.more(16);
      expect(lostOf(await running.stop())).toEqual([]);
      expect(await floor.containers(id)).toMatchObject([{ Id: before?.Id, State: 'running' }]);
      expect([starts(id).length, ends(id).length]).toEqual([1, 0]);
    },
  );

  it('is woken in its container by a later gateway', async () => {
    const fields = { sleep_level: 1, idle_seconds: 1, gpus: { count: 1 } };
    const database = await createTestDatabase();
    const engines = { dozing: dockerFile('dozing', { flags: ['--enable-sleep-mode'], fields }) };
    const common = {
      engines,
      gpuIds: ['GPU-dozing'],
      databaseUrl: database.url,
      env: { HEADGATE_BOOTSTRAP_KEY: adminKey },
    };
    const first = await floor.open(common);
    expect(lostOf([await first.chat('dozing')])).toEqual([]);
    await until('it sleeps', async () => (await first.engine('dozing')).replicas[0]?.state === 'asleep');
    const [before] = await floor.containers('dozing');
    await first.stop();
    const next = await floor.open(common);
    expect(lostOf([await next.chat('dozing')])).toEqual([]);
    expect(await floor.containers('dozing')).toMatchObject([{ Id: before?.Id, State: 'running' }]);
    expect([starts('dozing').length, ends('dozing').length]).toEqual([1, 0]);
  });
});
