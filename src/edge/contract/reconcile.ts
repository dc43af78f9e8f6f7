import { z } from 'zod';
import { idText, usd } from './fields.ts';

/** Answers of `/v1/admin/reconcile`. */

const hourBound = z.int().meta({ description: 'Start of an hour in Unix seconds', example: 1_790_000_400 });
const tokens = z.int().meta({ description: 'Number of tokens' });
const requests = z.int().meta({ description: 'Number of requests' });
const tokenFields = { prompt_tokens: tokens, completion_tokens: tokens };

const explanationSchema = z
  .object({
    kind: z
      .enum([
        'carried',
        'running',
        'unsure',
        'choices',
        'uncounted',
        'replica_ended',
        'replica_found',
        'gateway_ended',
        'adapter_moved',
        'retention',
        'canary',
        'probe',
        'retry',
        'undelivered',
        'cache_hit',
      ])
      .meta({ description: 'Type of the explanation; see `src/core/reconcile/README.md`' }),
    count: z.int().meta({ description: 'Number of requests; 1 if a gateway or replica ended' }),
    prompt_tokens: tokens.nullable().meta({ description: 'Maximum number of tokens; null if unlimited' }),
    completion_tokens: tokens.nullable().meta({ description: 'Maximum number of tokens; null if unlimited' }),
    detail: z.string().nullable().meta({ description: 'Replica or gateway, and how it ended; null if there is none' }),
  })
  .meta({ id: 'ReconcileExplanation' });

const reconciledHourSchema = z
  .object({
    hour: hourBound,
    model: z.string().nullable().meta({ description: 'Catalog id; null for ledger entries without a usage record' }),
    state: z
      .enum(['balanced', 'explained', 'unexplained'])
      .meta({ description: '`explained`: there are differences, and `explanations` covers all of them' }),
    open: z.boolean().meta({ description: 'true while the hour is not over' }),
    ledger: z.object({ cost: usd }).meta({ description: 'Charges in the ledger' }),
    usage: z
      .object({ requests, cache_hits: requests, cost: usd, ...tokenFields })
      .meta({ description: 'Sums of usage records' }),
    sums: z.object({ requests, cost: usd, ...tokenFields }).meta({ description: 'Stored hourly sums' }),
    expected: z.object(tokenFields).meta({
      description: 'Tokens that engines should have counted: prompts once per choice, and canaries, probes and retries',
    }),
    engines: z
      .object({ requests, ...tokenFields })
      .nullable()
      .meta({ description: 'Counters of engines; null if none was read' }),
    difference: z
      .object({ cost: usd, ...tokenFields })
      .meta({ description: 'Cost: `ledger` minus `usage`. Tokens: `engines` minus `expected`' }),
    unexplained: z.object(tokenFields).meta({ description: 'Part of `difference` that is not explained' }),
    problem: z.string().nullable().meta({ description: 'What is wrong; null unless `state` is `unexplained`' }),
    explanations: z.array(explanationSchema),
  })
  .meta({ id: 'ReconciledHour' });

const ledgerDifferenceSchema = z
  .object({
    organization_id: idText('org'),
    entry_id: idText('le').nullable().meta({ description: 'Ledger entry; null if there is none' }),
    request_id: z.string(),
    hour: hourBound,
    model: z.string().nullable().meta({ description: 'Catalog id; null without a usage record' }),
    ledger: z.object({ requests, cost: usd }),
    usage: z.object({ requests, cost: usd }),
  })
  .meta({ id: 'LedgerDifference' });

/** Comparison of ledger, usage and the counters of engines. */
export const reconciliationSchema = z
  .object({
    object: z.literal('reconciliation'),
    from: hourBound,
    to: hourBound,
    balanced: z.boolean().meta({ description: 'true if there is no unexplained difference' }),
    unexplained: z.int().meta({ description: 'Number of entries in `data` with the state `unexplained`' }),
    data: z.array(reconciledHourSchema),
    ledger_differences: z
      .array(ledgerDifferenceSchema)
      .meta({ description: 'Ledger entries that differ from their usage records, at most 1,000' }),
  })
  .meta({ id: 'Reconciliation' });

type ReconciliationAnswer = z.infer<typeof reconciliationSchema>;
export type ReconciledHourAnswer = ReconciliationAnswer['data'][number];
export type ExplanationAnswer = ReconciledHourAnswer['explanations'][number];
export type LedgerDifferenceAnswer = ReconciliationAnswer['ledger_differences'][number];
