/** Reads RFC 4180. @throws Error for what it does not allow */
export function parseCsv(text: string): string[][] {
  if (!text.endsWith('\r\n')) throw new Error('the last row does not end');
  const rows: string[][] = [];
  let row: string[] = [];
  let rest = text;
  while (rest !== '') {
    const match = /^(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/.exec(rest);
    if (match === null) throw new Error(`no cell begins with ${JSON.stringify(rest.slice(0, 40))}`);
    const [all, quoted, plain = '', end] = match;
    row.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === '\r\n') {
      rows.push(row);
      row = [];
    }
    rest = rest.slice(all.length);
  }
  return rows;
}

/** Rows by the names of their columns. */
export function readCsv(text: string): Record<string, string>[] {
  const [header = [], ...rows] = parseCsv(text);
  return rows.map((cells) => {
    if (cells.length !== header.length) throw new Error(`a row has ${cells.length} of ${header.length} cells`);
    return Object.fromEntries(header.map((name, index) => [name, cells[index] ?? '']));
  });
}
