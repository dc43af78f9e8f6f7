/** A cell: nothing for null. */
export type CsvCell = string | number | boolean | null;

const decimal = /^-?\d+(?:\.\d+)?$/;

/**
 * Where a formula could begin in a cell: at its start, also in the wide forms of those characters, and behind what ends a
 * cell for a spreadsheet whose language has the comma in numbers. That one splits at semicolons, and no quotes of ours
 * keep it from it.
 */
const formulaStart = /^(?=[\t\r\n])|(?=[=+\-@＝＋－＠])(?<=(?:^|[;\t\r\n])[\s"']*)/gu;

/**
 * A cell as RFC 4180 has it. Text that begins like a formula gets a quote before it: spreadsheets would run it, and
 * names and ids are other people's text. Decimals stay numbers, also those that are text.
 */
function csvCell(cell: CsvCell): string {
  if (cell === null) return '';
  if (typeof cell !== 'string') return String(cell);
  const text = decimal.test(cell) ? cell : cell.replaceAll(formulaStart, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvRow = (cells: readonly CsvCell[]): string => `${cells.map(csvCell).join(',')}\r\n`;
