import { parseDecimal, PICO_DIGITS } from '#base/money.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { randomOf } from '#test/random.ts';
import { type Seen, sendRequest } from './client.ts';
import { compare, type Findings, type UsageRecord } from './compare.ts';
import { type CampaignModels, drawRequest } from './requests.ts';

/** Sums over all engines. */
export interface EngineCounters {
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Requests that run now. */
  readonly running: number;
}

export interface CampaignOptions {
  readonly url: string;
  /** Key of a platform administrator's organization, which nobody else uses meanwhile. */
  readonly key: string;
  readonly models: CampaignModels;
  readonly readCounters: () => Promise<EngineCounters>;
  readonly requests: number;
  readonly seed: number;
  /** How many requests run at a time. */
  readonly clients: number;
  /** Called every 1,000 requests. */
  readonly onProgress?: (sent: number) => void;
}

/**
 * Sends requests of all kinds and compares four sides: what clients saw, the usage records, the ledger and the engines'
 * own counters. The engines run, and have answered, before it begins.
 */
export async function runCampaign(options: CampaignOptions): Promise<Findings> {
  const { models, readCounters } = options;
  const balanceBefore = await settledBalance(options);
  const before = await countersAtRest(readCounters);
  const startedAt = Math.floor(Date.now() / 1000);
  const seen = await sendAll(options);
  const after = await countersAtRest(readCounters);
  const charged = balanceBefore - (await settledBalance(options));
  return compare({
    seen,
    charged,
    records: await readRecords(options, startedAt),
    counted: {
      promptTokens: after.promptTokens - before.promptTokens,
      outputTokens: after.outputTokens - before.outputTokens,
    },
    reconciliation: await reconcileAtRest(options),
    models,
  });
}

type Access = Pick<CampaignOptions, 'url' | 'key'>;

async function read({ url, key }: Access, path: string, accept = 'application/json'): Promise<string> {
  const answer = await fetch(new URL(path, url), { headers: { authorization: `Bearer ${key}`, accept } });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`GET ${path}: ${answer.status} ${text}`);
  return text;
}

/** The balance once nothing is held: all requests are charged. In pico-dollars. */
async function settledBalance(options: Access): Promise<bigint> {
  const wallet = await eventually(async () => {
    const found: Body = JSON.parse(await read(options, '/v1/wallet'));
    return Number(found.held) === 0 ? found : null;
  });
  return parseDecimal(wallet.balance, PICO_DIGITS) ?? 0n;
}

/** The counters once no request runs, and two readings are the same. */
async function countersAtRest(readCounters: CampaignOptions['readCounters']): Promise<EngineCounters> {
  let last: EngineCounters | null = null;
  return eventually(async () => {
    const found = await readCounters();
    const isSame = last?.promptTokens === found.promptTokens && last.outputTokens === found.outputTokens;
    last = found;
    return isSame && found.running === 0 ? found : null;
  });
}

async function sendAll(options: CampaignOptions): Promise<Seen[]> {
  const { url, key, seed, models, requests, clients, onProgress } = options;
  const seen: Seen[] = [];
  let sent = 0;
  const runClient = async (): Promise<void> => {
    while (sent < requests) {
      sent += 1;
      const name = `campaign-${seed}-${sent}`;
      const request = drawRequest(randomOf(seed, name), name, models);
      if (sent % 1000 === 0) onProgress?.(sent);
      seen.push(await sendRequest(url, key, request));
    }
  };
  await Promise.all(Array.from({ length: clients }, runClient));
  return seen;
}

/** The records of this campaign. @param startedAt Unix seconds */
async function readRecords(options: CampaignOptions, startedAt: number): Promise<UsageRecord[]> {
  const from = new Date((startedAt - 1) * 1000).toISOString();
  const lines = await read(options, `/v1/usage/requests?from=${from}`, 'application/x-ndjson');
  const records = lines.split('\n').filter((line) => line !== '');
  const mine = `campaign-${options.seed}-`;
  return records
    .map((line): UsageRecord => JSON.parse(line))
    .filter(({ client_request_id: name }) => name?.startsWith(mine) === true);
}

/** The gateway's own comparison, once nothing is so recent that an engine may not have counted it. */
function reconcileAtRest(options: Access): Promise<Body> {
  const isPassing = ({ open, explanations }: Body): boolean =>
    explanations.some(({ kind }: Body) => kind === 'running' || (kind === 'carried' && open));
  return eventually(async () => {
    const found: Body = JSON.parse(await read(options, '/v1/admin/reconcile'));
    return found.data.some(isPassing) ? null : found;
  });
}
