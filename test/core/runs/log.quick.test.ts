import { describe, expect, it } from 'vitest';
import { readLogChunk } from '#core/runs/execute/log-reader.ts';
import { createMask, createPieceMask } from '#core/runs/lifecycle/mask.ts';
import { secretsOf } from '#core/runs/execute/work-files.ts';

const plain = createPieceMask(createMask([]));
const message = (text: string): (string | undefined)[] =>
  readLogChunk(Buffer.from(text), { ended: true, mask: plain }).lines.map((line) => line.message);

describe('a secret mask', () => {
  it('hides every form of a secret that programs print', () => {
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

  it('hides a secret that is encoded together with other text', () => {
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

  it('hides every line of a secret in base64 with line breaks', () => {
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

  it('hides each line of a key', () => {
    const mask = createMask(['-----BEGIN KEY-----\nabcdefgh\nijklmnop\n-----END KEY-----']);
    expect(mask('x abcdefgh y ijklmnop')).toBe('x *** y ***');
  });

  it('hides a secret printed in pieces, except its first three characters', () => {
    const secret = 'hunter2-and-more';
    for (let at = 1; at < secret.length; at += 1) {
      const pieces = createPieceMask(createMask([secret]));
      const first = pieces.piece('a', `x ${secret.slice(0, at)}`);
      pieces.piece('b', 'between');
      const second = pieces.piece('a', `${secret.slice(at)} y`);
      expect([at, first]).toEqual([at, at < 4 ? `x ${secret.slice(0, at)}` : 'x ***']);
      expect([at, second]).toEqual([at, '*** y']);
    }
    const three = createPieceMask(createMask([secret]));
    const shown = [secret.slice(0, 5), secret.slice(5, 9), secret.slice(9)].map((text) => three.piece('a', text));
    expect(shown).toEqual(['***', '***', '***']);
    expect(three.piece('a', `x ${secret} y`)).toBe('x *** y');
  });

  it('hides lines that begin or end within a secret', () => {
    const mask = createPieceMask(createMask(['hunter2-and-more']));
    const long = `${'x'.repeat(65_530)}hunter2-and-more y\nhunter2-\nand-more\nhun\u001b[0mter2-and-more\n`;
    const lines = readLogChunk(Buffer.from(long), { ended: false, mask: mask }).lines.map(({ message: text }) => text);
    expect(lines.slice(1)).toEqual(['*** y', '***', '***', '***']);
  });

  it('hides a secret that a program prints in two writes', () => {
    const progress = (output: string): string =>
      `${JSON.stringify({ '@message': output, type: 'provision_progress', hook: { resource: { addr: 'a.b' }, output } })}\n`;
    const mask = createPieceMask(createMask(['hunter2-and-more']));
    const read = (text: string) =>
      readLogChunk(Buffer.from(text), { ended: false, mask: mask }).lines.map(({ message: said }) => said);
    expect(read(progress('it is hunter2'))).toEqual(['it is ***']);
    expect(read(progress('-and-more.'))).toEqual(['***.']);
  });

  it('keeps lines of dashes although a key begins with dashes', () => {
    const mask = createPieceMask(createMask(['-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----']));
    expect(mask.piece('a', 'Plan ------')).toBe('Plan ------');
  });

  it('hides short secrets only as whole words', () => {
    const mask = createMask(['p4ss!', '48151', 'a\nbcde\nf']);
    expect(mask('tok=p4ss! https://u:p4ss!@host "pin":48151,')).toBe('tok=*** https://u:***@host "pin":***,');
    expect(mask('481516 x48151 bcde abcde')).toBe('481516 x48151 *** abcde');
    expect(createPieceMask(mask).piece('a', 'pin 48151.')).toBe('pin ***.');
  });

  it('hides the keys and values of sensitive maps', () => {
    const inputs = { creds: { AKIASECRETUSER99: ['longsecretvalue77', { nested_key: 12_345_678 }] }, open: 'shown' };
    const declared = [
      { name: 'creds', sensitive: true, default: null, ephemeral: false },
      { name: 'open', sensitive: false, default: null, ephemeral: false },
    ];
    const stack = { inputs: declared, isGlobal: true, root: '', files: [], web: null };
    const cluster = { engineApiKey: 'key-of-the-engines' };
    const mask = createMask(secretsOf({ stack, cluster, privateKey: 'the private key', inputs }));
    expect(mask('AKIASECRETUSER99 longsecretvalue77 nested_key 12345678 key-of-the-engines shown')).toBe(
      '*** *** *** *** *** shown',
    );
  });

  it('keeps words that are too short to be hidden', () => {
    expect(createMask(['abc', ''])('abc abcdef')).toBe('abc abcdef');
  });
});

describe('log lines of a run', () => {
  it('contain the text of programs without colors, cursor moves and NUL', () => {
    expect(message('\u001b[31mred\u001b[0m\u0000\ttab\r\n\u001b]0;title\u0007end\n')).toEqual(['red\ttab', 'end']);
  });

  it('name the file and line of an error, with its detail below', () => {
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
    const { lines, error } = readLogChunk(Buffer.from(`${JSON.stringify(line)}\n`), { ended: false, mask: plain });
    expect(lines[0]).toMatchObject({
      level: 'error',
      message: 'Reference to undeclared input (main.tf:2)\nNo such variable.',
    });
    expect(error).toBe('Reference to undeclared input (main.tf:2): No such variable.');
  });

  it('do not include outputs', () => {
    expect(
      message('{"@level":"info","@message":"Outputs: 1","type":"outputs","outputs":{"x":{"value":"secret"}}}\n'),
    ).toEqual([]);
  });

  it('have the time when they were written unless they state one, never after the next stated time', () => {
    const at = (second: number): number => Date.UTC(2026, 0, 1, 0, 0, second);
    const said = JSON.stringify({ '@message': 'said', '@timestamp': new Date(at(5)).toISOString(), type: 'log' });
    const text = `one\ntwo\n${said}\nthree\n`;
    const times = new Map([
      [4, at(2)],
      [8, at(9)],
    ]);
    const writtenAt = (bytes: number): number | null => times.get(bytes) ?? null;
    const read = readLogChunk(Buffer.from(text), { ended: true, mask: plain, writtenAt });
    expect(read.lines.map(({ atMs }) => atMs)).toEqual([at(2), at(5), at(5), null]);
  });

  it('wait for their line break, or for the end of the output', () => {
    const half = Buffer.from('one\ntw');
    expect(readLogChunk(half, { ended: false, mask: plain })).toMatchObject({ bytes: 4, lines: [{ message: 'one' }] });
    expect(readLogChunk(half, { ended: true, mask: plain })).toMatchObject({
      bytes: 6,
      lines: [{ message: 'one' }, { message: 'tw' }],
    });
  });

  it('are split when they have no line break, and cut when they are long', () => {
    const read = readLogChunk(Buffer.alloc(200_000, 'x'), { ended: false, mask: plain });
    expect(read.bytes).toBe(65_536 * 3);
    for (const { message: text } of read.lines) expect(text).toHaveLength(8192 + '… (line cut)'.length);
  });

  it('contain the changes of an apply', () => {
    const line =
      '{"@message":"Apply complete!","type":"change_summary","changes":{"add":1,"change":2,"import":0,"remove":3,"operation":"apply"}}\n';
    expect(readLogChunk(Buffer.from(line), { ended: false, mask: plain }).changes).toEqual({
      operation: 'apply',
      add: 1,
      change: 2,
      remove: 3,
    });
  });

  it('are plain text for a panic or broken JSON', () => {
    expect(message('{"broken\npanic: runtime error\n[1,2]\n')).toEqual(['{"broken', 'panic: runtime error', '[1,2]']);
  });
});
