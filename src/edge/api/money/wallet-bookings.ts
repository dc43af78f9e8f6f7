import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatUsd } from '#base/money.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { BalanceChangeResult, LedgerEntry, ReadHeld, Wallet } from '#core/wallet/wallet.ts';
import {
  amountText,
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  longText,
  notFound,
  onceHeaders,
  organizationQuery,
} from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import { ledgerEntrySchema } from '#edge/contract/wallet.ts';
import { authorOf } from '#edge/http/http.ts';
import { toEntry } from './ledger-answers.ts';

export interface WalletBookingParts {
  readonly guards: Guards;
  readonly wallet: Pick<Wallet, 'credit' | 'adjust'>;
  readonly accounts: Pick<Accounts, 'readOrganization'>;
  /** Returns the pico-dollars that running requests of an organization hold. */
  readonly heldPicoUsd: ReadHeld;
}

const organizationId = organizationQuery.organization_id;
/** The organization may be named in the body or in the query. */
const query = z.strictObject(organizationQuery);

const reference = nameText().openapi({
  description: 'Your reference, unique in the wallet: repeated with the same amount, it adds nothing',
});

/** A repeated reference adds no entry. */
const byReference = { again: true } as const;

const answers = {
  200: jsonAnswer(ledgerEntrySchema, 'The entry already existed; nothing was added'),
  201: jsonAnswer(ledgerEntrySchema, 'The new entry'),
};

const creditRoute = (guards: Guards) =>
  createRoute({
    method: 'post',
    path: '/v1/wallet/credits',
    security: bearerSecurity,
    middleware: [guards.may('wallet.book'), guards.jsonBody, guards.once('org', byReference)],
    request: {
      query,
      headers: onceHeaders,
      body: jsonRequest(
        z.strictObject({
          organization_id: organizationId,
          amount: amountText({
            isSigned: false,
            example: '25.00',
            description: 'USD above 0, a decimal with at most 12 places',
          }),
          reference,
          note: longText(1000).nullable().optional(),
        }),
      ),
    },
    responses: answers,
  });

const adjustmentRoute = (guards: Guards) =>
  createRoute({
    method: 'post',
    path: '/v1/wallet/adjustments',
    security: bearerSecurity,
    middleware: [guards.may('wallet.book'), guards.jsonBody, guards.once('org', byReference)],
    request: {
      query,
      headers: onceHeaders,
      body: jsonRequest(
        z.strictObject({
          organization_id: organizationId,
          amount: amountText({
            isSigned: true,
            example: '-2.50',
            description: 'USD added to the balance, negative to subtract: a decimal with at most 12 places, not 0',
          }),
          reason: nameText(1000).openapi({ description: 'Reason, stored as the `note` of the entry' }),
          reference,
        }),
      ),
    },
    responses: answers,
  });

/** Registers the routes with which platform administrators add credits and adjustments. */
export function registerWalletBookingRoutes(app: ApiApp, parts: WalletBookingParts): void {
  const { guards, wallet, accounts, heldPicoUsd } = parts;

  app.openapi(creditRoute(guards), async (context) => {
    const { organization_id: named, amount: amountPicoUsd, reference, note = null } = context.req.valid('json');
    const asked = await guards.organizationOf(context, named);
    await refuseClosed(accounts, asked, 'This organization is closed and accepts no credit.');
    const author = authorOf(context);
    const booked = await wallet.credit({ organizationId: asked, amountPicoUsd, reference, note, author });
    return context.json(toEntry(entryOf(booked)), booked.kind === 'created' ? 201 : 200);
  });

  app.openapi(adjustmentRoute(guards), async (context) => {
    const { organization_id: named, amount: amountPicoUsd, reference, reason: note } = context.req.valid('json');
    const asked = await guards.organizationOf(context, named);
    if (amountPicoUsd > 0n) {
      const message = 'This organization is closed. An adjustment can only reduce its balance, such as for a refund.';
      await refuseClosed(accounts, asked, message);
    }
    const author = authorOf(context);
    const booking = { organizationId: asked, amountPicoUsd, reference, note, author };
    const booked = await wallet.adjust(booking, heldPicoUsd);
    return context.json(toEntry(entryOf(booked)), booked.kind === 'created' ? 201 : 200);
  });
}

/** @throws AppError conflict */
async function refuseClosed(accounts: WalletBookingParts['accounts'], id: string, message: string): Promise<void> {
  const organization = await accounts.readOrganization(id);
  if (organization?.status === 'closed') throw new AppError('conflict', { message });
}

/** @throws AppError if nothing was added */
function entryOf(result: BalanceChangeResult): LedgerEntry {
  switch (result.kind) {
    case 'created':
    case 'repeated':
      return result.entry;
    case 'conflict':
      throw otherBooking(result.entry);
    case 'unknown_organization':
      throw notFound('org');
    case 'insufficient': {
      const [balance, held] = [result.balancePicoUsd, result.heldPicoUsd].map(formatUsd);
      const least = result.heldPicoUsd === 0n ? 'zero' : `the ${held} USD that running requests hold`;
      const message = `amount: the balance is ${balance} USD, and an adjustment cannot reduce it below ${least}.`;
      throw new AppError('conflict', { message, param: 'amount' });
    }
  }
}

function otherBooking(earlier: LedgerEntry): AppError {
  const message = `The reference "${earlier.reference ?? ''}" was already used for another entry of ${formatUsd(earlier.amountPicoUsd)} USD. Use a new reference.`;
  return new AppError('unprocessable', { message, param: 'reference' });
}
