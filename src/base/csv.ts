/** A cell; null is an empty cell. */
export type CsvCell = string | number | boolean | null;

const decimal = /^-?\d+(?:\.\d+)?$/;

/**
 * Matches places at which a formula could begin: the start of a cell, wide forms of the characters included, and after
 * a semicolon. A spreadsheet whose language has the comma in numbers splits cells at semicolons, even inside quotes.
 */
const formulaStart = /^(?=[\t\r\n])|(?=[=+\-@＝＋－＠])(?<=(?:^|[;\t\r\n])[\s"']*)/gu;

/**
 * Formats a cell by RFC 4180. Text that begins like a formula gets a quote before it, because spreadsheets would run it
 * and users choose names and ids. Decimals stay numbers, even if they are text.
 */
function csvCell(cell: CsvCell): string {
  if (cell === null) return '';
  if (typeof cell !== 'string') return String(cell);
  const text = decimal.test(cell) ? cell : cell.replaceAll(formulaStart, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvRow = (cells: readonly CsvCell[]): string => `${cells.map(csvCell).join(',')}\r\n`;
