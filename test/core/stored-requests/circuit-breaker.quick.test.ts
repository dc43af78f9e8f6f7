import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { BoundedAsking } from '#core/stored-requests/circuit-breaker.ts';
import { LeaseContact } from '#core/stored-requests/lease-contact.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('queries to a silent store', () => {
  const silent = (): Promise<string> => new Promise(() => undefined);

  it('fail after 5 s, and at once while four have no answer, except for one per second', async () => {
    const asking = new BoundedAsking(5000);
    const outcomes = Array.from({ length: 4 }, () => asking.ask(silent, () => undefined));
    const failed = Promise.allSettled(outcomes);
    await vi.advanceTimersByTimeAsync(5000);
    expect((await failed).map(({ status }) => status)).toEqual(Array.from({ length: 4 }, () => 'rejected'));
    const probe = asking.ask(
      () => Promise.resolve('there'),
      () => undefined,
    );
    await expect(asking.ask(silent, () => undefined)).rejects.toThrow('earlier queries');
    expect(await probe).toBe('there');
    await vi.advanceTimersByTimeAsync(1000);
    expect(
      await asking.ask(
        () => Promise.resolve('again'),
        () => undefined,
      ),
    ).toBe('again');
  });

  it('report an answer that comes late, and then run as before', async () => {
    const asking = new BoundedAsking(5000);
    const { promise, resolve } = Promise.withResolvers<string>();
    let late = 0;
    const asked = asking.ask(
      () => promise,
      () => void (late += 1),
    );
    const failed = Promise.allSettled([asked]);
    await vi.advanceTimersByTimeAsync(5000);
    expect(await failed).toMatchObject([{ reason: { message: 'no answer within 5000 ms' } }]);
    resolve('late');
    await vi.advanceTimersByTimeAsync(0);
    expect(late).toBe(1);
    for (let index = 0; index < 10; index += 1) {
      expect(
        await asking.ask(
          () => Promise.resolve(index),
          () => undefined,
        ),
      ).toBe(index);
    }
  });
});

describe('queries to a store that refuses connections', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  const nobody = (): void => undefined;
  const failing = async (): Promise<string> => {
    throw refused;
  };

  it('fail at once after four failures, except for one per second, until one is answered', async () => {
    const asking = new BoundedAsking(5000);
    for (let time = 0; time < 5; time += 1) await expect(asking.ask(failing, nobody)).rejects.toBe(refused);
    await expect(asking.ask(failing, nobody)).rejects.toThrow('earlier queries');
    await vi.advanceTimersByTimeAsync(1000);
    expect(await asking.ask(async () => 'there', nobody)).toBe('there');
    for (let time = 0; time < 10; time += 1) expect(await asking.ask(async () => 'again', nobody)).toBe('again');
  });

  it('keep running when the query itself is wrong', async () => {
    const asking = new BoundedAsking(5000);
    const wrong = async (): Promise<string> => {
      throw new TypeError('wrong');
    };
    for (let time = 0; time < 10; time += 1) await expect(asking.ask(wrong, nobody)).rejects.toThrow('wrong');
  });
});

describe('an expired lease', () => {
  const leaseMs = 6000;
  const open = (): { contact: LeaseContact; renew: (times: number) => Promise<void> } => {
    const contact = new LeaseContact({ ...systemClock, monotonicMs: () => Date.now() }, leaseMs);
    return {
      contact,
      async renew(times) {
        for (let index = 0; index < times; index += 1) {
          contact.answered(contact.begin());
          await vi.advanceTimersByTimeAsync(leaseMs / 3);
        }
      },
    };
  };

  it('can be taken over only after the database answered here for as long as a lease', async () => {
    const { contact, renew } = open();
    expect(contact.mayTakeOver).toBe(false);
    await renew(2);
    expect(contact.mayTakeOver).toBe(false);
    await renew(2);
    expect(contact.mayTakeOver).toBe(true);
  });

  it('cannot be taken over after an outage seen here, until a lease has passed again', async () => {
    const { contact, renew } = open();
    await renew(5);
    expect(contact.mayTakeOver).toBe(true);
    await vi.advanceTimersByTimeAsync(2 * leaseMs);
    expect(contact.mayTakeOver).toBe(false);
    await renew(2);
    expect(contact.mayTakeOver).toBe(false);
    await renew(2);
    expect(contact.mayTakeOver).toBe(true);
  });
});
