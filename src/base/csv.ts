/** A cell: nothing for null. */
export type CsvCell = string | number | boolean | null;

const decimal = /^-?\d+(?:\.\d+)?$/;

/**
 * A cell as RFC 4180 has it. Text that begins like a formula gets a quote before it: spreadsheets would run it, and
 * names and ids are other people's text. Decimals stay numbers, also those that are text.
 */
function csvCell(cell: CsvCell): string {
  if (cell === null) return '';
  if (typeof cell !== 'string') return String(cell);
  const text = /^[=+\-@\t\r\n]/.test(cell) && !decimal.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvRow = (cells: readonly CsvCell[]): string => `${cells.map(csvCell).join(',')}\r\n`;
