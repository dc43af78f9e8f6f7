import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import { parseMoment } from '#base/timestamps.ts';
import { type CsvLine, parseCsv } from '#base/csv.ts';
import {
  type AddAllResult,
  type AddResult,
  type ChangedBy,
  type EndResult,
  findCurrency,
  parsePrice,
} from '#core/costs/costs.ts';
import {
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  pageQuery,
} from '#edge/api/shared/shared.ts';
import { idText, textOrNull } from '#edge/contract/fields.ts';
import { authorOf, type HttpContext, type Problem, ValidationError } from '#edge/http/http.ts';

/** Shared parts of rate cards and conversion rates, which have dates, and are ended and replaced but never edited. */

const momentExample = '2026-03-01T00:00:00Z';
const wantedMoment = `must be a date such as 2026-03-01 (midnight UTC) or an RFC 3339 time such as ${momentExample}`;

/** Returns the schema of a time in a body or a query, in milliseconds since the Unix epoch. */
export function momentText(description: string) {
  return z
    .string()
    .transform((text, context): number => {
      const momentMs = parseMoment(text);
      if (momentMs !== null) return momentMs;
      context.addIssue({ code: 'custom', message: wantedMoment });
      return z.NEVER;
    })
    .openapi({ type: 'string', description, example: momentExample });
}

/** Returns the schema of a price or a rate as text, so that no digit is lost. */
export function scaledText(description: string) {
  return z
    .string()
    .transform((text, context): bigint => {
      const scaled = parsePrice(text);
      if (scaled !== null) return scaled;
      const message = 'must be a plain decimal, 0 or more, with at most 10 digits before and 10 after the point';
      context.addIssue({ code: 'custom', message });
      return z.NEVER;
    })
    .openapi({ type: 'string', description, example: '2.49' });
}

/** Returns the schema of a currency: any case is accepted, and the code of the currency table results. */
export function currencyText() {
  return z
    .string()
    .transform((text, context): string => {
      const currency = findCurrency(text);
      if (currency !== null) return currency.code;
      context.addIssue({ code: 'custom', message: 'must be a currency of GET /v1/billing/currencies, such as EUR' });
      return z.NEVER;
    })
    .openapi({ type: 'string', description: 'ISO 4217 code', example: 'EUR' });
}

const retroactive = z.boolean().default(false).openapi({
  description: 'Allows a time in the past, which changes existing reports',
});

/** Dates in the body that creates a rate. */
const datesOfNew = {
  effective_from: momentText('Start, inclusive; default is now').optional(),
  effective_to: textOrNull(momentText('End, exclusive; null or absent is no end')).optional(),
  retroactive,
};

interface DatesOfNew {
  readonly effective_from?: number | undefined;
  readonly effective_to?: number | null | undefined;
  readonly retroactive: boolean;
}

export function toDates({ effective_from: fromMs, effective_to: toMs, retroactive }: DatesOfNew) {
  return { fromMs: fromMs ?? null, toMs: toMs ?? null, retroactive };
}

/** Checks fields against each other. All problems of a body are reported together. */
type Between = (body: Readonly<Record<string, unknown>>) => Problem | null;

const endsLate: Between = ({ effective_from: from, effective_to: to }) =>
  typeof from === 'number' && typeof to === 'number' && to <= from
    ? { field: 'effective_to', message: 'must be later than effective_from' }
    : null;

/** Returns the check for `superRefine`. Use it with `always`, since other fields of the body may be invalid. */
function checkBetween(...checks: readonly Between[]) {
  return (body: object, context: z.core.$RefinementCtx<object>): void => {
    for (const check of [...checks, endsLate]) {
      const problem = check({ ...body });
      if (problem !== null) context.addIssue({ code: 'custom', path: [problem.field], message: problem.message });
    }
  };
}

/** Condition of a check that also runs on invalid bodies, except on values that are not objects and have no fields. */
const always = { when: ({ value }: { value: unknown }) => typeof value === 'object' && value !== null };

interface Dated {
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number | null;
  readonly createdAtMs: number;
}

const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();

/** Returns id and dates of a rate in the form of the API. */
export function showDated(prefix: Prefix, { id, fromMs, toMs, createdAtMs }: Dated) {
  return {
    id: formatId(prefix, id),
    effective_from: isoOf(fromMs),
    effective_to: toMs === null ? null : isoOf(toMs),
    created_at: isoOf(createdAtMs),
  };
}

const endSchema = z.strictObject({ at: momentText('End; default is now').optional(), retroactive }).openapi('EndRate');

const rowsMax = 1000;

const importSchema = z
  .strictObject({
    csv: z.string().openapi({ description: `CSV with a header of field names, and at most ${rowsMax} rows` }),
    retroactive,
  })
  .openapi('ImportRates');

/** A row of an import, with the line that it came from. */
interface ImportedRow<Row> {
  readonly line: number;
  readonly row: Row;
}

/**
 * Reads rates from CSV. An empty cell is an absent field.
 * @throws ValidationError with all problems, each with its line
 */
export function requireRows<Row>(
  { csv, retroactive: isRetroactive }: z.output<typeof importSchema>,
  columns: readonly string[],
  schema: z.ZodType<Row>,
): readonly ImportedRow<Row>[] {
  const lines = parseCsv(csv);
  if ('wrongLine' in lines) throw onLine(lines.wrongLine, 'has a quote that does not end, or text behind one');
  const [header, ...rows] = lines;
  if (header === undefined || rows.length === 0) throw onLine(1, `must be a header (${columns.join(',')}) and rows`);
  const unknown = header.cells.find((name) => !columns.includes(name));
  if (unknown !== undefined) throw onLine(header.line, `has an unknown column; columns are ${columns.join(', ')}`);
  const twice = header.cells.find((name, index) => header.cells.indexOf(name) < index);
  if (twice !== undefined) throw onLine(header.line, `has the column ${twice} twice`);
  if (rows.length > rowsMax)
    throw onLine(rows[rowsMax]?.line ?? 1, `is row ${rowsMax + 1}; an import has at most ${rowsMax}`);
  const problems: Problem[] = [];
  const read = rows.flatMap(({ line, cells }: CsvLine): ImportedRow<Row>[] => {
    if (cells.length > header.cells.length) problems.push(...onLine(line, 'has more cells than the header').problems);
    const fields = header.cells.map((name, index): [string, string] => [name, (cells[index] ?? '').trim()]);
    const body = Object.fromEntries(fields.filter(([, cell]) => cell !== ''));
    const result = schema.safeParse({ ...body, retroactive: isRetroactive });
    if (result.success) return [{ line, row: result.data }];
    for (const { path, message } of result.error.issues) {
      problems.push({ field: `csv.${line}.${path.join('.')}`, message: `on line ${line} ${message}` });
    }
    return [];
  });
  if (problems.length > 0) throw new ValidationError(problems);
  return read;
}

const onLine = (line: number, message: string): ValidationError =>
  new ValidationError([{ field: `csv.${line}`, message: `on line ${line} ${message}` }]);

/** Returns the answer for an import. @throws ValidationError, AppError conflict, each with the line */
export function requireAllAdded<Rate extends Dated, Shown extends object>(
  prefix: Prefix,
  { result, rows }: { readonly result: AddAllResult<Rate>; readonly rows: readonly ImportedRow<unknown>[] },
  show: (rate: Rate) => Shown,
): { data: Shown[] } {
  if (result.kind === 'created') return { data: result.rates.map(show) };
  const line = rows[result.index]?.line ?? 0;
  try {
    requireAdded(prefix, result.refusal, show);
  } catch (error) {
    if (error instanceof ValidationError) {
      const { problems } = error;
      throw new ValidationError(
        problems.map(({ field, message }) => ({
          field: `csv.${line}.${field}`,
          message: `on line ${line} ${message}`,
        })),
      );
    }
    if (!(error instanceof AppError)) throw error;
    throw new AppError('conflict', { message: `Line ${line}: ${error.message}`, param: `csv.${line}.effective_from` });
  }
  throw new Error('a refused rate was accepted');
}

const atQuery = momentText('Only rates in effect at this date (midnight UTC) or RFC 3339 time').optional();

type Prefix = 'rate' | 'conv';

interface DatedAnswers {
  readonly schema: z.ZodType;
  readonly created: z.ZodType;
  readonly page: z.ZodType;
  readonly imported: z.ZodType;
}

interface DatedKind<Answers extends DatedAnswers, New extends z.ZodRawShape, Filters extends z.ZodRawShape> {
  readonly guards: Guards;
  readonly prefix: Prefix;
  readonly path: `/v1/billing/${string}`;
  /** Name in the OpenAPI document. */
  readonly name: 'RateCard' | 'ConversionRate';
  readonly answers: Answers;
  readonly created: New;
  /** Checks the fields of a new rate against each other. */
  readonly between: Between;
  readonly filters: Filters;
}

/** Returns the routes of one kind of rates: list, create and end. Rates are never edited. */
export function datedRoutes<Answers extends DatedAnswers, New extends z.ZodRawShape, Filters extends z.ZodRawShape>(
  kind: DatedKind<Answers, New, Filters>,
) {
  const { guards, prefix, path, name, answers } = kind;
  const common = { security: bearerSecurity };
  const createSchema = z
    .strictObject({ ...kind.created, ...datesOfNew })
    .superRefine(checkBetween(kind.between), always)
    .openapi(`Create${name}`);
  return {
    /** Schema of a rate, for rows of an import. */
    createSchema,
    columns: [...Object.keys(kind.created), 'effective_from', 'effective_to'],
    import: createRoute({
      ...common,
      method: 'post',
      path: `${path}/import`,
      middleware: [guards.may('rates'), guards.jsonBody],
      request: { body: jsonRequest(importSchema) },
      responses: { 201: jsonAnswer(answers.imported, `The ${nouns[prefix]}s`) },
    }),
    list: createRoute({
      ...common,
      method: 'get',
      path,
      middleware: [guards.may('rates.read')],
      request: { query: z.strictObject({ ...pageQuery, ...kind.filters, at: atQuery }) },
      responses: { 200: jsonAnswer(answers.page, `A page of ${nouns[prefix]}s`) },
    }),
    create: createRoute({
      ...common,
      method: 'post',
      path,
      middleware: [guards.may('rates'), guards.jsonBody, guards.once(prefix, { instead: `GET ${path} lists it.` })],
      request: { headers: onceHeaders, body: jsonRequest(createSchema) },
      responses: { 201: jsonAnswer(answers.created, `The ${nouns[prefix]}`) },
    }),
    end: createRoute({
      ...common,
      method: 'post',
      path: `${path}/{id}/end`,
      middleware: [guards.may('rates'), guards.jsonBody],
      request: { params: z.object({ id: idText(prefix) }), body: jsonRequest(endSchema) },
      responses: { 200: jsonAnswer(answers.schema, `The ${nouns[prefix]}`) },
    }),
  };
}

const nouns: Readonly<Record<Prefix, string>> = { rate: 'rate card', conv: 'conversion rate' };

export function changedBy(context: HttpContext): ChangedBy {
  return { organizationId: context.get('caller').organizationId, author: authorOf(context) };
}

/** Returns the answer for a new rate, with the rate that it follows. @throws ValidationError, AppError conflict */
export function requireAdded<Rate extends Dated, Shown extends object>(
  prefix: Prefix,
  result: AddResult<Rate>,
  show: (rate: Rate) => Shown,
): Shown & { follows: Shown | null } {
  switch (result.kind) {
    case 'created':
      return { ...show(result.rate), follows: result.ended === null ? null : show(result.ended) };
    case 'empty':
      throw new ValidationError([{ field: 'effective_to', message: 'must be later than effective_from' }]);
    case 'in_the_past':
      throw inThePast('effective_from', result.nowMs);
    case 'overlap': {
      const { id, fromMs, toMs } = result.with;
      const span = `${isoOf(fromMs)} ${toMs === null ? 'indefinitely' : `until ${isoOf(toMs)}`}`;
      const message = `The ${nouns[prefix]} ${formatId(prefix, id)} is in effect from ${span}. End it first, start after its end, or end the new one at its start ("effective_to": "${isoOf(fromMs)}").`;
      throw new AppError('conflict', { message, param: 'effective_from' });
    }
  }
}

/** @throws ValidationError, AppError not_found, conflict */
export function requireEnded<Rate extends Dated>(prefix: Prefix, result: EndResult<Rate>): Rate {
  switch (result.kind) {
    case 'ended':
      return result.rate;
    case 'not_found':
      throw notFound(prefix);
    case 'in_the_past':
      throw inThePast('at', result.nowMs);
    case 'already_ended': {
      const { toMs } = result.rate;
      const when = toMs === null ? '' : ` at ${isoOf(toMs)}`;
      throw new AppError('conflict', {
        message: `This ${nouns[prefix]} already ends${when}; only an earlier end is possible.`,
        param: 'at',
      });
    }
  }
}

function inThePast(field: string, nowMs: number): ValidationError {
  const message = `is in the past (it is now ${isoOf(nowMs)}); send "retroactive": true to change existing reports`;
  return new ValidationError([{ field, message }]);
}
