import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createPiecesMeter, createStreamMeter, meterJson, type StreamMeter } from '#core/metering/metering.ts';
import { knownUsage } from './known-usage.ts';

interface Recording {
  readonly request: { readonly path: string; readonly body: Record<string, unknown> | string };
  readonly headers: [string, string][];
  readonly reads: [number, string][];
}

const folder = new URL('../../engines/standin/recordings/', import.meta.url);

/** Streams of a real vLLM with forced usage: whole answers as bytes. */
const streams = readdirSync(new URL('forced-usage/', folder))
  .filter((name) => /^(?:chat|completion)-stream/.test(name))
  .map((name) => {
    const recording = JSON.parse(readFileSync(new URL(`forced-usage/${name}`, folder), 'utf8')) as Recording;
    const text = Buffer.from(recording.reads.map(([, read]) => read).join(''), 'utf8').toString('latin1');
    return { name, text, body: recording.request.body as Record<string, unknown> };
  })
  .filter(({ text }) => text.includes('data: [DONE]'));

const silent = {
  wantsUsage: false,
  wantsRunningUsage: false,
  rename: null,
  mayCountOnFinish: false,
  choices: 1,
  prompts: 1,
};

function shapeOf(body: Record<string, unknown>): { choices: number; prompts: number } {
  const choices = typeof body['n'] === 'number' ? body['n'] : 1;
  return { choices, prompts: Array.isArray(body['prompt']) ? body['prompt'].length : 1 };
}

function feedCut(meter: StreamMeter, text: string, cuts: readonly number[]): string {
  const places = [...new Set(cuts.map((cut) => cut % text.length))].toSorted((a, b) => a - b);
  let from = 0;
  let out = '';
  for (const place of [...places, text.length]) {
    out += meter.feed(text.slice(from, place));
    from = place;
  }
  return out;
}

const objects = (text: string): Record<string, unknown>[] =>
  text
    .split(/\r?\n\r?\n/)
    .filter((frame) => frame.startsWith('data: {'))
    .map((frame) => JSON.parse(Buffer.from(frame.slice(6), 'latin1').toString('utf8')) as Record<string, unknown>);

function without(object: Record<string, unknown>, key: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));
}

function finalUsage(text: string): unknown {
  return objects(text).find((frame) => Array.isArray(frame['choices']) && frame['choices'].length === 0)?.['usage'];
}

describe('the stream meter', () => {
  it('has recordings', () => {
    expect(streams.length).toBeGreaterThan(8);
  });

  it.each(streams)('removes usage that was not asked for from $name, and keeps every other byte', ({ text, body }) => {
    const meter = createStreamMeter({ ...silent, ...shapeOf(body) });
    const out = meter.feed(text);
    const expected = objects(text)
      .filter((frame) => (frame['choices'] as unknown[]).length > 0)
      .map((frame) => without(frame, 'usage'));
    expect(objects(out)).toEqual(expected);
    expect(out).not.toContain('"usage"');
    const cutByRegex = text
      .split('\n\n')
      .filter((frame) => frame !== '' && !frame.includes('[DONE]') && !frame.includes('"choices":[]'))
      .map((frame) => `${frame.replace(/,"usage":\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}/, '')}\n\n`);
    expect(out).toBe(cutByRegex.join(''));
    expect(meter.done).toBe(true);
    expect(meter.failure).toBeNull();
  });

  it.each(streams)('gives the same result for $name in reads of any length', ({ text, body }) => {
    const options = { ...silent, ...shapeOf(body), wantsUsage: true };
    const whole = createStreamMeter(options);
    const expected = whole.feed(text) + whole.lastFrames(null);
    fc.assert(
      fc.property(fc.array(fc.nat(text.length - 1), { maxLength: 30 }), (cuts) => {
        const meter = createStreamMeter(options);
        expect(feedCut(meter, text, cuts) + meter.lastFrames(null)).toBe(expected);
        expect(knownUsage(meter)).toEqual(knownUsage(whole));
        expect(meter.done).toBe(true);
        expect(meter.finished).toBe(true);
      }),
      { numRuns: 100 },
    );
  });

  it.each(streams)(
    'counts what the engine counted in $name, and the same from an unfinished stream',
    ({ text, body }) => {
      const meter = createStreamMeter({ ...silent, ...shapeOf(body), wantsUsage: true });
      meter.feed(text);
      const usage = finalUsage(text) as { prompt_tokens: number; completion_tokens: number };
      expect(knownUsage(meter)).toMatchObject({
        source: 'engine',
        usage: { inputTokens: usage.prompt_tokens, outputTokens: usage.completion_tokens },
      });
      const cut = createStreamMeter({ ...silent, ...shapeOf(body) });
      cut.feed(text.slice(0, text.indexOf('"choices":[]') - 20));
      expect(knownUsage(cut)).toMatchObject({
        source: 'last_seen',
        usage: { inputTokens: usage.prompt_tokens, outputTokens: usage.completion_tokens },
      });
      expect(cut.outputTokens).toBe(usage.completion_tokens);
    },
  );

  it('adds the cost to the final usage only, and leaves the rest of the stream as asked for', () => {
    const [stream] = streams;
    if (stream === undefined) throw new Error('no recording');
    const meter = createStreamMeter({
      ...silent,
      ...shapeOf(stream.body),
      wantsUsage: true,
    });
    const begin = meter.feed(stream.text);
    expect(begin).not.toContain('"usage"');
    const out = begin + meter.lastFrames({ ...knownUsage(meter), costText: '0.00042' });
    expect(finalUsage(out)).toEqual({ ...(finalUsage(stream.text) as object), cost: 0.00042 });
    expect(out.split('"usage"')).toHaveLength(2);
    expect(out.split('"cost":0.00042')).toHaveLength(2);
  });

  it("replaces the engine's model name with the public name", () => {
    const [stream] = streams;
    if (stream === undefined) throw new Error('no recording');
    const meter = createStreamMeter({ ...silent, ...shapeOf(stream.body), rename: 'öffentlich/name' });
    for (const frame of objects(meter.feed(stream.text))) expect(frame['model']).toBe('öffentlich/name');
  });

  it('ignores usage in the text and in nested objects, and reads escaped member names', () => {
    const content = ',"usage":{"completion_tokens":9}';
    const frame = {
      choices: [
        { index: 0, delta: { content, extra: { a: 1, usage: { completion_tokens: 7 } } }, finish_reason: null },
      ],
      usage: { prompt_tokens: 3, completion_tokens: 2 },
    };
    const nested = { choices: [{ index: 0, delta: { extra: { a: 1, usage: { completion_tokens: 7 } } } }] };
    const escaped = '{"choices":[{"index":0,"delta":{}}],"us\\u0061ge":{"prompt_tokens":3,"completion_tokens":4}}';
    const spaced = '{"choices": [{"index": 0, "delta": {}}], "usage" : {"prompt_tokens": 3, "completion_tokens": 5} }';
    const meter = createStreamMeter(silent);
    const out = meter.feed(
      `data: ${JSON.stringify(frame)}\n\ndata: ${JSON.stringify(nested)}\n\ndata: ${escaped}\r\n\r\ndata:${spaced}\n\n`,
    );
    const rest = without(frame, 'usage');
    expect(objects(out).slice(0, 2)).toEqual([rest, nested]);
    expect(out).not.toMatch(/completion_tokens":(?: ?)[245]/);
    expect(meter.outputTokens).toBe(5);
  });

  it('passes no part of an error frame, of garbage or of an abort', () => {
    const bad = [
      ['error_frame', '{"error": {"message": "EngineCore died", "code": 500}}'],
      ['error_frame', '{"object":"error","error":{"message":"x"}}'],
      ['error_frame', '{"choices":[],"error":{"message":"EngineCore died at /srv/model.py"}}'],
      ['error_frame', '{"choices": [{"index":0,"delta":{}}], "error" : "EngineCore died"}'],
      ['garbage', 'Traceback (most recent call last):'],
      ['garbage', '{"choices":[{"index":0,"delta":{"content":"x"'],
      ['garbage', '{"id":"x"'],
      [
        'engine_abort',
        '{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"abort"}],"usage":{"prompt_tokens":1}}',
      ],
    ] as const;
    for (const [failure, payload] of bad) {
      const meter = createStreamMeter(silent);
      expect(meter.feed(`data: ${payload}\n\ndata: [DONE]\n\n`), payload).toBe('');
      expect(meter.failure).toBe(failure);
      expect(meter.done).toBe(false);
    }
  });

  it('passes no bytes outside data lines, and no second value on another data line', () => {
    const chunk = '{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}';
    const count = '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}';
    for (const text of [
      `Traceback: /srv/model.py\n\ndata: ${chunk}\n\n`,
      `Traceback: /srv/model.py\ndata: ${chunk}\n\n`,
      `eventually\ndata: ${chunk}\n\n`,
    ]) {
      const meter = createStreamMeter(silent);
      expect(meter.feed(text), text).toBe(`data: ${chunk}\n\n`);
      expect(meter.failure, text).toBeNull();
    }
    const binary = createStreamMeter(silent);
    expect(binary.feed(`\x1f\x8b\x08\n\n\xff`)).toBe('');
    for (const text of [
      `data: ${chunk}\ndata: ${count}\n\n`,
      `data: ${chunk}\r\ndata: [DONE]\r\n\r\n`,
      `data: ${chunk.replace('"x"', '"x\ndata: "')}\n\n`,
    ]) {
      const meter = createStreamMeter(silent);
      expect(meter.feed(text), text).toBe('');
      expect(meter.failure, text).toBe('garbage');
    }
  });

  it('treats the finish reason "error" as a failure, and an empty finish reason as none', () => {
    const failed = createStreamMeter(silent);
    const why = '{"choices":[{"index":0,"delta":{},"finish_reason":"error"}],"error":{"message":"at /srv/model.py"}}';
    expect(failed.feed(`data: ${why}\n\n`)).toBe('');
    expect(failed.failure).toBe('engine_abort');
    const meter = createStreamMeter(silent);
    meter.feed('data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":""}]}\n\n');
    expect(meter.finished).toBe(false);
    meter.feed('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n');
    expect(meter.finished).toBe(true);
  });

  it.each(['abort', 'error', 'stop'])('reads the finish reason %s of a choice only, not of nested values', (reason) => {
    const nested = { arguments: { finish_reason: reason }, choices: [{ finish_reason: reason }] };
    const chunk = { choices: [{ index: 0, delta: { parsed: nested }, finish_reason: null }], nested };
    const meter = createStreamMeter(silent);
    expect(meter.feed(`data: ${JSON.stringify(chunk)}\n\n`)).toBe(`data: ${JSON.stringify(chunk)}\n\n`);
    expect([meter.failure, meter.finished]).toEqual([null, false]);
  });

  it('counts and removes usage in frames of other shapes, and writes one usage chunk', () => {
    const usage = '{"prompt_tokens":3,"completion_tokens":4}';
    const spaced = `{"choices" :[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage" :${usage}}`;
    const [silently, asked] = [false, true].map((wantsUsage) => {
      const meter = createStreamMeter({ ...silent, wantsUsage });
      const out = meter.feed(`data: ${spaced}\n\ndata: {"id":"x","usage":${usage}}\n\n`);
      expect(knownUsage(meter)).toMatchObject({ source: 'engine', usage: { inputTokens: 3, outputTokens: 4 } });
      return out + meter.lastFrames({ ...knownUsage(meter), costText: null });
    });
    const rest = 'data: {"choices" :[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n';
    expect(silently).toBe(rest);
    expect(asked?.startsWith(rest)).toBe(true);
    const shown = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
    expect(objects(asked ?? '').at(-1)).toMatchObject({ choices: [], usage: shown });
  });

  it('counts nothing for a choice that was not asked for, with any index', { timeout: 10_000 }, () => {
    const meter = createStreamMeter({ ...silent, choices: 2 });
    const chunk = (index: number, output: number): string =>
      `data: {"choices":[{"index":${index},"delta":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":${output}}}\n\n`;
    for (const text of [chunk(1, 4), chunk(400_000_000, 7), chunk(2, 9)]) expect(meter.feed(text)).not.toBe('');
    expect(meter.outputTokens).toBe(4);
    expect(knownUsage(meter)).toMatchObject({ source: 'last_seen', usage: { inputTokens: 3, outputTokens: 4 } });
  });

  it.each([
    ['none', null, 8],
    ['zeros', { prompt_tokens: 0, completion_tokens: 0 }, 8],
    ['one without the output', { prompt_tokens: 3 }, 8],
    ['the largest choice', { prompt_tokens: 3, completion_tokens: 4 }, 4],
    ['fewer than one choice', { prompt_tokens: 3, completion_tokens: 2 }, 4],
  ])('counts two choices of four tokens whose last count is %s', (_name, usage, outputTokens) => {
    const meter = createStreamMeter({ ...silent, choices: 2 });
    for (const index of [0, 1]) {
      const chunk = { choices: [{ index, delta: { content: 'x' }, finish_reason: 'stop' }] };
      meter.feed(`data: ${JSON.stringify({ ...chunk, usage: { prompt_tokens: 3, completion_tokens: 4 } })}\n\n`);
    }
    if (usage !== null) meter.feed(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
    expect(knownUsage(meter)).toMatchObject({ usage: { inputTokens: 3, outputTokens } });
  });

  it.each([9e15, 1e20, 1_000_000_001, '9'.repeat(400)])('ignores a count of %s', (tokens) => {
    const usage = `{"prompt_tokens":3,"completion_tokens":${tokens}}`;
    const chunk = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":${usage}}\n\n`;
    const last = `data: {"choices":[],"usage":${usage}}\n\n`;
    const meter = createStreamMeter({ ...silent, wantsUsage: true });
    expect(meter.feed(`${chunk}${last}data: [DONE]\n\n`)).toBe(chunk.replace(`,"usage":${usage}`, ''));
    const shown = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
    const bill = { ...knownUsage(meter), costText: null };
    expect(meter.lastFrames(bill)).toBe(last.replace(/"usage":.*\}\n/, `"usage":${JSON.stringify(shown)}}\n`));
    expect(meter).toMatchObject({ done: true, failure: null, outputTokens: 1 });
    expect(knownUsage(meter)).toEqual({
      source: 'counted',
      usage: { inputTokens: 3, cachedTokens: 0, cacheWriteTokens: 0, outputTokens: 1, reasoningTokens: 0 },
    });
    const json = `{"choices":[],"usage":${usage}}`;
    const metered = meterJson(json, { rename: null });
    expect(metered).toMatchObject({ ok: true, seen: { last: { inputTokens: 3, outputTokens: null } } });
    expect(metered.ok && metered.write(null)).toBe(json);
  });

  it('uses an earlier count of the engine after an impossible one', () => {
    const meter = createStreamMeter(silent);
    const chunk = '{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":3,"completion_tokens":5}}';
    meter.feed(`data: ${chunk}\n\ndata: {"choices":[],"usage":{"prompt_tokens":9e15,"completion_tokens":6}}\n\n`);
    expect(knownUsage(meter)).toMatchObject({ source: 'last_seen', usage: { inputTokens: 3, outputTokens: 6 } });
  });

  it('treats an error in a JSON answer with status 200 as an abort, with any usage', () => {
    const usage = { prompt_tokens: 3, completion_tokens: 2 };
    for (const error of [{ message: 'EngineCore died' }, 'it died']) {
      const text = JSON.stringify({ choices: [], error, usage });
      expect(meterJson(text, { rename: null })).toMatchObject({ ok: true, aborted: true });
      const pieces = createPiecesMeter({ rename: null });
      pieces.feed(text);
      expect(pieces.end()).toMatchObject({ ok: true, aborted: true });
    }
    const fine = JSON.stringify({
      choices: [{ message: { content: '"error":{}', error: { x: 1 } } }],
      error: null,
      usage,
    });
    expect(meterJson(fine, { rename: null })).toMatchObject({ ok: true, aborted: false });
  });

  it('holds back early usage chunks, and ends with the last one', () => {
    const meter = createStreamMeter({ ...silent, wantsUsage: true });
    const count = (tokens: number): string =>
      `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":${tokens}}}\n\n`;
    const text = `data: {"choices":[{"index":0,"delta":{"content":"${'x'.repeat(800_000)}"}}]}\n\n`;
    const end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n';
    expect([count(0), text, text, end, count(2)].map((frame) => meter.feed(frame))).toEqual(['', text, text, end, '']);
    meter.feed('data: [DONE]\n\n');
    expect(meter).toMatchObject({ done: true, failure: null });
    expect(meter.lastFrames({ usage: null, costText: '0.5' })).toBe(count(2).replace('2}', '2,"cost":0.5}'));
  });

  it('replaces a cost set by the engine, and removes its details', () => {
    const meter = createStreamMeter({ ...silent, wantsUsage: true });
    meter.feed('data: {"choices":[],"usage":{"prompt_tokens":1,"cost":9,"cost_details":{"cost":7}}}\n\n');
    const out = meter.lastFrames({ usage: null, costText: '0.5' });
    expect(out).toBe('data: {"choices":[],"usage":{"prompt_tokens":1,"cost":0.5}}\n\n');
  });

  it('keeps comments and frames of other events, without an empty line when there is no data', () => {
    const meter = createStreamMeter(silent);
    const text = ': ping\n\nevent: note\ndata: {"choices":[]}\n\nid: 7\n\n';
    expect(meter.feed(text)).toBe(': ping\nevent: note\ndata: {"choices":[]}\n\nid: 7\n');
  });

  it('takes a very long frame in many reads without searching it again each time', { timeout: 10_000 }, () => {
    const meter = createStreamMeter(silent);
    const content = 'x'.repeat(48_000_000);
    const text = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;
    let bytes = 0;
    for (let at = 0; at < text.length; at += 65_536) bytes += meter.feed(text.slice(at, at + 65_536)).length;
    expect(bytes).toBe(text.length);
  });
});
