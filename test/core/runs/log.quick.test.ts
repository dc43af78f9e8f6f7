import { describe, expect, it } from 'vitest';
import { readLogChunk } from '#core/runs/log-reader.ts';
import { createMask } from '#core/runs/mask.ts';

const plain = createMask([]);
const message = (text: string): (string | undefined)[] =>
  readLogChunk(Buffer.from(text), true, plain).lines.map((line) => line.message);

describe('a mask', () => {
  it('leaves no form of a secret that programs print', () => {
    const secret = 'p"ss/w+rd\\ \u00e9\u00fc';
    const mask = createMask([secret]);
    const forms = [
      secret,
      JSON.stringify(secret),
      JSON.stringify(JSON.stringify(secret)),
      encodeURIComponent(secret),
      Buffer.from(secret).toString('base64'),
      Buffer.from(secret).toString('base64url'),
      Buffer.from(secret).toString('hex'),
    ];
    for (const form of forms) expect(mask(`a ${form} b`)).not.toContain(form.replaceAll('"', ''));
  });

  it('leaves no form of a secret that stands among other text when it is encoded', () => {
    const secret = 'hunter2<&>"pass word/+?';
    const mask = createMask([secret]);
    const goJson = JSON.stringify(secret)
      .replaceAll('<', '\\u003c')
      .replaceAll('>', '\\u003e')
      .replaceAll('&', '\\u0026');
    expect(mask(`a ${goJson} b`)).toBe('a "***" b');
    expect(mask(`a ${JSON.stringify(goJson)} b`)).not.toContain('hunter2');
    expect(mask(`password=${new URLSearchParams([['', secret]]).toString().slice(1)}&x`)).toBe('password=***&x');
    expect(mask(Buffer.from(secret).toString('hex').toUpperCase())).toBe('***');
    for (const user of ['', 'a', 'ab', 'abc', 'root']) {
      const text = mask(Buffer.from(`${user}:${secret}:tail`).toString('base64'));
      expect([user, text]).toEqual([user, expect.stringContaining('***')]);
      expect(Buffer.from(text.replaceAll('***', ''), 'base64').toString('latin1')).not.toContain('hunter');
    }
  });

  it('leaves no line of a secret whose base64 is broken into lines', () => {
    const secret = Array.from({ length: 40 }, (_, index) => `part-${index}`).join(' ');
    const mask = createMask([secret]);
    for (const width of [64, 76]) {
      const lines =
        Buffer.from(secret)
          .toString('base64')
          .match(new RegExp(`.{1,${width}}`, 'g')) ?? [];
      const shown = lines.map((line) => mask(line).replace(/=+$/, ''));
      expect(shown.slice(0, -1)).toEqual(shown.slice(0, -1).map(() => '***'));
    }
  });

  it('takes each line of a key for a secret', () => {
    const mask = createMask(['-----BEGIN KEY-----\nabcdefgh\nijklmnop\n-----END KEY-----']);
    expect(mask('x abcdefgh y ijklmnop')).toBe('x *** y ***');
  });

  it('leaves alone what is too short to be told from other words', () => {
    expect(createMask(['abc', ''])('abc abcdef')).toBe('abc abcdef');
  });
});

describe('lines of a log', () => {
  it('keep text of programs without colours, cursor moves and NUL', () => {
    expect(message('\u001b[31mred\u001b[0m\u0000\ttab\r\n\u001b]0;title\u0007end\n')).toEqual(['red\ttab', 'end']);
  });

  it('name file and line of what is wrong, with the detail below it', () => {
    const line = {
      '@level': 'error',
      '@message': 'Error: x',
      type: 'diagnostic',
      diagnostic: {
        severity: 'error',
        summary: 'Reference to undeclared input',
        detail: 'No such variable.',
        range: { filename: 'main.tf', start: { line: 2 } },
      },
    };
    const { lines, error } = readLogChunk(Buffer.from(`${JSON.stringify(line)}\n`), false, plain);
    expect(lines[0]).toMatchObject({
      level: 'error',
      message: 'Reference to undeclared input (main.tf:2)\nNo such variable.',
    });
    expect(error).toBe('Reference to undeclared input (main.tf:2): No such variable.');
  });

  it('do not show outputs, which are shown by themselves', () => {
    expect(
      message('{"@level":"info","@message":"Outputs: 1","type":"outputs","outputs":{"x":{"value":"secret"}}}\n'),
    ).toEqual([]);
  });

  it('wait for their end, and are whole at the end of the output', () => {
    const half = Buffer.from('one\ntw');
    expect(readLogChunk(half, false, plain)).toMatchObject({ bytes: 4, lines: [{ message: 'one' }] });
    expect(readLogChunk(half, true, plain)).toMatchObject({ bytes: 6, lines: [{ message: 'one' }, { message: 'tw' }] });
  });

  it('are taken in pieces where they do not end, and cut where they are long', () => {
    const read = readLogChunk(Buffer.alloc(200_000, 'x'), false, plain);
    expect(read.bytes).toBe(65_536 * 3);
    for (const { message: text } of read.lines) expect(text).toHaveLength(8192 + '… (line cut)'.length);
  });

  it('say what an apply did', () => {
    const line =
      '{"@message":"Apply complete!","type":"change_summary","changes":{"add":1,"change":2,"import":0,"remove":3,"operation":"apply"}}\n';
    expect(readLogChunk(Buffer.from(line), false, plain).changes).toEqual({
      operation: 'apply',
      add: 1,
      change: 2,
      remove: 3,
    });
  });

  it('of a panic or of broken JSON are text', () => {
    expect(message('{"broken\npanic: runtime error\n[1,2]\n')).toEqual(['{"broken', 'panic: runtime error', '[1,2]']);
  });
});
