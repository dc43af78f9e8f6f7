import type { Context } from 'hono';
import { accepts } from 'hono/accepts';
import { type CsvCell, csvRow } from '#base/csv.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Formats of an export, which answers a whole list without pages. The alternative to an export is JSON in pages. */
export type ExportFormat = 'ndjson' | 'csv';

const formats: Readonly<Record<string, ExportFormat>> = {
  'application/x-ndjson': 'ndjson',
  'application/jsonl': 'ndjson',
  'text/csv': 'csv',
};

const contentTypes: Readonly<Record<ExportFormat, string>> = {
  ndjson: 'application/x-ndjson',
  csv: 'text/csv; charset=utf-8; header=present',
};

/** Content types of an export, for the OpenAPI document. */
export const exportContent = {
  'application/x-ndjson': { schema: { type: 'string' as const } },
  'text/csv': { schema: { type: 'string' as const } },
};

/**
 * Returns the format that `Accept` asks for; null for pages of JSON.
 * @throws ValidationError if a page of an export is asked for
 */
export function readExportFormat(context: Context): ExportFormat | null {
  const supports = ['application/json', ...Object.keys(formats)];
  const format = formats[accepts(context, { header: 'Accept', supports, default: 'application/json' })] ?? null;
  const paging = ['limit', 'cursor'].find((name) => context.req.query(name) !== undefined);
  if (format === null || paging === undefined) return format;
  const message = 'is only for pages of JSON: an export contains everything from "from" until "to"';
  throw new ValidationError([{ field: paging, message }]);
}

/** Fields of one line, without nested fields. */
type Line = Readonly<Record<string, CsvCell>>;

export interface ExportRows<Item> {
  /** Pages of items. At most one page is read ahead; the generator is ended when the reader leaves. */
  readonly pages: AsyncGenerator<readonly Item[]>;
  /** Converts an item to a line of CSV, with the fields of the heading. */
  readonly toLine: (item: Item) => Line;
  readonly heading: readonly string[];
}

/**
 * Returns an export whose body is produced while it is read. The first page is read in advance, so that an early
 * failure returns an error; after a later failure the body breaks off.
 */
export async function exportAnswer<Item>(rows: ExportRows<Item>, format: ExportFormat): Promise<Response> {
  const { pages, heading } = rows;
  const toText = textOf(rows, format);
  const first = await pages.next();
  const encoder = new TextEncoder();
  let head = format === 'csv' ? `${heading.join(',')}\r\n` : '';
  let next: IteratorResult<readonly Item[]> | null = first;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const page = next ?? (await pages.next());
      next = null;
      const text = head + (page.done === true ? '' : page.value.map(toText).join(''));
      head = '';
      if (text !== '') controller.enqueue(encoder.encode(text));
      if (page.done === true) controller.close();
    },
    async cancel() {
      await pages.return(undefined);
    },
  });
  return new Response(body, { headers: { 'content-type': contentTypes[format], 'cache-control': 'no-store' } });
}

function textOf<Item>({ toLine, heading }: ExportRows<Item>, format: ExportFormat): (item: Item) => string {
  if (format === 'ndjson') return (item) => `${JSON.stringify(item)}\n`;
  return (item) => csvLine(heading, toLine(item));
}

const csvLine = (heading: readonly string[], line: Line): string => csvRow(heading.map((name) => line[name] ?? null));

/** Returns all lines as CSV, with their heading. */
export function csvText(heading: readonly string[], lines: readonly Line[]): string {
  return `${heading.join(',')}\r\n${lines.map((line) => csvLine(heading, line)).join('')}`;
}
