import { describe, expect, it } from 'vitest';
import { exportAnswer } from '#edge/api/usage/usage-export.ts';

describe('the body of an export', () => {
  /** Endless pages, and their outcome. */
  function endless() {
    const seen = { read: 0, ended: false };
    async function* pages(): AsyncGenerator<{ n: number }[]> {
      try {
        for (;;) {
          seen.read += 1;
          yield [{ n: seen.read }];
        }
      } finally {
        seen.ended = true;
      }
    }
    return { seen, rows: { pages: pages(), toLine: (item: { n: number }) => item, heading: ['n'] } };
  }

  it('reads at most one page ahead, and stops reading when the client leaves', async () => {
    const { seen, rows } = endless();
    const reader = (await exportAnswer(rows, 'ndjson')).body?.getReader();
    const first = await reader?.read();
    expect(new TextDecoder().decode(first?.value)).toBe('{"n":1}\n');
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(seen.read).toBeLessThanOrEqual(2);
    await reader?.cancel();
    expect(seen.ended).toBe(true);
  });

  it('fails before it starts when the first page cannot be read', async () => {
    async function* broken(): AsyncGenerator<unknown[]> {
      yield await Promise.reject(new Error('away'));
    }
    const rows = { pages: broken(), toLine: () => ({}), heading: ['n'] };
    await expect(exportAnswer(rows, 'csv')).rejects.toThrow('away');
  });

  it('breaks off when a later page cannot be read', async () => {
    async function* failing(): AsyncGenerator<{ n: number }[]> {
      yield [{ n: 1 }];
      throw new Error('away');
    }
    const answer = await exportAnswer({ pages: failing(), toLine: (item) => item, heading: ['n'] }, 'ndjson');
    await expect(answer.text()).rejects.toThrow('away');
  });

  it('quotes commas, quotes and line breaks in CSV', async () => {
    async function* pages(): AsyncGenerator<Record<string, string | null | number>[]> {
      yield [{ a: 'x,y', b: 'say "hi"' }];
      yield [
        { a: 'two\nlines', b: null },
        { a: 1, b: 'ü' },
      ];
    }
    const answer = await exportAnswer({ pages: pages(), toLine: (item) => item, heading: ['a', 'b'] }, 'csv');
    expect(await answer.text()).toBe('a,b\r\n"x,y","say ""hi"""\r\n"two\nlines",\r\n1,ü\r\n');
  });

  it('escapes text that a spreadsheet would run, and leaves numbers unchanged', async () => {
    async function* pages(): AsyncGenerator<Record<string, string | null | number>[]> {
      yield [{ a: '=HYPERLINK("http://evil.example")', b: '@x' }];
      yield [{ a: '+1+1', b: '-cmd' }];
      yield [{ a: '\tx', b: '\rx' }];
      yield [{ a: '-2.50', b: -3 }];
    }
    const answer = await exportAnswer({ pages: pages(), toLine: (item) => item, heading: ['a', 'b'] }, 'csv');
    const [, ...lines] = (await answer.text()).split('\r\n');
    expect(lines).toEqual([`"'=HYPERLINK(""http://evil.example"")",'@x`, "'+1+1,'-cmd", `'\tx,"'\rx"`, '-2.50,-3', '']);
  });

  it('escapes formulas behind semicolons', async () => {
    const texts = {
      'a;=1+1': "a;'=1+1",
      "a; =cmd|' /C calc'!A0": "a; '=cmd|' /C calc'!A0",
      'a;"@x': `"a;""'@x"`,
      '-3;+4': "'-3;'+4",
      '＝1+1': "'＝1+1",
      'plain; text - or = not': 'plain; text - or = not',
      '-0.00000042': '-0.00000042',
    };
    async function* pages(): AsyncGenerator<{ a: string }[]> {
      yield Object.keys(texts).map((a) => ({ a }));
    }
    const answer = await exportAnswer({ pages: pages(), toLine: (item) => item, heading: ['a'] }, 'csv');
    expect((await answer.text()).split('\r\n').slice(1, -1)).toEqual(Object.values(texts));
  });
});
