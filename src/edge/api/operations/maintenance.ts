import { created, cursorList, exampleId, model, requestId } from './examples.ts';
import type { Tag } from './operation.ts';

const quarantined = {
  id: requestId,
  object: 'quarantined_record',
  organization_id: exampleId('org'),
  error: 'value too long for type character varying(64)',
  sql_state: '22001',
  created_at: created,
};
const hold = {
  id: requestId,
  object: 'hold',
  organization_id: exampleId('org'),
  key_id: exampleId('key'),
  gateway_id: 'gateway-1',
  held: '0.00042',
  spooled: false,
  created_at: created,
};
const tokens = { prompt_tokens: 1200, completion_tokens: 400 };
const none = { prompt_tokens: 0, completion_tokens: 0 };

const operators = 'Requires a management key of a platform administrator.';

export const maintenance: Tag = {
  name: 'Maintenance',
  description: 'Verify and repair the ledger and usage records: quarantine, orphaned wallet holds and reconciliation.',
  operations: {
    'GET /v1/admin/quarantine': {
      operationId: 'listQuarantinedRecords',
      summary: 'List quarantined usage records',
      description:
        'Returns usage records that PostgreSQL rejected, newest first. Nobody is charged for a quarantined record. ' +
        operators,
      answer: cursorList(quarantined),
    },
    'GET /v1/admin/quarantine/{id}': {
      operationId: 'retrieveQuarantinedRecord',
      summary: 'Retrieve a quarantined usage record',
      description: `Returns one quarantined record with everything that is known about its request. ${operators}`,
      answer: { ...quarantined, record: { model, input_tokens: 12, output_tokens: 4 } },
    },
    'POST /v1/admin/quarantine/{id}/retry': {
      operationId: 'retryQuarantinedRecord',
      summary: 'Record and charge a quarantined request',
      description:
        'Records the usage and charges the wallet once. An amount that the balance does not cover is written off. Returns 409 with ' +
        `the reason if PostgreSQL rejects it again. ${operators}`,
      answer: { id: requestId, object: 'quarantined_record', booked: true, charged: '0.00042' },
    },
    'POST /v1/admin/quarantine/{id}/discard': {
      operationId: 'discardQuarantinedRecord',
      summary: 'Discard a quarantined usage record',
      description:
        'Deletes the record without charging anyone; the audit log keeps it with the reason. Returns 409 if the request ' +
        `was already recorded. ${operators}`,
      request: { reason: 'Test traffic' },
      answer: { id: requestId, object: 'quarantined_record', discarded: true },
    },
    'GET /v1/admin/holds': {
      operationId: 'listHolds',
      summary: 'List orphaned wallet holds',
      description:
        'Returns wallet holds of requests whose gateway stopped, newest first. A hold is released when that gateway, or ' +
        `another one with its data folder, starts. ${operators}`,
      answer: cursorList(hold),
    },
    'POST /v1/admin/holds/{id}/release': {
      operationId: 'releaseHold',
      summary: 'Release an orphaned wallet hold',
      description:
        'Returns the held amount to its wallet; the audit log keeps the reason. Returns 409 while the gateway of the ' +
        `request runs, or if the request was already recorded. ${operators}`,
      request: { reason: 'The data folder of gateway-1 was lost' },
      answer: { id: requestId, object: 'hold', released: true, held: hold.held },
    },
    'GET /v1/admin/reconcile': {
      operationId: 'retrieveReconciliation',
      summary: 'Reconcile ledger, usage and engine counters',
      description:
        'Compares, by hour and model, the charges in the ledger, the usage records and the counters of engines, and ' +
        'explains differences. The span is the last 24 hours by default, at most 31 days. ' +
        operators,
      answer: {
        object: 'reconciliation',
        from: 1_789_999_200,
        to: 1_790_002_800,
        balanced: true,
        unexplained: 0,
        data: [
          {
            hour: 1_789_999_200,
            model,
            state: 'balanced',
            open: false,
            ledger: { cost: '0.00042' },
            usage: { requests: 100, cache_hits: 0, cost: '0.00042', ...tokens },
            sums: { requests: 100, cost: '0.00042', ...tokens },
            expected: tokens,
            engines: { requests: 100, ...tokens },
            difference: { cost: '0', ...none },
            unexplained: none,
            problem: null,
            explanations: [],
          },
        ],
        ledger_differences: [],
      },
    },
  },
};
