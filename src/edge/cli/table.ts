/** Text for terminals. */

// Control characters of what engines and files say could otherwise move the cursor or retitle the window.
/* oxlint-disable no-control-regex */
const colours = /\u001b\[[0-9;]*m/g;
const controls = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f]|\u001b(?!\[[0-9;]*m)/g;
/* oxlint-enable no-control-regex */

/** Text on its way to a terminal: lines, tabs and colours stay, and nothing else that it would obey. */
export const forTerminal = (text: string): string => text.replace(controls, '');

/** One line of somebody else's text: colours stay, other control characters go. */
export function cleanLine(text: string): string {
  const clean = forTerminal(text);
  return clean.includes('\u001b[') ? `${clean}\u001b[0m` : clean;
}

/** Somebody else's text of any number of lines, without anything that a terminal would obey. */
export const cleanText = (text: string): string =>
  text.replace(colours, '').replace(controls, '').replaceAll('\u001b', '');

/** Of the last column, where the others leave less, lines would be of a word or two. */
const lastColumnMin = 24;
const gap = 2;

interface Column {
  readonly heading: string;
  readonly cells: readonly string[];
  readonly width: number;
}

const widthBefore = (columns: readonly Column[]): number =>
  columns.slice(0, -1).reduce((sum, one) => sum + one.width + gap, 0);

/** Whether these stand beside each other, the last of them in lines below where the terminal ends. */
function fitBeside(columns: readonly Column[], terminal: number): boolean {
  const last = columns.at(-1)?.width ?? 0;
  return widthBefore(columns) + Math.min(last, lastColumnMin) <= terminal;
}

/** As many as fit: those of least importance go first, and come back where there is room without a larger one. */
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
 * Columns of equal width; a last column is not padded. Cells are one line each, but for those of the last column, which
 * go on below where the terminal ends. What still is too wide stands line by line: a line that a terminal breaks
 * anywhere is no table any more, and what is cut off cannot be copied.
 * @param columns of the terminal; null where there is none, and a table may be as wide as it is
 * @param leaveOut headings of what a narrow terminal does not show, the first to go first; the table says that they are gone
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
  const said = wrap(`Left out: ${gone.join(', ')}; --wide shows all.`, columns).join('\n');
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

/** A block for each row: its first cell, and below it the others behind their headings. */
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

/** Lines of at most so many columns, broken between words; a word that is longer stays whole. */
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

/** Whether no line of it is broken by a terminal of so many columns. */
export const fits = (text: string, columns: number): boolean =>
  text.split('\n').every((line) => width(line) <= columns);

const pad = (cell: string, columns: number): string => cell + ' '.repeat(Math.max(0, columns - width(cell)));

function width(cell: string): number {
  return Array.from(cell.replace(colours, '')).length;
}
