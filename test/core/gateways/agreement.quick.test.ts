import { describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import {
  createAgreement,
  differenceText,
  findDifferences,
  isContested,
  type LiveGateway,
  type Published,
} from '#core/gateways/gateways.ts';

const gateway = (id: string, published: Published | null, version = '1.0.0'): LiveGateway => {
  return { id: id.repeat(8), host: `host-${id}`, version, published };
};

const labels = { a: 'host-a (aaaaaaaa)', b: 'host-b (bbbbbbbb)', c: 'host-c (cccccccc)' };

describe('findDifferences', () => {
  it('returns nothing for gateways that publish the same', () => {
    const same = { price: { chat: '1' }, setting: { X: '2' } };
    expect(findDifferences([])).toEqual([]);
    expect(findDifferences([gateway('a', same), gateway('b', same)])).toEqual([]);
  });

  it('returns each value with its gateways, and the gateways without a value', () => {
    const live = [
      gateway('a', { price: { chat: '1', more: '5' }, setting: { X: '2' } }),
      gateway('b', { price: { chat: '2', more: '5' }, setting: { X: '2' } }),
      gateway('c', { price: { more: '5' }, setting: { X: '2' } }),
    ];
    const [difference, ...others] = findDifferences(live);
    expect(others).toEqual([]);
    expect(difference).toEqual({
      kind: 'price',
      name: 'chat',
      values: [
        { value: '1', gateways: [labels.a] },
        { value: '2', gateways: [labels.b] },
        { value: null, gateways: [labels.c] },
      ],
    });
    expect(difference === undefined ? '' : differenceText(difference)).toBe(
      'price chat: 1 on host-a (aaaaaaaa); 2 on host-b (bbbbbbbb); missing on host-c (cccccccc)',
    );
  });

  it('compares a gateway that publishes nothing by its version only', () => {
    const live = [gateway('a', { price: { chat: '1' } }, '2.0.0'), gateway('b', null, '1.0.0')];
    expect(findDifferences(live).map(differenceText)).toEqual([
      'version: 2.0.0 on host-a (aaaaaaaa); 1.0.0 on host-b (bbbbbbbb)',
    ]);
  });
});

describe('isContested', () => {
  const own = { price: { chat: '1' } };
  const isChatContested = (...others: readonly LiveGateway[]): boolean => isContested(others, own, 'price', 'chat');

  it('returns true when another gateway has, or may have, another value', () => {
    expect(isChatContested(gateway('a', own), gateway('b', { price: { chat: '2' } }))).toBe(true);
    expect(isChatContested(gateway('b', null))).toBe(true);
    // More names than are published one by one.
    expect(isChatContested(gateway('b', { price: { '(all)': 'abc' } }))).toBe(true);
  });

  it('returns false when the other gateways have the same value or lack the name', () => {
    expect(isChatContested()).toBe(false);
    expect(isChatContested(gateway('a', own), gateway('b', {}), gateway('c', { price: { other: '2' } }))).toBe(false);
  });
});

describe('the agreement check of gateways', () => {
  function open(rolloutMs: number) {
    const lines: string[] = [];
    const log = createLog('info', { write: (line: string) => void lines.push(line) });
    const state = { nowMs: 0, live: [] as LiveGateway[], own: { setting: { X: '1' } } as Published, written: 0 };
    const gateways = {
      id: 'a'.repeat(8),
      published: () => state.own,
      publish: () => Promise.resolve(void (state.written += 1)),
      readLive: () => Promise.resolve(state.live),
    };
    const agreement = createAgreement({ gateways, clock: { monotonicMs: () => state.nowMs }, log, rolloutMs });
    const logged = (): string[] => lines.splice(0).map((line) => String(JSON.parse(line).msg));
    return { agreement, state, logged };
  }

  it('logs a difference when it appears, once more when it is overdue, and its end', async () => {
    const { agreement, state, logged } = open(60_000);
    state.live = [gateway('a', state.own), gateway('b', { setting: { X: '2' } })];
    await agreement.compare();
    expect(logged()).toEqual(['the gateways of this database have different configurations, as during a rollout']);
    expect(agreement.differences()).toMatchObject([{ name: 'X', forMs: 0, isOverdue: false }]);
    state.nowMs = 60_000;
    await agreement.compare();
    await agreement.compare();
    expect(logged()).toEqual([expect.stringMatching(/for longer than HEADGATE_ROLLOUT_SECONDS/)]);
    expect(agreement.differences()).toMatchObject([{ name: 'X', forMs: 60_000, isOverdue: true }]);
    state.live = [gateway('a', state.own), gateway('b', state.own)];
    await agreement.compare();
    expect(logged()).toEqual(['the gateways of this database have the same configuration again']);
    expect(agreement.differences()).toEqual([]);
  });

  it('publishes again when its own values have changed', async () => {
    const { agreement, state } = open(60_000);
    state.live = [gateway('a', state.own)];
    await agreement.compare();
    expect(state.written).toBe(0);
    state.own = { setting: { X: '7' } };
    await agreement.compare();
    expect(state.written).toBe(1);
  });
});
