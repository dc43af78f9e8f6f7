import { describe, expect, it } from 'vitest';
import { renderTable } from '#edge/cli/shell/table.ts';

const headings = ['KEY', 'STATUS', 'REMARK'];
const long = 'it ended before it was ready and nobody knows why that was so';

describe('a table of the command line', () => {
  it('has its full width without a terminal width', () => {
    expect(renderTable(headings, [['a', 'ok', long]])).toBe(`KEY  STATUS  REMARK\na    ok      ${long}\n`);
  });

  it('wraps its last column at the terminal width', () => {
    const text = renderTable(headings, [['a', 'ok', long]], 45);
    expect(text).toBe(
      'KEY  STATUS  REMARK\n' +
        'a    ok      it ended before it was ready and\n' +
        '             nobody knows why that was so\n',
    );
    expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(45);
  });

  it('prints one line for each value when columns do not fit, and cuts no ids', () => {
    const id = `key_${'0'.repeat(32)}`;
    expect(
      renderTable(
        headings,
        [
          [id, 'ok', long],
          [id, 'revoked', ''],
        ],
        50,
      ),
    ).toBe(
      `${id}\n` +
        '  status  ok\n' +
        '  remark  it ended before it was ready and nobody\n' +
        '          knows why that was so\n' +
        `${id}\n` +
        '  status  revoked\n',
    );
  });

  it('hides the least important columns when narrow, says so, and shows those that fit', () => {
    const titles = ['KEY', 'SECRET', 'SCOPE', 'NAME'];
    const row = ['k'.repeat(10), 's'.repeat(30), 'inference', 'n'.repeat(10)];
    const table = (columns: number): string => renderTable(titles, [row], columns, ['SECRET', 'SCOPE']);
    const key = 'kkkkkkkkkk';
    const name = 'nnnnnnnnnn';
    expect(table(100)).toBe(`${renderTable(titles, [row])}`);
    // Nothing is as wide as the terminal but what fits.
    expect(table(40)).toBe(
      `KEY         SCOPE      NAME\n${key}  inference  ${name}\nHidden: SECRET; --wide shows all.\n`,
    );
    expect(table(24)).toBe(`KEY         NAME\n${key}  ${name}\nHidden: SECRET, SCOPE;\n--wide shows all.\n`);
    // Where even these do not fit, all of it stands line by line.
    expect(table(20)).toContain(`  secret  ${'s'.repeat(30)}\n`);
    // The first columns to be dropped come back once a larger one is dropped.
    expect(renderTable(titles, [row], 40, ['SCOPE', 'SECRET'])).toBe(table(40));
  });

  it('does not count colors, and removes terminal control characters', () => {
    const red = '\u001b[31mok\u001b[0m';
    const text = renderTable(['A', 'B'], [[red, 'x\u001b[2J\u0007y']], 80);
    expect(text).toBe(`A   B\n${red}\u001b[0m  xy\n`.replace('xy', 'x[2Jy'));
  });
});
