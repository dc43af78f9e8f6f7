import { rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type EngineDefinition, loadEngineFiles } from '#core/catalog/catalog.ts';
import { ask, mustAcquire, newFolder, startFleet, type TestFleet } from '#test/fleet/test-fleet.ts';

const enginesFolder = new URL('../../../engines', import.meta.url).pathname;

function shipped(): readonly EngineDefinition[] {
  const result = loadEngineFiles(enginesFolder, { env: process.env });
  if (!result.ok) throw new Error('The shipped engine files are not valid.');
  return result.engines;
}

describe('the engines that come with Headgate', () => {
  let running: TestFleet;
  let folder: string;

  beforeAll(async () => {
    folder = newFolder();
    running = await startFleet(shipped(), { folder, workingDirectory: dirname(enginesFolder) });
  });
  afterAll(async () => {
    await running.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each(shipped().map(({ id }) => id))('%s starts and serves the model by its id first', async (id) => {
    const lease = await mustAcquire(running.fleet, id);
    expect(lease.replica).toMatchObject({ kind: 'vllm', forcedUsage: true, upstreamModel: null, headerLines: '' });
    const answer = JSON.parse((await ask(lease.replica, '/v1/models')) ?? '') as { data: { id: string }[] };
    const engine = shipped().find((definition) => definition.id === id);
    expect(answer.data.map((card) => card.id)).toEqual([id, engine?.name, engine?.huggingFaceId]);
    lease.release();
  });
});

describe('a stand-in engine', () => {
  it.each([
    ['oom', /not enough memory/],
    ['bad-model', /weights of this model were not found/],
  ])('reports the cause of a failed start that vLLM words as %s', async (kind, text) => {
    const folder = newFolder();
    const [chat] = shipped();
    if (chat?.driver.type !== 'process') throw new Error('a process was expected');
    const command = [...chat.driver.command, '--fail-start', kind];
    const { fleet, close } = await startFleet([{ ...chat, driver: { ...chat.driver, command } }], { folder });
    const result = await fleet.acquire(chat.id, {});
    expect(result).toMatchObject({ ok: false, refusal: { publicText: expect.stringMatching(text) } });
    await close();
  });

  it('is restarted when it dies after it was ready', async () => {
    const folder = newFolder();
    const [chat] = shipped();
    if (chat?.driver.type !== 'process') throw new Error('a process was expected');
    const command = [...chat.driver.command, '--exit-after-ms', '300', '--exit-code', '0'];
    const engine = { ...chat, driver: { ...chat.driver, command } };
    const { fleet, close } = await startFleet([engine], { folder, policy: { backoffFirstMs: 20, crashesMax: 1000 } });
    // On a busy machine it may end before it was found ready, and is started again then too.
    const acquire = (): Promise<string> =>
      vi.waitFor(
        async () => {
          const lease = await mustAcquire(fleet, chat.id);
          lease.release();
          return lease.replica.id;
        },
        { timeout: 300_000 },
      );
    const first = await acquire();
    await expect.poll(acquire).not.toBe(first);
    await close();
  });
});
