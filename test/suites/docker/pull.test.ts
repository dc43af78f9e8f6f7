import { describe, expect, it } from 'vitest';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';
import { containerEngine, createLab, holding, localHost, openDriver } from '#test/docker/docker-drivers.ts';
import { startRegistry } from './registry.ts';

const lab = createLab();

describe('a missing image', () => {
  it('is reported as nonexistent when its registry does not have it', async () => {
    const registry = await startRegistry();
    const engine = containerEngine({ image: registry.image.replace('engine:v1', 'other:v1') });
    const test = await lab.open(undefined, [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ stopRequested: false, startErrorCode: 'IMAGE_NOT_FOUND' });
    registry.close();
  });

  it('is not pulled to a disk without space', async () => {
    const registry = await startRegistry();
    const engine = containerEngine({ image: registry.image });
    const asked: string[] = [];
    const readFreeBytes = (folder: string): Promise<number> => {
      asked.push(folder);
      return Promise.resolve(2 ** 28);
    };
    const test = await openDriver([localHost(lab.docker())], [engine], { readFreeBytes });
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit === null ? null : explainExit(exit)).toMatchObject({ kind: 'disk_full' });
    expect(asked).toEqual([expect.stringContaining(lab.docker().dir)]);
    expect(registry.sending()).toBe(0);
    await test.driver.close();
    registry.close();
  });

  it('is reported as not pulled when its registry is unreachable', async () => {
    const registry = await startRegistry();
    registry.close();
    const engine = containerEngine({ image: registry.image });
    const test = await lab.open(undefined, [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ stopRequested: false, startErrorCode: 'IMAGE_PULL_FAILED' });
  });

  it('is no longer pulled after the replica was asked to stop', async () => {
    const registry = await startRegistry();
    const engine = containerEngine({ image: registry.image });
    const test = await lab.open(undefined, [engine]);
    const id = await test.start(engine);
    await expect.poll(() => registry.sending()).toBe(1);
    await test.stop(id);
    expect((await test.untilIs(id, 'exited')).exit).toMatchObject({ stopRequested: true, startErrorCode: null });
    expect(await lab.containersOf(test.fleetId)).toEqual([]);
    // The engine has given up, though it may still be waiting for the next bytes.
    registry.release();
    await expect.poll(() => registry.sending()).toBe(0);
    expect(JSON.stringify(await lab.docker().call('GET', '/images/json'))).not.toContain(registry.image);
    await test.driver.forget(id, holding);
    registry.close();
  });

  it('is pulled once for all replicas, with its progress', async () => {
    const registry = await startRegistry();
    const engine = containerEngine({ image: registry.image, entrypoint: ['/weights'] });
    const test = await lab.open(undefined, [engine]);
    const ids = await Promise.all([test.start(engine), test.start(engine)]);
    const progress = await test.until(({ replicas }) => {
      const percents = replicas.map((found) => Number(/ (\d+) %$/.exec(found.progress ?? '')?.[1] ?? 0));
      return percents.some((percent) => percent > 0) && { percents, texts: replicas.map((found) => found.progress) };
    });
    expect(Math.max(...progress.percents)).toBeLessThanOrEqual(51);
    expect(progress.texts[0]).toMatch(new RegExp(`^pulling ${registry.image} \\d+ %$`));
    registry.release();
    // It is no program, which only a container can find out.
    for (const id of ids) expect((await test.untilIs(id, 'exited')).exit).toMatchObject({ exitCode: 126 });
    expect(registry.layerRequests()).toBe(1);
    registry.close();
  });
});
