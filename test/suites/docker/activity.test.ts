import { describe, expect, it } from 'vitest';
import { createLab, localHost, newId, scriptEngine, statusOf } from '#test/docker/docker-drivers.ts';
import type { StartActivity } from '#core/fleet/drivers/driver.ts';

/** Output and received bytes of a start, by which it is known to make progress. */

const lab = createLab();

/** Receives bytes, and writes a line for each request. */
const receiver = `require('node:http').createServer((incoming, answer) => {
  incoming.resume().on('end', () => {
    console.log('received ' + incoming.url);
    answer.end();
  });
}).listen(8000);`;

describe('the activity of a container', () => {
  it('changes with each line, and has the bytes that the container received', async () => {
    const engine = scriptEngine(receiver);
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const id = await test.start(engine);
    const { replica } = await test.untilIs(id, 'running');
    const { host, port } = replica.endpoint;
    const activity = async (): Promise<StartActivity> => {
      const found = await test.driver.activity(id);
      if (found === null) throw new Error('the container is running');
      return found;
    };
    await expect.poll(() => statusOf(replica, '/first'), { timeout: 60_000 }).toBe(200);
    const before = await activity();
    await fetch(`http://${host}:${port}/weights`, { method: 'POST', body: Buffer.alloc(3_000_000) });
    const after = await activity();
    expect(after.output).not.toBe(before.output);
    expect((after.downloadedBytes ?? 0) - (before.downloadedBytes ?? 0)).toBeGreaterThan(3_000_000);
    expect((await activity()).output).toBe(after.output);
    await test.stop(id);
  });

  it('is unknown for a container that does not exist', async () => {
    const test = await lab.open([localHost(lab.docker())]);
    expect(await test.driver.activity(newId())).toBeNull();
  });
});
