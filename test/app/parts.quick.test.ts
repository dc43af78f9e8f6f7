import { describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { type Part, startParts } from '#app/lifecycle.ts';

/** Parts that say what is done with them. */
function useParts() {
  const said: string[] = [];
  const lines: { part?: string; err?: { message: string } }[] = [];
  const log = createLog('debug', { write: (line: string) => void lines.push(JSON.parse(line) as object) });
  const part = (name: string, own: Partial<Part> = {}): Part => ({
    name,
    async start() {
      await new Promise((resolve) => setImmediate(resolve));
      said.push(`+${name}`);
    },
    async stop() {
      await new Promise((resolve) => setImmediate(resolve));
      said.push(`-${name}`);
    },
    ...own,
  });
  const failing = (what: string) => () => Promise.reject(new Error(what));
  return { said, lines, log, part, failing };
}

describe('a list of parts', () => {
  it('is started in its order, each part after the one before, and stopped in the reverse order', async () => {
    const { said, log, part } = useParts();
    const { stop } = await startParts([part('a'), part('b'), part('c')], log);
    expect(said).toEqual(['+a', '+b', '+c']);
    await stop();
    expect(said).toEqual(['+a', '+b', '+c', '-c', '-b', '-a']);
  });

  it('has parts that only start and parts that only stop', async () => {
    const { said, log } = useParts();
    const onlyStop: Part = { name: 'a', stop: () => void said.push('-a') };
    const onlyStart: Part = { name: 'b', start: () => void said.push('+b') };
    const { stop } = await startParts([onlyStop, onlyStart, { name: 'c' }], log);
    await stop();
    expect(said).toEqual(['+b', '-a']);
  });

  it('stops the part whose start fails and those before it, starts no more, and says why', async () => {
    const { said, lines, log, part, failing } = useParts();
    const parts = [part('a'), part('b', { start: failing('no port') }), part('c')];
    await expect(startParts(parts, log)).rejects.toThrow('no port');
    expect(said).toEqual(['+a', '-b', '-a']);
    expect(lines).toEqual([]);
  });

  it('says why a start failed, and not what failed while its parts were stopped', async () => {
    const { said, lines, log, part, failing } = useParts();
    const parts = [part('a'), part('b', { stop: failing('stuck') }), part('c', { start: failing('no port') })];
    await expect(startParts(parts, log)).rejects.toThrow('no port');
    expect(said).toEqual(['+a', '+b', '-c', '-a']);
    expect(lines).toMatchObject([{ part: 'b', err: { message: 'stuck' } }]);
  });

  it('stops the others when a stop fails, by a rejection or at once, and logs it by the name of the part', async () => {
    const { said, lines, log, part, failing } = useParts();
    const atOnce = (): never => {
      throw new Error('at once');
    };
    const { stop } = await startParts(
      [part('a'), part('b', { stop: atOnce }), part('c'), part('d', { stop: failing('later') }), part('e')],
      log,
    );
    const error = await stop().catch((thrown: unknown) => thrown);
    expect(said.filter((text) => text.startsWith('-'))).toEqual(['-e', '-c', '-a']);
    expect(lines).toMatchObject([
      { part: 'd', err: { message: 'later' } },
      { part: 'b', err: { message: 'at once' } },
    ]);
    expect(error).toBeInstanceOf(AggregateError);
    expect((error as AggregateError).errors).toEqual([new Error('later'), new Error('at once')]);
  });

  it('is stopped once, also when that is asked for twice', async () => {
    const { said, log, part } = useParts();
    const { stop } = await startParts([part('a')], log);
    await Promise.all([stop(), stop()]);
    await stop();
    expect(said).toEqual(['+a', '-a']);
  });

  it('hands every part the wish to stop at once, also when it comes while the first are stopped', async () => {
    const { said, log, part } = useParts();
    const force = new AbortController();
    const waits = part('b', {
      stop: (forceStop) =>
        new Promise<void>((resolve) => {
          forceStop.addEventListener('abort', () => resolve(), { once: true });
        }),
    });
    const sees = part('a', { stop: (forceStop) => void said.push(`-a ${forceStop.aborted}`) });
    const { stop } = await startParts([sees, waits], log);
    const stopping = stop(force.signal);
    force.abort();
    await stopping;
    expect(said).toEqual(['+a', '+b', '-a true']);
  });

  it('is stopped in peace when nobody may force it', async () => {
    const { said, log, part } = useParts();
    const { stop } = await startParts([part('a', { stop: (force) => void said.push(`-a ${force.aborted}`) })], log);
    await stop();
    expect(said).toEqual(['+a', '-a false']);
  });
});
