import { describe, expect, it } from 'vitest';
import { readTraceContext, traceLines } from '#base/metrics/trace-context.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const spanId = 'b7ad6b7169203331';
const good = `00-${traceId}-${spanId}-01`;
const read = (traceparent: string, tracestate?: string) =>
  readTraceContext({ traceparent, ...(tracestate !== undefined && { tracestate }) });

describe('a traceparent', () => {
  it.each([
    ['', 'empty'],
    [good.toUpperCase(), 'upper case'],
    [`00-${'0'.repeat(32)}-${spanId}-01`, 'no trace'],
    [`00-${traceId}-${'0'.repeat(16)}-01`, 'no parent'],
    [`ff-${traceId}-${spanId}-01`, 'a version that is forbidden'],
    [`${good}-more`, 'more than its version has'],
    [`${good}.`, 'a wrong separator'],
    [`${good}, ${good}`, 'two headers'],
    [`0-${traceId}-${spanId}-01`, 'a short version'],
    [`00-${traceId.slice(1)}-${spanId}-01`, 'a short trace'],
    [`00-${traceId}-${spanId}-1`, 'short flags'],
    [`00-${traceId}-${spanId}-01\r\nx-evil: 1`, 'a line break'],
    [`01-${traceId}-${spanId}-01-${'x'.repeat(600)}`, 'a long tail'],
  ])('is ignored: %j (%s)', (traceparent) => {
    expect(read(traceparent)).toBe(null);
  });

  it('is read, and written unchanged', () => {
    expect(read(good)).toEqual({ traceId, spanId, flags: 1, state: '' });
    const context = read(`00-${traceId}-${spanId}-00`);
    expect(context === null ? '' : traceLines(context)).toBe(`traceparent: 00-${traceId}-${spanId}-00\r\n`);
  });

  it('of a later version is read as far as version 00 is known', () => {
    expect(read(`cc-${traceId}-${spanId}-01`)).toEqual({ traceId, spanId, flags: 1, state: '' });
    expect(read(`cc-${traceId}-${spanId}-01-what-the-future-will-be-like`)).toEqual({
      traceId,
      spanId,
      flags: 1,
      state: '',
    });
  });
});

describe('a tracestate', () => {
  const stateOf = (tracestate: string): string | undefined => read(good, tracestate)?.state;

  it.each([
    ['no value'],
    ['Upper=1'],
    ['a=1,a=2'],
    ['a=b=c'],
    [`a=${'x'.repeat(257)}`],
    [Array.from({ length: 33 }, (_, index) => `k${index}=1`).join(',')],
    ['a=é'],
  ])('is dropped when invalid, while its traceparent is kept: %j', (tracestate) => {
    expect(read(good, tracestate)).toEqual({ traceId, spanId, flags: 1, state: '' });
  });

  it('is kept in order, without spaces around members and empty members', () => {
    expect(stateOf('rojo=00f067aa0ba902b7,congo=t61rcWkgMzE')).toBe('rojo=00f067aa0ba902b7,congo=t61rcWkgMzE');
    expect(stateOf('a=1 , ,\tfw529a3039@dt=a b c,')).toBe('a=1,fw529a3039@dt=a b c');
  });

  it('is ignored without a valid traceparent', () => {
    expect(read('00-nothing', 'a=1')).toBe(null);
  });
});
