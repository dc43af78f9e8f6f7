/** A cell; null is an empty cell. */
export type CsvCell = string | number | boolean | null;

/** Matches most cells: they need no quotes, and no formula can begin in them. The search for formulas takes longer. */
const plain = /^[A-Za-z0-9][A-Za-z0-9 ._:/-]*$/;

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
  if (plain.test(cell)) return cell;
  const text = decimal.test(cell) ? cell : cell.replaceAll(formulaStart, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvRow = (cells: readonly CsvCell[]): string => `${cells.map(csvCell).join(',')}\r\n`;

/** A row of a CSV text. */
export interface CsvLine {
  /** Line on which the row starts, from 1. */
  readonly line: number;
  readonly cells: readonly string[];
}

/**
 * Reads RFC 4180, with any kind of line break and with or without a byte order mark. Empty lines are left out.
 * @returns the line with a quote in the wrong place, if there is one
 */
export function parseCsv(text: string): readonly CsvLine[] | { readonly wrongLine: number } {
  const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\n|\r|$)/y;
  const rows: CsvLine[] = [];
  let [line, cells, startLine]: [number, string[], number] = [1, [], 1];
  cell.lastIndex = text.startsWith('\uFEFF') ? 1 : 0;
  while (cell.lastIndex < text.length) {
    const match = cell.exec(text);
    if (match === null) return { wrongLine: line };
    const [all, quoted, plain = '', end = ''] = match;
    cells.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    line += all.split(/\r\n|\n|\r/).length - 1;
    if (end === ',' && cell.lastIndex < text.length) continue;
    if (end === ',') cells.push('');
    if (cells.length > 1 || cells[0] !== '') rows.push({ line: startLine, cells });
    [cells, startLine] = [[], line];
  }
  return rows;
}
