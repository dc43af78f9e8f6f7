import { createRoute, z } from '@hono/zod-openapi';
import { accepts } from 'hono/accepts';
import type { Clock } from '#base/clock.ts';
import type { Signer } from '#base/config/config.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { History, Statement } from '#core/metering/metering.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  organizationQuery,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { type StatementAnswer, statementKeySchema, statementSchema } from '#edge/contract/wallet.ts';
import { ValidationError } from '#edge/http/http.ts';
import { csvText } from './usage-export.ts';

export interface StatementRoutesParts {
  readonly guards: Guards;
  readonly history: Pick<History, 'statement'>;
  /** Signs statements; null if they are not signed. */
  readonly signer: Signer | null;
  readonly clock: Clock;
}

const signatureHeader = 'x-headgate-signature';

const statementRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/wallet/statements/{month}',
    security: bearerSecurity,
    middleware: guards.may('wallet.statements'),
    request: {
      params: z.object({ month: z.string().openapi({ example: '2026-10', description: 'Month in UTC' }) }),
      query: z.strictObject(organizationQuery),
    },
    responses: {
      200: {
        description: 'The statement',
        content: {
          ...jsonAnswer(statementSchema, '').content,
          'text/csv': { schema: { type: 'string' as const } },
        },
      },
    },
  });

const keyRoute = createRoute({
  method: 'get',
  path: '/v1/statement-key',
  responses: { 200: jsonAnswer(statementKeySchema, 'The key') },
});

/** Milliseconds until a month's statement is final: requests of the month end later, and spooled records arrive. */
const settlingMs = 86_400_000;

interface Month {
  readonly fromMs: number;
  readonly toMs: number;
  readonly isOver: boolean;
}

function readMonth(text: string, nowMs: number): Month {
  const [, year, month] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text) ?? [];
  const fail = (message: string): never => {
    throw new ValidationError([{ field: 'month', message }]);
  };
  if (year === undefined || Number(year) < 1970) return fail('must be a month such as 2026-10');
  const fromMs = Date.UTC(Number(year), Number(month) - 1);
  const toMs = Date.UTC(Number(year), Number(month));
  return fromMs <= nowMs ? { fromMs, toMs, isOver: toMs + settlingMs <= nowMs } : fail('must not be in the future');
}

/** Fields of an answer that are not from the ledger. */
type Told = Pick<StatementAnswer, 'organization_id' | 'month' | 'status' | 'signing_key'>;

function toBody({ ledger, ...statement }: Statement, told: Told): StatementAnswer {
  return {
    object: 'wallet.statement',
    organization_id: told.organization_id,
    month: told.month,
    status: told.status,
    currency: 'USD',
    opening_balance: formatUsd(ledger.openingPicoUsd),
    credits: formatUsd(ledger.creditedPicoUsd),
    adjustments: formatUsd(ledger.adjustedPicoUsd),
    charges: formatUsd(ledger.chargedPicoUsd),
    closing_balance: formatUsd(ledger.closingPicoUsd),
    written_off: statement.writtenOffPicoUsd === null ? null : formatUsd(statement.writtenOffPicoUsd),
    requests: statement.requests,
    bookings: ledger.bookings.map((entry) => ({
      id: formatId('le', entry.id),
      type: entry.type,
      amount: formatUsd(entry.amountPicoUsd),
      reference: entry.reference,
      note: entry.note,
      created_at: toUnixSeconds(entry.createdAt.getTime()),
    })),
    usage: statement.usage.map((row) => ({
      day: row.day,
      key_id: formatId('key', row.keyId),
      model: row.model,
      requests: row.requests,
      input_tokens: row.inputTokens,
      output_tokens: row.outputTokens,
      cost: formatUsd(row.costPicoUsd),
    })),
    ledger: { entries: ledger.entries, head: ledger.head?.toString('hex') ?? null },
    signing_key: told.signing_key,
  };
}

const heading = ['line', 'date', 'id', 'model', 'requests', 'input_tokens', 'output_tokens', 'amount', 'reference'];

/** Returns the statement as CSV: sums first, in the order in which they add up to the closing balance. */
function toCsv(body: StatementAnswer): string {
  const sum = (line: string, amount: string | null) => ({ line, date: body.month, id: body.organization_id, amount });
  const lines = [
    { ...sum('status', null), reference: body.status },
    sum('opening_balance', body.opening_balance),
    sum('credits', body.credits),
    sum('adjustments', body.adjustments),
    sum('charges', body.charges),
    sum('closing_balance', body.closing_balance),
    sum('written_off', body.written_off),
    { ...sum('requests', null), requests: body.requests },
    { ...sum('ledger_entries', null), requests: body.ledger.entries, reference: body.ledger.head },
    { ...sum('signing_key', null), reference: body.signing_key },
    ...body.bookings.map(({ id, type, amount, reference, created_at }) => {
      return { line: type, date: new Date(created_at * 1000).toISOString().slice(0, 10), id, amount, reference };
    }),
    ...body.usage.map(({ day, key_id, cost, ...row }) => ({
      ...row,
      line: 'usage',
      date: day,
      id: key_id,
      amount: cost,
    })),
  ];
  return csvText(heading, lines);
}

/** Registers the routes for statements, and for the key that signs them. */
export function registerStatementRoutes(app: ApiApp, { guards, history, signer, clock }: StatementRoutesParts): void {
  app.openapi(statementRoute(guards), async (context) => {
    const { month } = context.req.valid('param');
    const { isOver, ...span } = readMonth(month, clock.now());
    const organizationId = await guards.organizationOf(context);
    const statement = await history.statement({ organizationId, ...span });
    const body = toBody(statement, {
      organization_id: formatId('org', organizationId),
      month,
      status: isOver ? 'final' : 'open',
      signing_key: signer?.keyId ?? null,
    });
    const supports = ['application/json', 'text/csv'];
    const isCsv = accepts(context, { header: 'Accept', supports, default: 'application/json' }) === 'text/csv';
    const text = isCsv ? toCsv(body) : JSON.stringify(body);
    const headers = {
      'content-type': isCsv ? 'text/csv; charset=utf-8; header=present' : 'application/json',
      'cache-control': 'no-store',
      [signatureHeader]: signer?.signDetached(Buffer.from(text)) ?? 'unsigned',
    };
    return context.newResponse(text, 200, headers);
  });

  app.openapi(keyRoute, (context) => {
    if (signer === null) throw new AppError('not_found', { message: 'This gateway does not sign statements.' });
    return context.json(statementKeySchema.parse(signer.publicKey), 200);
  });
}
