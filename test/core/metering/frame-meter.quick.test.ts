import { createParser, type EventSourceMessage } from 'eventsource-parser';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMessagesMeter, createResponsesMeter, createStreamMeter } from '#core/metering/metering.ts';

/** Server-sent events of engines, held against a parser that others wrote. All texts are latin1, as meters read them. */

const silent = {
  wantsUsage: false,
  wantsRunningUsage: false,
  rename: null,
  mayCountOnFinish: false,
  choices: 1,
  prompts: 1,
};

function parse(text: string): EventSourceMessage[] {
  const events: EventSourceMessage[] = [];
  const parser = createParser({ onEvent: (event) => events.push(event) });
  // A carriage return at the end of a text may be half of a line end, which it waits for.
  parser.feed(text.endsWith('\r') ? `${text}\n` : text);
  return events;
}

/** Events as clients understand them: what has no data is nothing to read, and blanks of JSON say nothing. */
const meant = (events: readonly EventSourceMessage[]): unknown[] =>
  events
    .filter(({ data }) => data.trim() !== '')
    .map(({ data, event, id }) => ({ data: JSON.parse(data) as unknown, event, id }));

const content = fc.string({ unit: fc.constantFrom('a', 'é', '🦙', ':', ' ', '\n', '\r', '"', 'data: '), maxLength: 6 });
const chunk = content.map((text) => ({ choices: [{ index: 0, delta: { content: text }, finish_reason: null }] }));
/** Some blank of JSON stands between its tokens; each may be the end of a line. */
const json = fc
  .tuple(chunk, fc.constantFrom(undefined, 1))
  .map(([value, indent]) => JSON.stringify(value, null, indent));
const name = fc.constantFrom('data:', 'data: ', 'data:  ', 'data:\t', 'data: \t ');
const dataLines = fc.tuple(json, name).map(([text, field]) => text.split('\n').map((line) => `${field}${line}`));
const other = fc.constantFrom(
  ': a comment',
  ':',
  'event: chunk',
  'event:last',
  'event',
  'id: 7',
  'id:8 é',
  'retry: 10',
  'retry: soon',
  'unknown: field',
  'no colon',
  'datum: x',
  ' data: not in the first column',
);
const emptyData = fc.constantFrom(
  ['data'],
  ['data:'],
  ['data: '],
  ['data:  \t'],
  [': only a comment'],
  ['event: ping'],
  ['event: ping', 'data:'],
  ['data', 'data: {"choices":[]}', 'data:'],
);
const event = fc
  .tuple(fc.array(other, { maxLength: 3 }), dataLines, fc.array(other, { maxLength: 2 }))
  .map((parts) => parts.flat());
const block = fc.oneof({ weight: 4, arbitrary: event }, { weight: 1, arbitrary: emptyData });
const lineEnd = fc.constantFrom('\n', '\r\n', '\r');

/** The lines of a stream, each with an end of its own. */
const stream = fc
  .tuple(fc.array(block, { maxLength: 5 }), fc.infiniteStream(lineEnd), fc.boolean(), fc.boolean())
  .map(([blocks, ends, isUniform, hasMark]) => {
    const uniform = ends.next().value;
    let text = hasMark ? '\uFEFF' : '';
    for (const line of blocks.flatMap((lines) => [...lines, ''])) {
      const end = isUniform ? uniform : ends.next().value;
      // A line feed behind a carriage return would be no empty line, but half of an end.
      text += line === '' && end === '\n' && text.endsWith('\r') ? '\r' : line + end;
    }
    return Buffer.from(text, 'utf8').toString('latin1');
  });

function feedCut(text: string, cuts: readonly number[]): { out: string; failure: unknown; done: boolean } {
  const meter = createStreamMeter(silent);
  const places = [...new Set(cuts.map((cut) => cut % (text.length + 1)))].toSorted((a, b) => a - b);
  let from = 0;
  let out = '';
  for (const place of [...places, text.length]) {
    out += meter.feed(text.slice(from, place));
    from = place;
  }
  return { out, failure: meter.failure, done: meter.done };
}

describe('server-sent events in any form', () => {
  it('reach clients with the meaning that the standard defines, in reads of any length', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat(), { maxLength: 12 }), (text, cuts) => {
        const { out, failure } = feedCut(text, cuts);
        expect(failure, JSON.stringify(text)).toBeNull();
        const wanted = meant(parse(text));
        expect(meant(parse(out)), JSON.stringify({ text, out })).toEqual(wanted);
        // No empty line that follows no data: some clients take each for an event.
        const frames = out.split(/\r?\n\r?\n/);
        expect(frames.filter((frame) => /^data/m.test(frame))).toHaveLength(wanted.length);
        expect(
          frames.slice(0, -1).filter((frame) => !/^data: ?./m.test(frame)),
          JSON.stringify(out),
        ).toEqual([]);
      }),
      { numRuns: 3000 },
    );
  });

  it('keep their bytes in forms with one data line and line ends of \\n or \\r\\n', () => {
    const payload = '{"choices":[{"index":0,"delta":{"content":"x"}}]}';
    for (const end of ['\n', '\r\n']) {
      for (const lines of [
        [`data: ${payload}`],
        [`data:${payload}`],
        ['event: chunk', `data: ${payload}`],
        [': why', 'id: 1', 'event: chunk', `data: ${payload}`, 'retry: 5', ': more'],
      ]) {
        const text = [...lines, '', ''].join(end);
        expect(feedCut(text + text, []).out).toBe(text + text);
        expect(feedCut(text + text, [text.length - 1]).out).toBe(text + text);
      }
    }
  });

  it('are cut off when the last one has no empty line, except for an end mark', () => {
    const frame = 'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\r\r';
    const meter = createStreamMeter(silent);
    meter.feed(`${frame}data: {"choices":[]}\r`);
    expect(meter).toMatchObject({ lacksEmptyLine: false, done: false });
    for (const ending of ['data: [DONE]', ': the end\ndata: [DONE]', 'data:[DONE]\r']) {
      const ended = createStreamMeter(silent);
      ended.feed(frame);
      ended.feed(ending);
      expect(ended.lacksEmptyLine, ending).toBe(true);
      ended.feed('\n\n');
      expect(ended.done).toBe(true);
    }
  });

  it('are read the same way on /v1/responses and /v1/messages', () => {
    const delta = { type: 'response.output_text.delta', delta: 'Hi' };
    const [half, rest] = ['{"type":"response.output_text.delta",', '"delta":"Hi"}'];
    const responses = createResponsesMeter(silent);
    const out = responses.feed(`\u00ef\u00bb\u00bfevent: ${delta.type}\rdata: ${half}\rdata: ${rest}\r\r`);
    expect(meant(parse(out))).toEqual([{ data: delta, event: delta.type, id: undefined }]);
    expect(responses.outputTokens).toBe(1);
    const block = { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } };
    const messages = createMessagesMeter(silent);
    const text = `: x\r\nevent: ${block.type}\r\ndata: ${JSON.stringify(block)}\r\n\r\n`;
    expect(messages.feed(text)).toBe(text);
    expect(messages.outputTokens).toBe(1);
  });

  it('are processed in time linear in their bytes', { timeout: 20_000 }, () => {
    const long = `data: {"choices":[{"index":0,"delta":{"content":"${'x'.repeat(200_000)}"}}]}\r\n`;
    const text = `${': \r\n'.repeat(50_000)}${long}\r\n`;
    const { out, failure } = feedCut(
      text,
      Array.from({ length: 400 }, (_, index) => index * 1000),
    );
    expect([out.length, failure]).toEqual([text.length, null]);
  });
});
