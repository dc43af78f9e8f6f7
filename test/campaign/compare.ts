import { parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { Body } from '#test/inference/inference-gateway.ts';
import type { Seen } from './client.ts';
import type { CampaignModels } from './requests.ts';

/** Fields that are read of a usage record, as the API's export has it. */
export interface UsageRecord {
  readonly client_request_id: string | null;
  readonly model: string;
  readonly outcome: string;
  readonly usage_source: string;
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly output_tokens: number;
  /** USD, exact decimal. */
  readonly cost: string;
  readonly written_off: string;
}

export interface Evidence {
  readonly seen: readonly Seen[];
  /** Records of these requests only. */
  readonly records: readonly UsageRecord[];
  /** The wallet's loss, in pico-dollars. */
  readonly charged: bigint;
  /** The engines' counts meanwhile. */
  readonly counted: { readonly promptTokens: number; readonly outputTokens: number };
  /** The answer of `/v1/admin/reconcile`. */
  readonly reconciliation: Body;
  readonly models: CampaignModels;
}

export interface Findings {
  /** Figures to print, by their name. */
  readonly figures: Readonly<Record<string, number | string>>;
  /** Sentences; empty if all sides agree. */
  readonly problems: readonly string[];
}

/** Pico-dollars per token, as the campaign's engine files say them. */
export const prices = { input: 100_000n, cached: 50_000n, output: 400_000n };

/** Compares all sides. What is expected of the engines: output as recorded, each prompt once per choice. */
export function compare(evidence: Evidence): Findings {
  const { seen, records, charged, counted, reconciliation } = evidence;
  const pairs = pair(evidence);
  const sum = (of: (record: UsageRecord) => number): number => records.reduce((total, one) => total + of(one), 0);
  const cost = records.reduce((total, one) => total + usd(one.cost), 0n);
  const expectedPrompt = pairs.reduce((total, { seen: { request }, record }) => total + prompts(record, request), 0);
  const unsure = pairs.reduce((total, one) => total + unsurePrompt(one), 0);
  const output = sum(({ output_tokens: tokens }) => tokens);
  const [promptDifference, outputDifference] = [counted.promptTokens - expectedPrompt, counted.outputTokens - output];
  const count = (is: (one: Seen) => boolean): number => seen.filter(is).length;
  return {
    figures: {
      requests: seen.length,
      complete: count(({ isComplete }) => isComplete),
      'left by the client': count(({ hasLeft }) => hasLeft),
      records: records.length,
      'recorded input tokens': sum(({ input_tokens: tokens }) => tokens),
      'recorded output tokens': output,
      'output tokens, engines minus records': outputDifference,
      'prompt tokens, engines minus records': promptDifference,
      'prompt tokens of unfinished choices, at most': unsure,
      'charged minus recorded, pico-dollars': String(charged - cost),
      'written off, pico-dollars': String(records.reduce((total, one) => total + usd(one.written_off), 0n)),
    },
    problems: [
      ...checkAnswers(evidence),
      ...checkRecords(evidence),
      ...say(outputDifference !== 0, `the engines counted ${outputDifference} output tokens more than the records`),
      ...say(
        promptDifference > 0 || promptDifference < -unsure,
        `the engines counted ${promptDifference} prompt tokens more than the records`,
      ),
      ...say(charged !== cost, `the ledger charged ${charged - cost} pico-dollars more than the records`),
      ...say(reconciliation.balanced !== true, `not reconciled: ${JSON.stringify(reconciliation.data)}`),
      ...say(reconciliation.ledger_differences.length > 0, JSON.stringify(reconciliation.ledger_differences)),
    ],
  };
}

const say = (isWrong: boolean, sentence: string): string[] => (isWrong ? [sentence] : []);

const usd = (text: string): bigint => parseDecimal(text, PICO_DIGITS) ?? 0n;

interface Pair {
  readonly seen: Seen;
  readonly record: UsageRecord;
}

function pair({ seen, records }: Evidence): Pair[] {
  const byName = new Map(seen.map((one) => [one.request.name, one]));
  return records.flatMap((record) => {
    const found = byName.get(record.client_request_id ?? '');
    return found === undefined ? [] : [{ seen: found, record }];
  });
}

const prompts = (record: UsageRecord, { choices }: Seen['request']): number => record.input_tokens * choices;

/** Engines count the prompt of a choice when they have read it, which an early end may prevent. */
function unsurePrompt({ seen, record }: Pair): number {
  return record.outcome === 'completed' ? 0 : record.input_tokens * (seen.request.choices - 1);
}

/** Every request is answered in full, or its client left. A model may end a request with 400: its own template fails. */
function checkAnswers({ seen }: Evidence): string[] {
  const failed = seen.filter(({ isComplete, hasLeft }) => !isComplete && !hasLeft);
  return failed.slice(0, 10).map(({ request, status, tail }) => {
    return `${request.path} failed with ${status}: ${JSON.stringify(request.body).slice(0, 300)}: ${tail}`;
  });
}

/** Each complete answer has one record, with the counts that the client saw, at the price of its tokens. */
function checkRecords(evidence: Evidence): string[] {
  const byName = new Map<string, UsageRecord[]>();
  for (const record of evidence.records) {
    const name = record.client_request_id ?? '';
    byName.set(name, [...(byName.get(name) ?? []), record]);
  }
  return evidence.seen.flatMap(({ request, isComplete, usage, hasLeft }) => {
    const found = byName.get(request.name) ?? [];
    const [record] = found;
    const where = `${request.name} ${request.path}`;
    if (found.length > 1) return [`${where}: ${found.length} records`];
    if (record === undefined) return say(isComplete, `${where}: complete, and no record`);
    return [
      ...say(isComplete && record.outcome !== 'completed', `${where}: complete, recorded as ${record.outcome}`),
      ...say(!isComplete && !hasLeft, `${where}: recorded as ${record.outcome}`),
      ...say(record.usage_source !== 'engine' && !isFree(record), `${where}: counted by ${record.usage_source}`),
      ...say(usage !== null && !isSame(usage, record), `${where}: ${JSON.stringify([usage, record])}`),
      ...say(usd(record.cost) + usd(record.written_off) !== price(record, evidence.models), `${where}: ${record.cost}`),
    ];
  });
}

const isFree = ({ input_tokens: input, output_tokens: output }: UsageRecord): boolean => input + output === 0;

const isSame = (usage: NonNullable<Seen['usage']>, record: UsageRecord): boolean =>
  usage.inputTokens === record.input_tokens && usage.outputTokens === record.output_tokens;

function price(record: UsageRecord, models: CampaignModels): bigint {
  const { input_tokens: input, input_cached_tokens: cached, output_tokens: output } = record;
  const perOutput = record.model === models.embedding ? 0n : prices.output;
  return BigInt(input - cached) * prices.input + BigInt(cached) * prices.cached + BigInt(output) * perOutput;
}
