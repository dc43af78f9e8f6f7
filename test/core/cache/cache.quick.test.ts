import { describe, expect, it } from 'vitest';
import type { Clock } from '#base/clock.ts';
import { digestMembers } from '#base/json/canonical.ts';
import { createLog } from '#base/log.ts';
import {
  createMemoryStore,
  createResponseCache,
  formFields,
  makeFrames,
  mergeFrames,
  requestKey,
  type CacheStore,
} from '#core/cache/cache.ts';

const organizationId = 'o';

function turnable(): Clock & { turn(ms: number): void } {
  let nowMs = 0;
  return { now: () => nowMs, monotonicMs: () => nowMs, turn: (ms) => void (nowMs += ms) };
}

function get(store: CacheStore, key: string): string | null {
  const answer = store.get({ organizationId, key });
  if (answer instanceof Promise) throw new Error('memory answers at once');
  return answer?.toString() ?? null;
}

describe('the memory store of answers', () => {
  it('removes the least recently used answer to make room', () => {
    const store = createMemoryStore({ clock: turnable(), bytesMax: 3 * 1512, ageMaxMs: 1000 });
    const set = (key: string): void => void store.set({ organizationId, key }, Buffer.alloc(1000, key));
    for (const key of ['a', 'b', 'c']) set(key);
    expect(get(store, 'a')).not.toBeNull();
    set('d');
    expect(['a', 'b', 'c', 'd'].filter((key) => get(store, key) !== null)).toEqual(['a', 'c', 'd']);
    for (let round = 0; round < 10; round++) set('e');
    expect(['a', 'c', 'd', 'e'].filter((key) => get(store, key) !== null)).toEqual(['c', 'd', 'e']);
  });

  it('removes answers at their maximum age, and stores none larger than its share', () => {
    const clock = turnable();
    const store = createMemoryStore({ clock, bytesMax: 2000, ageMaxMs: 1000 });
    void store.set({ organizationId, key: 'large' }, Buffer.alloc(2000));
    expect(get(store, 'large')).toBeNull();
    void store.set({ organizationId, key: 'a' }, Buffer.from('x'));
    clock.turn(999);
    expect(get(store, 'a')).toBe('x');
    clock.turn(1);
    expect(get(store, 'a')).toBeNull();
  });
});

describe('the key of a request', () => {
  const key = (body: string, more: object = {}): string | null => {
    const meaning = digestMembers(Buffer.from(body).toString('latin1'), formFields);
    if (meaning === null) return null;
    return requestKey({
      organizationId,
      model: 'm',
      engineHash: 'e',
      endpoint: '/v1/chat/completions',
      meaning,
      ...more,
    });
  };

  it('differs by organization, model, engine, endpoint and content', () => {
    const keys = [
      key('{"a":1}'),
      key('{"a":1}', { organizationId: 'p' }),
      key('{"a":1}', { model: 'n' }),
      key('{"a":1}', { engineHash: 'f' }),
      key('{"a":1}', { endpoint: '/v1/completions' }),
      key('{"a":2}'),
      key('{"a":"1"}'),
      key('{"a":null}'),
      key('{"a":[1]}'),
      key('{"a":9007199254740993}'),
      key('{"a":9007199254740992}'),
      key('{"a":1e999}'),
      key('{"a":{"user":1}}'),
      key('{"a":{"user":2}}'),
      key('{"b":1}'),
      key('{"a":1,"__proto__":1}'),
    ];
    expect(new Set(keys).size).toBe(keys.length);
    expect(key('{"a":')).toBeNull();
  });

  it('is the same for equivalent bodies', () => {
    const same = [
      '{"a":1,"b":{"c":0.1,"d":[1,2]}}',
      ' { "b" : {"d":[1.0,2e0],"c":1e-1} , "a":1 } ',
      '{"a":1,"b":{"c":0.10,"d":[1,2]},"stream":true,"stream_options":{"include_usage":true}}',
      '{"\\u0061":1,"b":{"c":0.1,"d":[1,2]},"user":"u","metadata":{"x":"y"},"model":"other"}',
    ];
    expect(new Set(same.map((body) => key(body))).size).toBe(1);
  });
});

describe('a stream merged into one answer', () => {
  const frame = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
  const chunk = (delta: object, finish: string | null = null): string =>
    frame({ id: 'i', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] });

  it('is null when a choice has no end, or a frame is not a chunk', () => {
    expect(mergeFrames(chunk({ content: 'a' }), {}, 1)).toBeNull();
    expect(mergeFrames(chunk({ content: 'a' }, 'stop'), {}, 2)).toBeNull();
    expect(mergeFrames(`${chunk({}, 'stop')}data: {"error":{}}\n\n`, {}, 1)).toBeNull();
    expect(mergeFrames(`${chunk({}, 'stop')}data: {\n\n`, {}, 1)).toBeNull();
    expect(mergeFrames('', {}, 1)).toBeNull();
    // The client that waits for the answer waits for this result.
    const deep = `${'{"x":'.repeat(20_000)}1${'}'.repeat(20_000)}`;
    const piece = `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"x":${deep}},"finish_reason":"stop"}]}\n\n`;
    expect(mergeFrames(piece + piece, {}, 1)).toBeNull();
  });

  it('changes no prototype, with any member names', () => {
    const delta = '{"__proto__":{"polluted":1},"tool_calls":[{"index":0,"function":{"__proto__":{"polluted":1}}}]}';
    const text = `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":${delta},"logprobs":{"constructor":{"prototype":{"polluted":1}}},"finish_reason":"stop"}]}\n\n`;
    try {
      mergeFrames(text + text, {}, 1);
      expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    } finally {
      Reflect.deleteProperty(Object.prototype, 'polluted');
    }
  });

  it('keeps tool calls separate, and can be turned back into the same stream', () => {
    const call = (index: number, text: string, id?: string): object => ({
      index,
      ...(id === undefined ? {} : { id, type: 'function' }),
      function: { ...(id === undefined ? {} : { name: `f${index}` }), arguments: text },
    });
    const text =
      chunk({ role: 'assistant', content: '' }) +
      chunk({ tool_calls: [call(0, '{"a"', 'x')] }) +
      chunk({ tool_calls: [call(0, ':1}')] }) +
      chunk({ tool_calls: [call(1, '{}', 'y')] }) +
      chunk({}, 'tool_calls');
    const merged = mergeFrames(text, { total_tokens: 3 }, 1) ?? '';
    const { choices, usage } = JSON.parse(merged);
    expect(usage).toEqual({ total_tokens: 3 });
    expect(choices[0].message.tool_calls).toEqual([
      { id: 'x', type: 'function', function: { name: 'f0', arguments: '{"a":1}' } },
      { id: 'y', type: 'function', function: { name: 'f1', arguments: '{}' } },
    ]);
    const again = makeFrames(merged, { wantsUsage: false, wantsRunningUsage: false, costText: null });
    expect(mergeFrames(again, { total_tokens: 3 }, 1)).toBe(merged);
  });
});

describe('requests that wait for the same answer', () => {
  it('go one at a time after an end without an answer, and all at once after a failure', async () => {
    const store = createMemoryStore({ clock: turnable(), bytesMax: 10_000, ageMaxMs: 1000 });
    const cache = createResponseCache({ store, answerBytesMax: 1000, log: createLog('silent') });
    const wait = { signal: new AbortController().signal, onWait: () => undefined };
    const take = () => cache.take({ organizationId, key: 'k' }, wait);
    const first = await take();
    if (first.kind !== 'miss') throw new Error('nothing is kept yet');
    const others = [take(), take(), take()];
    first.entry.end('next');
    const second = await Promise.race(others);
    if (second.kind !== 'miss') throw new Error('nothing is kept yet');
    second.entry.end('each');
    const kinds = (await Promise.all(others)).map(({ kind }) => kind);
    expect(kinds).toEqual(['miss', 'miss', 'miss']);
    second.entry.end({ answer: '{}' });
    expect((await take()).kind).toBe('miss');
  });
});
