import { describe, expect, it, vi } from 'vitest';
import { FenceLostError } from '#core/fleet/drivers/fence.ts';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';
import {
  collect,
  containerEngine,
  createLab,
  holding,
  localHost,
  newId,
  scriptEngine,
  statusOf,
} from '#test/docker/docker-drivers.ts';

const lab = createLab();

describe.concurrent('a container that ends', () => {
  it.each([
    ['0 by itself', 'process.exit(0)', { exitCode: 0, oomKilled: false }, 'ended'],
    ['2 on arguments that it does not know', 'process.exit(2)', { exitCode: 2 }, 'bad_arguments'],
    [
      '1 with a cause in its log',
      'console.error("huggingface_hub.errors.GatedRepoError: 401"); process.exit(1)',
      { exitCode: 1 },
      'token',
    ],
    ['a signal that nobody sent', 'process.kill(process.pid, "SIGSEGV")', { exitCode: 139 }, 'crashed'],
  ])('is a crash with its cause: code %s', async (_, script, exit, kind) => {
    const engine = scriptEngine(script);
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const id = await test.start(engine);
    const observed = await test.untilIs(id, 'exited');
    expect(observed.exit).toMatchObject({ stopRequested: false, startErrorCode: null, ...exit });
    expect(observed.exit === null ? null : explainExit(observed.exit).kind).toBe(kind);
  });

  it.each([
    ['a program that is not there', '/usr/bin/vllm', 127, 'program_not_found'],
    ['a file that is no program', '/app/package.json', 126, 'not_executable'],
  ])('is a crash with its cause: its image has %s', async (_, program, exitCode, kind) => {
    const engine = containerEngine({ entrypoint: [program] });
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ stopRequested: false, exitCode });
    expect(exit === null ? null : explainExit(exit).kind).toBe(kind);
  });

  it('is a crash with its cause for an argument unknown to vLLM', async () => {
    const engine = containerEngine({ args: ['acme/chat', '--no-such-flag'] });
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ stopRequested: false, exitCode: 2 });
    expect(exit?.logTail).toContain('unrecognized arguments: --no-such-flag');
  });

  it('is reported as out of memory', async () => {
    const hog = 'const all = []; for (;;) all.push(Buffer.alloc(8_000_000, 1))';
    const engine = scriptEngine(hog, { memoryBytesMax: 128 * 2 ** 20 });
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ stopRequested: false, exitCode: 137, oomKilled: true });
  });

  it('is no crash when it was stopped on request, also for the next gateway', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    await test.stop(id);
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ stopRequested: true, exitCode: 0 });
    const next = await lab.open([localHost(lab.docker())], [containerEngine()], { fleetId: test.fleetId });
    expect((await next.untilIs(id, 'exited')).exit).toMatchObject({ stopRequested: true, exitCode: 0 });
  });

  it('is killed after the grace time when it hangs on SIGTERM', async () => {
    const engine = containerEngine({ args: ['acme/chat', '--ignore-sigterm'] });
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const id = await test.start(engine);
    await test.untilReady(id);
    await test.stop(id, 1000);
    expect((await test.untilIs(id, 'stopping')).exit).toBeNull();
    // Once more changes nothing.
    await test.stop(id, 60_000);
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ stopRequested: true, exitCode: 137, oomKilled: false });
  });

  it('is neither stopped nor removed without a valid fence', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    const fence = { epoch: 1n, holds: () => Promise.resolve(false) };
    await expect(test.driver.stop(id, { fence, graceMs: 0 })).rejects.toThrow(FenceLostError);
    await expect(test.driver.forget(id, fence)).rejects.toThrow(FenceLostError);
    expect(await statusOf(replica, '/health')).toBe(200);
  });

  it('is not removed while it runs', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    await expect(test.driver.forget(id, holding)).rejects.toThrow(/running container/);
  });

  it('is lost at once when it was removed manually', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    let changes = 0;
    test.driver.onChange(() => (changes += 1));
    const [container] = await lab.containersOf(test.fleetId);
    await lab.docker().call('DELETE', `/containers/${container?.Id}?force=1`);
    await test.until(({ replicas }) => replicas.length === 0);
    await vi.waitFor(() => expect(changes).toBeGreaterThan(0), 300_000);
  });
});

describe.concurrent('a gateway that replaces another', () => {
  it('adopts running containers by their labels, with the same key', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    const before = await test.untilReady(id);
    await test.driver.close();
    const next = await lab.open([localHost(lab.docker())], [containerEngine()], { fleetId: test.fleetId });
    const { replica, specHash, state } = await next.untilIs(id, 'running');
    expect(replica).toEqual(before);
    expect(state).toBe('running');
    expect(specHash).toBe(next.driver.specOf(containerEngine()).hash);
    expect(await statusOf(replica, '/v1/models')).toBe(200);
  });

  it('sees no containers of another installation', async () => {
    const test = await lab.open();
    await test.untilIs(await test.start(containerEngine()), 'running');
    const other = await lab.open();
    expect(await other.driver.observe()).toMatchObject({ replicas: [], orphans: [] });
  });

  it('reports orphaned containers of engines without a file, and leaves them running', async () => {
    const test = await lab.open();
    const gpuIds = ['GPU-1', 'GPU-2'];
    const id = await test.start(containerEngine(), { placement: { host: 'local', gpuIds } });
    await test.untilReady(id);
    const next = await lab.open([localHost(lab.docker())], [], { fleetId: test.fleetId });
    const { replicas, orphans } = await next.driver.observe();
    expect(replicas).toEqual([]);
    const [container] = await lab.containersOf(test.fleetId);
    const own = container?.Names[0]?.slice(1) ?? '';
    expect(own).toMatch(/^headgate-chat-/);
    const endedBy = `docker rm --force ${own}`;
    expect(orphans).toEqual([{ host: 'local', name: own, engineId: 'chat', gpuIds, memoryBytes: 0, endedBy }]);
    // One that has ended has none any more.
    await test.stop(id);
    await next.until(({ orphans: left }) => left.every((one) => one.gpuIds.length === 0));
  });

  it('removes containers that an earlier leader created and did not start', async () => {
    const test = await lab.open();
    let asked = 0;
    const fence = { epoch: 4n, holds: () => Promise.resolve((asked += 1) <= 3) };
    const id = await test.start(containerEngine(), { fence });
    await test.untilIs(id, 'exited');
    const next = await lab.open([localHost(lab.docker())], [containerEngine()], { fleetId: test.fleetId });
    // Somebody may be about to start it, until a newer leader looks.
    expect((await next.untilIs(id, 'creating')).exit).toBeNull();
    await next.driver.observe(5n);
    expect((await next.untilIs(id, 'exited')).exit).toMatchObject({
      stopRequested: true,
      startErrorCode: 'NOT_STARTED',
    });
    await next.driver.forget(id, { ...holding, epoch: 5n });
    expect(await lab.containersOf(test.fleetId)).toEqual([]);
  });
});

describe.concurrent('the output of a container', () => {
  const chatter = `
    let count = 0;
    const timer = setInterval(() => {
      count += 1;
      (count % 2 === 0 ? process.stdout : process.stderr).write('line ' + count + '\\n');
      if (count === 6) { clearInterval(timer); process.once('SIGTERM', () => { console.log('the end'); process.exit(0); }); setInterval(() => {}, 1000); }
    }, 5);`;

  it('is read from its end, both streams, and followed until the container ends', async () => {
    const engine = scriptEngine(chatter);
    const test = await lab.open([localHost(lab.docker())], [engine]);
    const id = await test.start(engine);
    await test.untilIs(id, 'running');
    const followed = collect(
      test.driver.logs(id, { tailLines: 1000, follow: true, signal: AbortSignal.timeout(600_000) }),
    );
    const tail = { tailLines: 3, follow: false, signal: AbortSignal.timeout(600_000) };
    const all = { ...tail, tailLines: 1000 };
    await vi.waitFor(async () => expect(await collect(test.driver.logs(id, all))).toHaveLength(6), 300_000);
    // Docker keeps the order within each of the two streams only.
    expect(await collect(test.driver.logs(id, tail))).toEqual((await collect(test.driver.logs(id, all))).slice(-3));
    await test.stop(id);
    const lines = await followed;
    expect(lines.filter((line) => /[135]$/.test(line))).toEqual(['line 1', 'line 3', 'line 5']);
    expect(lines.filter((line) => !/[135]$/.test(line))).toEqual(['line 2', 'line 4', 'line 6', 'the end']);
    await test.untilIs(id, 'exited');
    expect(await collect(test.driver.logs(id, { ...tail, tailLines: 1 }))).toEqual(['the end']);
    expect(await collect(test.driver.logs(newId(), tail))).toEqual([]);
  });

  it('ends without an error when its reader leaves', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    const leaving = new AbortController();
    const lines: string[] = [];
    for await (const line of test.driver.logs(id, { tailLines: 1000, follow: true, signal: leaving.signal })) {
      lines.push(line);
      if (line.includes('startup complete')) leaving.abort();
    }
    expect(lines.join('\n')).toContain('Starting to load model');
  });
});
