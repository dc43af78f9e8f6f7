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
  it('starts in order, one part after the other, and stops in reverse order', async () => {
    const { said, log, part } = useParts();
    const { stop } = await startParts([part('a'), part('b'), part('c')], log);
    expect(said).toEqual(['+a', '+b', '+c']);
    await stop();
    expect(said).toEqual(['+a', '+b', '+c', '-c', '-b', '-a']);
  });

  it('may have parts that only start and parts that only stop', async () => {
    const { said, log } = useParts();
    const onlyStop: Part = { name: 'a', stop: () => void said.push('-a') };
    const onlyStart: Part = { name: 'b', start: () => void said.push('+b') };
    const { stop } = await startParts([onlyStop, onlyStart, { name: 'c' }], log);
    await stop();
    expect(said).toEqual(['+b', '-a']);
  });

  it('stops the part whose start failed and those before it, starts no more, and throws the error', async () => {
    const { said, lines, log, part, failing } = useParts();
    const parts = [part('a'), part('b', { start: failing('no port') }), part('c')];
    await expect(startParts(parts, log)).rejects.toThrow('no port');
    expect(said).toEqual(['+a', '-b', '-a']);
    expect(lines).toEqual([]);
  });

  it('throws the error of the failed start, not that of a failed stop', async () => {
    const { said, lines, log, part, failing } = useParts();
    const parts = [part('a'), part('b', { stop: failing('stuck') }), part('c', { start: failing('no port') })];
    await expect(startParts(parts, log)).rejects.toThrow('no port');
    expect(said).toEqual(['+a', '+b', '-c', '-a']);
    expect(lines).toMatchObject([{ part: 'b', err: { message: 'stuck' } }]);
  });

  it("stops the other parts when a stop fails, rejected or thrown, and logs it with the part's name", async () => {
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

  it('stops once when stop is called twice', async () => {
    const { said, log, part } = useParts();
    const { stop } = await startParts([part('a')], log);
    await Promise.all([stop(), stop()]);
    await stop();
    expect(said).toEqual(['+a', '-a']);
  });

  it('passes a forced stop to every part at once, also while the first parts stop', async () => {
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

  it('stops without force when no signal is given', async () => {
    const { said, log, part } = useParts();
    const { stop } = await startParts([part('a', { stop: (force) => void said.push(`-a ${force.aborted}`) })], log);
    await stop();
    expect(said).toEqual(['+a', '-a false']);
  });
});
