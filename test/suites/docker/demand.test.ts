import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { booksOf, figure, lostOf, median, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

const floor = createFloor();
const stream = { stream: true, stream_options: { include_usage: true } };

describe('an engine without requests so far', () => {
  it('is started once for 200 concurrent requests, which are all answered and billed', async (test) => {
    const { gateway, chat } = await floor.open({ engines: { crowd: dockerFile('crowd') } });
    expect(await floor.containers('crowd')).toEqual([]);
    const answers = await Promise.all(Array.from({ length: 200 }, () => chat('crowd', stream)));
    expect(lostOf(answers)).toEqual([]);
    expect(floor.events('crowd').filter(({ action }) => action === 'create')).toHaveLength(1);
    expect(await floor.containers('crowd')).toMatchObject([{ State: 'running' }]);
    const outputTokens = answers.reduce((sum, answer) => sum + answer.outputTokens, 0);
    const books = await until('200 records', async () => {
      const found = await booksOf(gateway, 'crowd');
      return found.requests >= 200 && found;
    });
    expect(books).toMatchObject({ requests: 200, completed: 200, outputTokens });
    const wallet: Body = await (await gateway.request('/v1/wallet')).json();
    expect(Number(wallet.balance) + Number(books.picoUsd) / 1e12).toBeCloseTo(10, 9);
    expect(Number(wallet.held)).toBe(0);
    const started = floor.events('crowd').find(({ action }) => action === 'start')?.atMs ?? 0;
    const sent = Math.min(...answers.map(({ sentAtMs }) => sentAtMs));
    await figure(test, '200 clients: ms from the first request to the start of the container', started - sent);
    await figure(test, '200 clients: ms to the first token, median', median(answers.map((a) => a.firstTokenMs ?? 0)));
  });

  it('is started for one request, stopped when idle, and started again', async (test) => {
    const { chat, engine } = await floor.open({
      engines: { idle: dockerFile('idle', { fields: { idle_seconds: 1 } }) },
    });
    const first = await chat('idle', stream);
    expect(lostOf([first])).toEqual([]);
    await until('no container, no network', async () => {
      return (await floor.containers('idle')).length === 0 && (await floor.networks('idle')).length === 0;
    });
    expect(await engine('idle')).toMatchObject({ state: 'stopped', replicas: [], last_failure: null });
    expect(floor.events('idle').filter(({ action }) => action === 'die')).toMatchObject([{ exitCode: '0' }]);
    const second = await chat('idle', stream);
    expect(lostOf([second])).toEqual([]);
    const starts = floor.events('idle').filter(({ action }) => action === 'start');
    expect(new Set(starts.map(({ id }) => id)).size).toBe(2);
    expect(starts).toHaveLength(2);
    for (const [index, answer] of [first, second].entries()) {
      await figure(
        test,
        `one client: ms from request to container start`,
        (starts[index]?.atMs ?? 0) - answer.sentAtMs,
      );
      await figure(test, `one client: ms from request to first token, cold`, answer.firstTokenMs ?? NaN);
    }
    const warm = await chat('idle', stream);
    await figure(test, `one client: ms from request to first token, warm`, warm.firstTokenMs ?? NaN);
  });

  it('answers a request that arrives while it is stopped for being idle', async () => {
    const { chat } = await floor.open({ engines: { edge: dockerFile('edge', { fields: { idle_seconds: 1 } }) } });
    const answers = [await chat('edge', stream)];
    // Around the moment at which it is stopped.
    for (let lateMs = -60; lateMs <= 100; lateMs += 20) {
      await pause(1000 + lateMs);
      answers.push(await chat('edge', stream));
    }
    // And when its stop has just begun.
    const stops = (): number => floor.events('edge').filter(({ action }) => action === 'kill').length;
    for (let times = 0; times < 3; times += 1) {
      const before = stops();
      await until('its stop begins', () => stops() > before);
      answers.push(await chat('edge', stream));
    }
    expect(lostOf(answers)).toEqual([]);
  });
});
