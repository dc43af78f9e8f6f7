import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import type { ObservedReplica } from '#core/fleet/drivers/driver.ts';
import { readFreeBytes } from '#core/fleet/drivers/free-disk.ts';
import { createProcessDriver } from '#core/fleet/drivers/process/process.ts';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';
import { engineDefinition, newFolder } from '#test/fleet/test-fleet.ts';

/** Starts that would download a model to a disk without space. */

const folders: string[] = [];
afterEach(() => folders.splice(0).forEach((folder) => rmSync(folder, { recursive: true, force: true })));

/** Starts a program with this argument. @returns the replica as found right after its start */
async function startWith(argument: string, freeBytes: number, hfHome: string): Promise<ObservedReplica | undefined> {
  const folder = newFolder();
  folders.push(folder);
  const driver = createProcessDriver({
    dataDir: folder,
    workingDirectory: folder,
    env: { ...process.env, HF_HOME: hfHome },
    log: createLog('silent'),
    readFreeBytes: () => Promise.resolve(freeBytes),
  });
  const definition = engineDefinition({ command: ['sleep', '1000', argument, '{socket}'] });
  const spec = driver.specOf(definition);
  await driver.open([spec]);
  const fence = { epoch: 1n, holds: () => Promise.resolve(true) };
  await driver.start({ replicaId: 'a-0', spec, placement: { host: 'local', gpuIds: [] }, fence });
  const [replica] = (await driver.observe()).replicas;
  await driver.close();
  return replica;
}

describe('a process whose model is a repository', () => {
  it('is not started if the disk of its cache has less than 1 GiB', async () => {
    const home = newFolder();
    folders.push(home);
    const found = await startWith('acme/chat', 2 ** 29, home);
    const cause = found?.exit ? explainExit(found.exit) : null;
    expect(cause).toMatchObject({ kind: 'disk_full', detail: expect.stringContaining(`${home}/hub has 0.5 GiB free`) });
  });

  it.each([
    ['the disk has room', 'acme/chat', 2 ** 31],
    ['the cache has it', 'acme/cached', 0],
    ['its model is a folder', '/models/chat', 0],
  ])('is started if %s', async (_, argument, freeBytes) => {
    const home = newFolder();
    folders.push(home);
    const cached = join(home, 'hub', 'models--acme--cached');
    for (const part of ['snapshots/1', 'blobs']) mkdirSync(join(cached, part), { recursive: true });
    writeFileSync(join(cached, 'blobs', '1'), '');
    expect(await startWith(argument, freeBytes, home)).toMatchObject({ state: 'running' });
  });
});

describe('the free space of a disk', () => {
  it('is that of the nearest folder that exists, and unknown without a size', async () => {
    const folder = newFolder();
    folders.push(folder);
    expect(await readFreeBytes(join(folder, 'not', 'there'))).toBeGreaterThan(0);
    expect(await readFreeBytes('/proc/self')).toBeNull();
  });
});
