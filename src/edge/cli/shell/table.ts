/** Formats text for terminals. */

// Control characters in the texts of engines and files could otherwise move the cursor or retitle the window.
/* oxlint-disable no-control-regex */
const colours = /\u001b\[[0-9;]*m/g;
const controls = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f]|\u001b(?!\[[0-9;]*m)/g;
/* oxlint-enable no-control-regex */

/** Removes control characters from text for a terminal, except line ends, tabs and colors. */
export const forTerminal = (text: string): string => text.replace(controls, '');

/** Cleans one line of external text: colors stay, and other control characters are removed. */
export function cleanLine(text: string): string {
  const clean = forTerminal(text);
  return clean.includes('\u001b[') ? `${clean}\u001b[0m` : clean;
}

/** Cleans external text of any number of lines: removes everything that a terminal would interpret. */
export const cleanText = (text: string): string =>
  text.replace(colours, '').replace(controls, '').replaceAll('\u001b', '');

/** Narrowest last column: lines in a narrower one would have only a word or two. */
const lastColumnMin = 24;
const gap = 2;

interface Column {
  readonly heading: string;
  readonly cells: readonly string[];
  readonly width: number;
}

const widthBefore = (columns: readonly Column[]): number =>
  columns.slice(0, -1).reduce((sum, one) => sum + one.width + gap, 0);

/** True if these columns fit side by side, with the last column wrapped at the terminal's edge. */
function fitBeside(columns: readonly Column[], terminal: number): boolean {
  const last = columns.at(-1)?.width ?? 0;
  return widthBefore(columns) + Math.min(last, lastColumnMin) <= terminal;
}

/** Returns the columns that fit. The least important go first, and return if a larger column left enough room. */
function fitting(all: readonly Column[], leaveOut: readonly string[], terminal: number): readonly Column[] {
  const out = new Set<string>();
  const kept = (): readonly Column[] => all.filter(({ heading }) => !out.has(heading));
  for (const heading of leaveOut) if (!fitBeside(kept(), terminal)) out.add(heading);
  for (const heading of [...out].toReversed()) {
    out.delete(heading);
    if (!fitBeside(kept(), terminal)) out.add(heading);
  }
  return kept();
}

/**
 * Renders columns of equal width; the last column is not padded. Cells are one line each, except in the last column,
 * which wraps at the terminal's edge. A table that is still too wide is printed field by field: a line that the
 * terminal breaks anywhere is not readable as a table, and text that is cut off cannot be copied.
 * @param columns width of the terminal; null without a terminal, which allows any width
 * @param leaveOut headings that a narrow terminal does not show, the first to drop first; the table lists them below
 */
export function renderTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  columns: number | null = null,
  leaveOut: readonly string[] = [],
): string {
  const lines = rows.map((row) => row.map((cell) => cleanLine(cell.replace(/\s+/g, ' '))));
  const all = headings.map((heading, index): Column => {
    const cells = lines.map((line) => line[index] ?? '');
    return { heading, cells, width: Math.max(...[heading, ...cells].map(width)) };
  });
  if (columns === null) return beside(all, null);
  const shown = fitting(all, leaveOut, columns);
  if (!fitBeside(shown, columns)) return renderRecords(headings, lines, columns);
  const gone = all.filter((one) => !shown.includes(one)).map(({ heading }) => heading.replace(/ \(.*/, ''));
  if (gone.length === 0) return beside(shown, columns);
  const said = wrap(`Hidden: ${gone.join(', ')}; --wide shows all.`, columns).join('\n');
  return `${beside(shown, columns)}${said}\n`;
}

function beside(shown: readonly Column[], columns: number | null): string {
  const before = widthBefore(shown);
  const rows = (shown[0]?.cells ?? []).map((_, index) => shown.map(({ cells }) => cells[index] ?? ''));
  const lines = [shown.map(({ heading }) => heading), ...rows];
  const text = lines.flatMap((line) => {
    const last = line.at(-1) ?? '';
    const [first = '', ...more] = columns === null ? [last] : wrap(last, columns - before);
    const head = line.slice(0, -1).map((cell, index) => pad(cell, (shown[index]?.width ?? 0) + gap));
    return [`${head.join('')}${first}`.trimEnd(), ...more.map((rest) => `${' '.repeat(before)}${rest}`)];
  });
  return `${text.join('\n')}\n`;
}

/** Renders a block for each row: its first cell, and below it the other cells behind their headings. */
function renderRecords(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  columns: number | null,
): string {
  const names = headings.map((heading) => heading.toLowerCase());
  const most = Math.max(...names.map(width));
  return rows
    .map(([first = '', ...cells]) => {
      const fields = cells.flatMap((cell, index) => {
        if (cell === '' || cell === '-') return [];
        const head = `  ${pad(names[index + 1] ?? '', most + gap)}`;
        const [line = '', ...more] = wrap(cell, Math.max(lastColumnMin, (columns ?? Infinity) - width(head)));
        return [`${head}${line}`, ...more.map((rest) => `${' '.repeat(width(head))}${rest}`)];
      });
      return `${[first, ...fields].join('\n')}\n`;
    })
    .join('');
}

/** Wraps text between words into lines of at most this many columns; a longer word stays whole. */
export function wrap(text: string, columns: number): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (line !== '' && width(longer) > columns) {
      lines.push(line);
      line = word;
    } else {
      line = longer;
    }
  }
  return [...lines, line];
}

/** True if every line of a text fits in a terminal of this many columns. */
export const fits = (text: string, columns: number): boolean =>
  text.split('\n').every((line) => width(line) <= columns);

const pad = (cell: string, columns: number): string => cell + ' '.repeat(Math.max(0, columns - width(cell)));

function width(cell: string): number {
  return Array.from(cell.replace(colours, '')).length;
}
