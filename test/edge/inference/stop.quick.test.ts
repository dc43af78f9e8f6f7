import { describe, expect, it } from 'vitest';
import { AppError } from '#base/errors.ts';
import { ClientGoneError } from '#edge/http/http.ts';
import { clientLeft, type Stop, StopControl } from '#edge/inference/answer/stop.ts';

const revoked: Stop = { kind: 'ended', error: new AppError('unauthorized') };

/** Work that reports when its signal aborts, and settles when the test lets it. */
function waitingWork() {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const signals: AbortSignal[] = [];
  const work = (signal: AbortSignal): Promise<string> => {
    signals.push(signal);
    return promise;
  };
  return { work, resolve, reject, isAborted: (): boolean => signals.some(({ aborted }) => aborted) };
}

describe('a stopped request', () => {
  it("throws the client's error, or ClientGoneError, and keeps the first reason", () => {
    const [left, ended] = [new StopControl(), new StopControl()];
    left.stop(clientLeft);
    left.stop(revoked);
    ended.stop(revoked);
    expect(() => left.throwIfStopped()).toThrow(ClientGoneError);
    expect(() => ended.throwIfStopped()).toThrow(revoked.error ?? '');
    expect([left.reason, ended.reason]).toEqual([clientLeft, revoked]);
  });

  it('begins no work', async () => {
    const stop = new StopControl();
    stop.stop(revoked);
    const { work, isAborted } = waitingWork();
    await expect(stop.untilStopped(work)).rejects.toBe(revoked.error);
    expect(isAborted()).toBe(false);
  });

  it('aborts the work that it waits for, and keeps a result that arrives at that moment', async () => {
    const stop = new StopControl();
    const { work, resolve, isAborted } = waitingWork();
    const waited = stop.untilStopped(work);
    stop.stop(clientLeft);
    expect(isAborted()).toBe(true);
    resolve('a lease');
    await expect(waited).resolves.toBe('a lease');
  });

  it.each([['ends'], ['throws']])('does not abort finished work that %s', async (how) => {
    const stop = new StopControl();
    const { work, resolve, reject, isAborted } = waitingWork();
    const waited = stop.untilStopped(work);
    if (how === 'ends') resolve('done');
    else reject(new Error('the database is away'));
    await Promise.allSettled([waited]);
    stop.stop(revoked);
    expect(isAborted()).toBe(false);
  });

  it('ignores a client that leaves once it outlives the client, but not other reasons', () => {
    const stop = new StopControl();
    stop.outliveClient();
    stop.clientLeft();
    expect(stop.reason).toBeNull();
    stop.stop(revoked);
    expect(stop.reason).toBe(revoked);
  });
});
