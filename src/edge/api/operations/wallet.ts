import { created, cursorList, exampleId, model } from './examples.ts';
import type { Tag } from './operation.ts';

const credit = {
  id: exampleId('le'),
  object: 'ledger_entry',
  type: 'credit',
  amount: '25',
  balance_after: '34.99958',
  request_id: null,
  requests: null,
  reference: 'invoice-2026-0042',
  note: null,
  created_at: created,
};
const { id, type, amount, reference, note, created_at } = credit;

const operators = 'Requires a management key of a platform administrator.';

export const wallet: Tag = {
  name: 'Wallet',
  description: 'Prepaid balance, ledger and monthly statements of an organization. Money is a decimal string in USD.',
  operations: {
    'GET /v1/wallet': {
      operationId: 'retrieveWallet',
      summary: 'Retrieve the wallet balance',
      description:
        'Returns the balance of the organization in USD, the part held for running requests, and the available rest. ' +
        'Any API key of the organization may call it.',
      answer: { object: 'wallet', balance: '9.99958', held: '0.5', available: '9.49958', currency: 'USD' },
    },
    'GET /v1/wallet/days': {
      operationId: 'listWalletDays',
      summary: 'List the days of a wallet',
      description:
        'Returns credits, adjustments, charges and the closing balance in USD for each of the last UTC days, oldest ' +
        'first. Any API key of the organization may call it.',
      answer: {
        object: 'list',
        data: [
          {
            object: 'wallet.day',
            day: '2026-10-03',
            balance: '34.99958',
            credits: '25',
            adjustments: '0',
            charges: '0.00042',
          },
        ],
      },
    },
    'GET /v1/wallet/ledger': {
      operationId: 'listLedgerEntries',
      summary: 'List ledger entries',
      description:
        'Returns credits, adjustments and charges of the organization, newest first. Charges of requests whose ' +
        'records are no longer kept are combined. Any API key of the organization may call it.',
      answer: cursorList(credit),
    },
    'POST /v1/wallet/credits': {
      operationId: 'createCredit',
      summary: 'Add credit to a wallet',
      description:
        'Adds USD to the wallet of an organization that is not closed. Repeating `reference` and amount returns 200 and ' +
        `adds nothing; another amount returns 422. ${operators}`,
      request: { organization_id: exampleId('org'), amount: '25.00', reference },
      answer: credit,
    },
    'POST /v1/wallet/adjustments': {
      operationId: 'createAdjustment',
      summary: 'Adjust a wallet balance',
      description:
        'Adds a positive or negative amount in USD, with a reason. Returns 409 if the balance would fall below what ' +
        `running requests hold; \`reference\` makes it idempotent, as for credits. ${operators}`,
      request: { organization_id: exampleId('org'), amount: '-2.50', reason: 'Refund', reference: 'refund-17' },
      answer: {
        ...credit,
        type: 'adjustment',
        amount: '-2.5',
        balance_after: '32.49958',
        reference: 'refund-17',
        note: 'Refund',
      },
    },
    'GET /v1/wallet/statements/{month}': {
      operationId: 'retrieveStatement',
      summary: 'Retrieve a monthly statement',
      description:
        'Returns the statement of a UTC month in USD, as JSON or, with `Accept: text/csv`, as CSV. The header ' +
        '`x-headgate-signature` is a detached JWS (EdDSA, RFC 7515 appendix F) of the body, or `unsigned`. Requires ' +
        'a management key of the organization.',
      answer: {
        object: 'wallet.statement',
        organization_id: exampleId('org'),
        month: '2026-09',
        status: 'final',
        currency: 'USD',
        opening_balance: '10',
        credits: '25',
        adjustments: '0',
        charges: '0.00042',
        closing_balance: '34.99958',
        written_off: '0',
        requests: 100,
        bookings: [{ id, type, amount, reference, note, created_at }],
        usage: [
          {
            day: '2026-09-21',
            key_id: exampleId('key'),
            model,
            requests: 100,
            input_tokens: 1200,
            output_tokens: 400,
            cost: '0.00042',
          },
        ],
        ledger: { entries: 101, head: '9f86d081884c7d659a2feaa0c55ad015' },
        signing_key: null,
      },
    },
    'GET /v1/statement-key': {
      operationId: 'retrieveStatementKey',
      summary: 'Retrieve the public key of statements',
      description:
        'Returns the public key that verifies statements, as a JWK. No API key is required. Returns 404 if the ' +
        'gateway does not sign statements.',
      answer: {
        kty: 'OKP',
        crv: 'Ed25519',
        x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
        kid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
        alg: 'EdDSA',
        use: 'sig',
      },
    },
  },
};
