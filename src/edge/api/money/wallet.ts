import { createRoute, z } from '@hono/zod-openapi';
import { isUuid } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { History, LedgerPosition } from '#core/metering/metering.ts';
import type { ReadHeld, Wallet } from '#core/wallet/wallet.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  listQuery,
  organizationQuery,
  readCursor,
  toListPage,
} from '#edge/api/shared/shared.ts';
import { ledgerEntryListSchema, ledgerEntrySchema, walletDaysSchema, walletSchema } from '#edge/contract/wallet.ts';
import { toEntry } from './ledger-answers.ts';

export interface WalletRoutesParts {
  readonly guards: Guards;
  readonly wallet: Wallet;
  readonly history: Pick<History, 'ledgerLines'>;
  /** Returns the pico-dollars that running requests of an organization hold. */
  readonly heldPicoUsd: ReadHeld;
}

const walletRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/wallet',
    security: bearerSecurity,
    middleware: guards.may('wallet.read'),
    request: { query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(walletSchema, 'The wallet') },
  });

const entryType = ledgerEntrySchema.shape.type.optional().openapi({ description: 'Only entries of this type' });

const ledgerRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/wallet/ledger',
    security: bearerSecurity,
    middleware: guards.may('wallet.read'),
    request: { query: z.strictObject({ type: entryType, ...organizationQuery, ...listQuery }) },
    responses: { 200: jsonAnswer(ledgerEntryListSchema, 'One page') },
  });

const daysMax = 400;
const daysDefault = 30;

const daysRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/wallet/days',
    security: bearerSecurity,
    middleware: guards.may('wallet.read'),
    request: {
      query: z.strictObject({
        days: z
          .string()
          .regex(/^[1-9]\d{0,2}$/, `must be a whole number from 1 to ${daysMax}`)
          .transform(Number)
          .refine((days) => days <= daysMax, `must be at most ${daysMax}`)
          .default(daysDefault)
          .openapi({
            type: 'integer',
            minimum: 1,
            maximum: daysMax,
            default: daysDefault,
            description: 'Number of UTC days, with today',
          }),
        ...organizationQuery,
      }),
    },
    responses: { 200: jsonAnswer(walletDaysSchema, 'The days, oldest first') },
  });

const positionText = ({ number, requestId }: LedgerPosition): string =>
  requestId === null ? `${number}` : `${number} ${requestId}`;

function readPosition(text: string): LedgerPosition | null {
  const [number = '', requestId = null, ...rest] = text.split(' ');
  const isPosition = /^\d{1,15}$/.test(number) && (requestId === null || isUuid(requestId)) && rest.length === 0;
  return isPosition ? { number: Number(number), requestId } : null;
}

/** Registers the routes for the balance and the ledger. */
export function registerWalletRoutes(app: ApiApp, parts: WalletRoutesParts): void {
  const { guards, wallet, history, heldPicoUsd } = parts;

  app.openapi(walletRoute(guards), async (context) => {
    const organizationId = await guards.organizationOf(context);
    // Reads holds first: an amount that is no longer held is then already charged, so that no spent amount is shown as
    // available.
    const holds = await heldPicoUsd(organizationId);
    const balance = await wallet.balance(organizationId);
    // Holds never exceed the balance: a surplus is from a request that was charged between the two reads.
    const held = holds < balance ? holds : balance;
    const amounts = { balance: formatUsd(balance), held: formatUsd(held), available: formatUsd(balance - held) };
    return context.json({ object: 'wallet' as const, ...amounts, currency: 'USD' as const }, 200);
  });

  app.openapi(daysRoute(guards), async (context) => {
    const days = await wallet.ledgerDays(await guards.organizationOf(context), context.req.valid('query').days);
    const data = days.map((day) => ({
      object: 'wallet.day' as const,
      day: new Date(day.dayMs).toISOString().slice(0, 10),
      balance: formatUsd(day.balancePicoUsd),
      credits: formatUsd(day.creditedPicoUsd),
      adjustments: formatUsd(day.adjustedPicoUsd),
      charges: formatUsd(day.chargedPicoUsd),
    }));
    return context.json({ object: 'list' as const, data }, 200);
  });

  app.openapi(ledgerRoute(guards), async (context) => {
    const organizationId = await guards.organizationOf(context);
    const { limit, cursor, type } = context.req.valid('query');
    const after = readCursor(cursor, readPosition);
    const page = await history.ledgerLines(organizationId, { limit, after, ...(type !== undefined && { type }) });
    const next = page.more ? page.lines.at(-1)?.position : undefined;
    return context.json(toListPage(page.lines.map(toEntry), next === undefined ? null : positionText(next)), 200);
  });
}
