import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId, isUuid } from '#base/id.ts';
import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { LedgerLine, LedgerPosition, History } from '#core/metering/metering.ts';
import type { LedgerEntry, Wallet } from '#core/wallet/wallet.ts';
import { authorOf } from '#edge/http/http.ts';
import type { ApiApp } from './app.ts';
import type { Guards } from './auth.ts';
import { listOf, listQuery, readCursor, toListPage } from './list.ts';
import {
  bearerSecurity,
  idText,
  jsonAnswer,
  jsonRequest,
  longText,
  nameText,
  notFound,
  requireId,
  toUnixSeconds,
  unixSeconds,
} from './schemas.ts';

export interface WalletRoutesParts {
  readonly guards: Guards;
  readonly wallet: Wallet;
  readonly history: Pick<History, 'ledgerLines'>;
  /** Pico-dollars that running requests of an organization hold. */
  readonly heldPicoUsd: (organizationId: string) => bigint | Promise<bigint>;
}

/** Far above any payment, far below what the ledger's columns hold. */
const creditUsdMax = 1_000_000_000_000n;
const creditPicoUsdMax = creditUsdMax * 10n ** BigInt(PICO_DIGITS);

const decimal = z.string().openapi({ example: '9.99958', description: 'USD, an exact decimal' });

const walletSchema = z
  .object({
    object: z.literal('wallet'),
    balance: decimal,
    held: decimal.openapi({ description: 'Set aside for requests that run now' }),
    available: decimal.openapi({ description: '`balance` less `held`' }),
    currency: z.literal('USD'),
  })
  .openapi('Wallet');

const entrySchema = z
  .object({
    id: idText('le'),
    object: z.literal('ledger_entry'),
    type: z.enum(['credit', 'usage', 'adjustment']),
    amount: decimal.openapi({ description: 'What the balance gained; negative for usage' }),
    balance_after: decimal,
    request_id: z.string().nullable(),
    requests: z.int().nullable().openapi({
      description: 'Requests of a usage entry: 1, or more where their records are no longer kept',
    }),
    reference: z.string().nullable(),
    note: z.string().nullable(),
    created_at: unixSeconds,
  })
  .openapi('LedgerEntry');

function toBody(entry: LedgerEntry | LedgerLine): z.infer<typeof entrySchema> {
  return {
    id: formatId('le', entry.id),
    object: 'ledger_entry',
    type: entry.type,
    amount: formatUsd(entry.amountPicoUsd),
    balance_after: formatUsd(entry.balanceAfterPicoUsd),
    request_id: entry.requestId,
    requests: entry.requests,
    reference: entry.reference,
    note: entry.note,
    created_at: toUnixSeconds(entry.createdAt.getTime()),
  };
}

const creditAmount = z
  .union([z.string(), z.number()], {
    error: ({ input }) => (input === undefined ? 'is missing' : 'must be a string such as "25.00"'),
  })
  .transform((value, context): bigint => {
    const problem = (message: string): never => {
      context.addIssue({ code: 'custom', message });
      return z.NEVER;
    };
    if (typeof value === 'number') return problem('must be a string such as "25.00": a JSON number may lose digits');
    const picoUsd = parseDecimal(value, PICO_DIGITS);
    if (picoUsd === null) return problem(`must be a plain decimal such as "25.00" with at most ${PICO_DIGITS} places`);
    if (picoUsd <= 0n) return problem('must be above 0');
    return picoUsd <= creditPicoUsdMax ? picoUsd : problem(`must be at most ${creditUsdMax}`);
  })
  .openapi({
    type: 'string',
    pattern: '^[0-9]{1,40}(\\.[0-9]{1,12})?$',
    example: '25.00',
    description: 'USD above 0, a plain decimal with at most 12 places',
  });

const walletRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/wallet',
    tags: ['Wallet'],
    summary: 'Balance of the organization',
    security: bearerSecurity,
    middleware: guards.anyKey,
    responses: { 200: jsonAnswer(walletSchema, 'The wallet') },
  });

const ledgerRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/wallet/ledger',
    tags: ['Wallet'],
    summary: 'What changed the balance, newest first',
    description:
      'Usage has a line per request as long as its record is kept, then one for all that were booked together.',
    security: bearerSecurity,
    middleware: guards.anyKey,
    request: { query: z.strictObject({ type: entrySchema.shape.type.optional(), ...listQuery }) },
    responses: { 200: jsonAnswer(listOf(entrySchema, 'LedgerEntryList'), 'One page') },
  });

const creditRoute = (guards: Guards) =>
  createRoute({
    method: 'post',
    path: '/v1/wallet/credits',
    tags: ['Wallet'],
    summary: 'Add credit (platform administrators)',
    description:
      'Idempotent by `reference` within an organization: the same again answers 200 and books nothing, another amount ' +
      'under it is a 422.',
    security: bearerSecurity,
    middleware: [guards.platformAdmin, guards.jsonBody],
    request: {
      body: jsonRequest(
        z.strictObject({
          organization_id: idText('org').optional().openapi({ description: "The caller's own where absent" }),
          amount: creditAmount,
          reference: nameText(),
          note: longText(1000).nullable().optional(),
        }),
      ),
    },
    responses: {
      200: jsonAnswer(entrySchema, 'It was booked before'),
      201: jsonAnswer(entrySchema, 'It is booked now'),
    },
  });

const positionText = ({ number, requestId }: LedgerPosition): string =>
  requestId === null ? `${number}` : `${number} ${requestId}`;

function readPosition(text: string): LedgerPosition | null {
  const [number = '', requestId = null, ...rest] = text.split(' ');
  const isPosition = /^\d{1,15}$/.test(number) && (requestId === null || isUuid(requestId)) && rest.length === 0;
  return isPosition ? { number: Number(number), requestId } : null;
}

/** Balance and ledger of the caller's organization, and credits. */
export function registerWalletRoutes(app: ApiApp, parts: WalletRoutesParts): void {
  const { guards, wallet, history, heldPicoUsd } = parts;

  app.openapi(walletRoute(guards), async (context) => {
    const { organizationId } = context.get('caller');
    // In this order, what is held no more has been charged: nothing is shown as available that is spent.
    const holds = await heldPicoUsd(organizationId);
    const balance = await wallet.balance(organizationId);
    // Holds never exceed the balance: the surplus is of a request that was charged between the two reads.
    const held = holds < balance ? holds : balance;
    const amounts = { balance: formatUsd(balance), held: formatUsd(held), available: formatUsd(balance - held) };
    return context.json({ object: 'wallet' as const, ...amounts, currency: 'USD' as const }, 200);
  });

  app.openapi(ledgerRoute(guards), async (context) => {
    const { organizationId } = context.get('caller');
    const { limit, cursor, type } = context.req.valid('query');
    const after = readCursor(cursor, readPosition);
    const page = await history.ledgerLines(organizationId, { limit, after, ...(type !== undefined && { type }) });
    const next = page.more ? page.lines.at(-1)?.position : undefined;
    return context.json(toListPage(page.lines.map(toBody), next === undefined ? null : positionText(next)), 200);
  });

  app.openapi(creditRoute(guards), async (context) => {
    const body = context.req.valid('json');
    const named = body.organization_id;
    const result = await wallet.credit({
      organizationId: named === undefined ? context.get('caller').organizationId : requireId('org', named),
      amountPicoUsd: body.amount,
      reference: body.reference,
      note: body.note ?? null,
      author: authorOf(context),
    });
    switch (result.kind) {
      case 'created':
        return context.json(toBody(result.entry), 201);
      case 'repeated':
        return context.json(toBody(result.entry), 200);
      case 'conflict':
        throw conflict(result.entry);
      case 'unknown_organization':
        throw notFound('org');
      case 'insufficient':
        throw new Error('a credit cannot take a balance below zero');
    }
  });
}

function conflict(earlier: LedgerEntry): AppError {
  const message = `The reference "${earlier.reference ?? ''}" stands for another booking of ${formatUsd(earlier.amountPicoUsd)} USD.`;
  return new AppError('unprocessable', { message, param: 'reference' });
}
