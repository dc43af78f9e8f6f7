import { describe, expect, it } from 'vitest';
import { createMessagesMeter, createResponsesMeter } from '#core/metering/metering.ts';
import { knownUsage } from './known-usage.ts';

/** Openings of a stream: the part that is held back at first has an end, whatever the engine sends. */

const options = {
  wantsUsage: true,
  wantsRunningUsage: false,
  wantsCost: false,
  rename: null,
  choices: 1,
  prompts: 1,
  mayCountOnFinish: false,
};
const frame = (event: { readonly type: string }): string => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
const times = (count: number, run: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => run(index)).join('');

describe('a response stream', () => {
  const opening = (type: string): string => frame({ response: { status: 'in_progress' }, type } as { type: string });
  const begin = opening('response.created') + opening('response.in_progress');

  it('holds back its opening event once', () => {
    const meter = createResponsesMeter(options);
    expect(meter.feed(begin)).toBe('');
    expect(meter.isOpening).toBe(true);
    const again = opening('response.in_progress');
    expect(meter.feed(again)).toBe(begin + again);
    expect(meter.isOpening).toBe(false);
    expect(meter.feed(times(1000, () => again))).toBe(times(1000, () => again));
    expect(meter.failure).toBeNull();
  });

  it('holds back no second opening event after a long one', () => {
    const long = frame({ response: { instructions: 'x'.repeat(700_000) }, type: 'response.created' } as {
      type: string;
    });
    const next = frame({ response: { instructions: 'x'.repeat(700_000) }, type: 'response.in_progress' } as {
      type: string;
    });
    const meter = createResponsesMeter(options);
    expect(meter.feed(long)).toBe('');
    expect(meter.feed(next)).toBe(long + next);
    expect(meter.isOpening).toBe(false);
    expect(meter.feed(opening('response.queued'))).toBe(opening('response.queued'));
    expect(meter.isOpening).toBe(false);
  });
});

describe('a message stream', () => {
  const usage = { input_tokens: 4, output_tokens: 0 };
  const start = frame({ type: 'message_start', message: { usage } } as { type: string });
  const delta = frame({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'x' } } as {
    type: string;
  });
  const count = frame({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } } as {
    type: string;
  });
  const stop = frame({ type: 'message_stop' });

  it('holds back its opening event once', () => {
    const meter = createMessagesMeter(options);
    expect(meter.feed(start)).toBe('');
    expect(meter.feed(start)).toBe(start + start);
    expect(meter.isOpening).toBe(false);
  });

  it('does not hold back a long opening event', () => {
    const long = frame({ type: 'message_start', message: { usage, content: 'x'.repeat(1_100_000) } } as {
      type: string;
    });
    const meter = createMessagesMeter(options);
    expect(meter.feed(long)).toBe(long);
    expect(meter.isOpening).toBe(false);
  });

  it('fails as garbage when text comes after its count', () => {
    const meter = createMessagesMeter(options);
    expect(meter.feed(start + delta + count)).toBe(start + delta);
    expect(meter.feed(delta)).toBe('');
    expect(meter.failure).toBe('garbage');
    expect(knownUsage(meter)).toMatchObject({ source: 'engine', usage: { outputTokens: 1 } });
  });

  it('holds back a bounded number of frames between its count and its end', () => {
    const meter = createMessagesMeter(options);
    const ping = frame({ type: 'ping' });
    meter.feed(start + delta + count + ping);
    expect(meter.failure).toBeNull();
    meter.feed(stop);
    expect(meter.lastFrames(null)).toBe(count + ping + stop);
    const other = createMessagesMeter(options);
    other.feed(start + delta + count);
    for (let read = 0; read < 300 && other.failure === null; read += 1) other.feed(times(100, () => ping));
    expect(other.failure).toBe('garbage');
  });
});
