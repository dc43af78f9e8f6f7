import { describe, expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { adminKey } from '#test/redis/gateway-cluster.ts';
import { figure, lostOf, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

const floor = createFloor();
const gpus = { gpus: { count: 1 } };
const starts = (id: string) => floor.events(id).filter(({ action }) => action === 'start');
const ends = (id: string) => floor.events(id).filter(({ action }) => action === 'die');

describe('a container whose engine file was removed', () => {
  it('keeps its GPU after a restart, is reported with the command to end it, and then frees the GPU', async () => {
    const database = await createTestDatabase();
    try {
      const gpuIds = ['GPU-left'];
      const common = { gpuIds, databaseUrl: database.url, env: { HEADGATE_BOOTSTRAP_KEY: adminKey } };
      const before = await floor.open({ ...common, engines: { gone: dockerFile('gone', { fields: gpus }) } });
      expect(lostOf([await before.chat('gone')])).toEqual([]);
      await before.stop();
      const heir = dockerFile('heir', { fields: { ...gpus, start_timeout_seconds: 3 } });
      const { chat, admin, stop } = await floor.open({ ...common, engines: { heir } });
      const refused = await chat('heir');
      expect(refused).toMatchObject({ status: 503, ok: false });
      expect(JSON.parse(refused.text).error.message).toMatch(/Other models/);
      const [container] = await floor.containers('gone');
      const name = container?.Names[0]?.slice(1) ?? '';
      const [host] = (await admin('GET', '/v1/admin/hosts')).data;
      expect(host.gpus).toMatchObject([{ id: 'GPU-left', used_by: { engine: 'gone', replica: null, stranger: name } }]);
      const endedBy = `docker rm --force ${name}`;
      expect(host.strangers).toEqual([{ name, engine: 'gone', gpus: gpuIds, ended_by: endedBy }]);
      await floor.docker().call('DELETE', `/containers/${name}?force=true`);
      await until('the heir is served', async () => (await chat('heir')).ok);
      expect(floor.sharedDevices()).toEqual([]);
      await stop();
    } finally {
      await database.drop();
    }
  });
});

describe('two models on one GPU', () => {
  it('both answer concurrent requests by replacing each other', async () => {
    const { load, chat } = await floor.open({
      engines: { tick: dockerFile('tick', { fields: gpus }), tock: dockerFile('tock', { fields: gpus }) },
      gpuIds: ['GPU-both'],
    });
    const first = await Promise.all(['tick', 'tock', 'tick', 'tock'].map((id) => chat(id)));
    expect(lostOf(first)).toEqual([]);
    expect(starts('tick').length + starts('tock').length).toBe(2);
    const loads = [load('tick', 2), load('tock', 2, { stream: true })];
    await until('two more turns of each', () => starts('tick').length >= 3 && starts('tock').length >= 3);
    expect(lostOf((await Promise.all(loads.map((one) => one.stop()))).flat())).toEqual([]);
    expect(floor.sharedDevices()).toEqual([]);
  });

  it('reject a request in plain words after the start timeout when the other one is pinned', async () => {
    const { chat, engine } = await floor.open({
      engines: {
        pinned: dockerFile('pinned', { fields: { ...gpus, pinned: true } }),
        outside: dockerFile('outside', { fields: { ...gpus, start_timeout_seconds: 3 } }),
      },
      gpuIds: ['GPU-pin'],
    });
    expect(lostOf([await chat('pinned')])).toEqual([]);
    const [before] = await floor.containers('pinned');
    const refused = await chat('outside');
    expect(refused).toMatchObject({ status: 503, ok: false });
    expect(Number(refused.retryAfter)).toBeGreaterThan(0);
    expect(JSON.parse(refused.text).error).toMatchObject({ code: 'upstream_error' });
    expect(JSON.parse(refused.text).error.message).toMatch(/other models|no room|in use|free/i);
    expect(refused.text).not.toMatch(/GPU-pin|local|container/);
    expect(floor.events('outside')).toEqual([]);
    expect(await floor.containers('pinned')).toMatchObject([{ Id: before?.Id, State: 'running' }]);
    expect(await engine('pinned')).toMatchObject({ state: 'ready', gpus: ['GPU-pin'] });
  });

  it('replace each other when idle, and start only after the other has freed the GPU', async () => {
    const { chat } = await floor.open({
      engines: { first: dockerFile('first', { fields: gpus }), second: dockerFile('second', { fields: gpus }) },
      gpuIds: ['GPU-room'],
    });
    for (const id of ['first', 'second', 'first']) expect(lostOf([await chat(id)])).toEqual([]);
    expect([starts('first').length, ends('first').length]).toEqual([2, 1]);
    expect([starts('second').length, ends('second').length]).toEqual([1, 1]);
    const order = [starts('first')[0], ends('first')[0], starts('second')[0], ends('second')[0], starts('first')[1]];
    const times = order.map((event) => event?.atMs ?? NaN);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    const [running] = await floor.containers('first');
    expect((await floor.inspect(running?.Id ?? '')).Config.Env).toContain('NVIDIA_VISIBLE_DEVICES=GPU-room');
    expect(floor.sharedDevices()).toEqual([]);
  });

  it('both progress under load, respect min_up_seconds, and answer every request', async (test) => {
    const upSeconds = 3;
    const fields = { ...gpus, min_up_seconds: upSeconds };
    const { load, engine } = await floor.open({
      engines: { ping: dockerFile('ping', { fields }), pong: dockerFile('pong', { fields }) },
      gpuIds: ['GPU-turn'],
    });
    const loads = [load('ping', 3, { stream: true }), load('pong', 3)];
    const begunMs = performance.now();
    await until('two turns of each', () => starts('ping').length >= 2 && starts('pong').length >= 2);
    const all = (await Promise.all(loads.map((one) => one.stop()))).flat();
    expect(lostOf(all)).toEqual([]);
    const seconds = (performance.now() - begunMs) / 1000;
    for (const id of ['ping', 'pong']) {
      for (const { id: container, atMs } of ends(id)) {
        const started = starts(id).find((one) => one.id === container);
        expect(atMs - (started?.atMs ?? NaN)).toBeGreaterThanOrEqual(upSeconds * 1000);
      }
      expect(await engine(id)).toMatchObject({ last_failure: null });
    }
    expect(floor.sharedDevices()).toEqual([]);
    const turns = starts('ping').length + starts('pong').length;
    await figure(
      test,
      'two models on one GPU, 3 workers each',
      `${turns} turns in ${seconds.toFixed(1)} s, ${all.length} answers, 0 lost`,
    );
  });
});
