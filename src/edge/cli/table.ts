/** Text for terminals. */

// Control characters of what engines and files say could otherwise move the cursor or retitle the window.
/* oxlint-disable no-control-regex */
const colours = /\u001b\[[0-9;]*m/g;
const controls = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f]|\u001b(?!\[[0-9;]*m)/g;
/* oxlint-enable no-control-regex */

/** One line of somebody else's text: colours stay, other control characters go. */
export function cleanLine(text: string): string {
  const clean = text.replace(controls, '');
  return clean.includes('\u001b[') ? `${clean}\u001b[0m` : clean;
}

/** Somebody else's text of any number of lines, without anything that a terminal would obey. */
export const cleanText = (text: string): string =>
  text.replace(colours, '').replace(controls, '').replaceAll('\u001b', '');

/** Columns of equal width; a last column is not padded. Cells are one line each. */
export function renderTable(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headings, ...rows.map((row) => row.map((cell) => cleanLine(cell.replace(/\s+/g, ' '))))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => width(line[column] ?? ''))));
  const text = lines.map((line) =>
    line
      .map((cell, column) =>
        column === line.length - 1 ? cell : cell + ' '.repeat((widths[column] ?? 0) - width(cell)),
      )
      .join('  ')
      .trimEnd(),
  );
  return `${text.join('\n')}\n`;
}

function width(cell: string): number {
  return Array.from(cell.replace(colours, '')).length;
}
