import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { UsageRecord } from '#core/metering/metering.ts';
import { type Body, recordOf, type TestOrganization, useGateway } from '#test/metering/recorded-usage.ts';

/** Hours of a day in the past, each test on a day and with a model of its own. */
const bench = useGateway();
let organization: TestOrganization;
let day = 0;
let model = '';

beforeAll(async () => {
  organization = await bench.openOrganization();
});

const at = (time: string): number => Date.parse(`2026-05-${String(day).padStart(2, '0')}T${time}Z`);

function begin(): void {
  day += 1;
  model = `model ${day}`;
}

/** Tokens of a request that ran for some seconds. */
interface Used {
  readonly from: string;
  readonly seconds: number;
  readonly input: number;
  readonly output: number;
  readonly more?: Partial<UsageRecord>;
}

async function use(...all: readonly Used[]): Promise<void> {
  for (const { from, seconds, input, output, more } of all) {
    const usage = {
      inputTokens: input,
      cachedTokens: 0,
      cacheWriteTokens: 0,
      outputTokens: output,
      reasoningTokens: 0,
    };
    await bench.metering.settle(
      recordOf(organization, at(from), { model, usage, totalMs: seconds * 1000, costPicoUsd: 7n, ...more }),
    );
  }
}

interface RunFields {
  readonly from: string;
  readonly to?: string;
  readonly ended?: 'clean' | 'unclean';
  readonly first?: readonly [prompt: number, generation: number];
  /** When it was read, and what its counters said. */
  readonly read: readonly (readonly [time: string, prompt: number, generation: number])[];
}

async function run({ from, to, ended, first = [0, 0], read }: RunFields): Promise<void> {
  const { sql } = bench.gateway.db;
  const id = randomUUID();
  const last = read.at(-1);
  const moment = (time: string | undefined): string | null =>
    time === undefined ? null : new Date(at(time)).toISOString();
  await sql`insert into replica_runs (id, scope, model, replica, driver, host, gpus, spec_hash, started_at, ended_at,
      ended, end_reason, prompt_tokens_first, generation_tokens_first, requests_first, scraped_at)
    values (${id}, 'test', ${model}, ${id}, 'docker', 'here', '[]', 'h', ${moment(from)}, ${moment(to)},
      ${ended ?? null}, 'test', ${first[0]}, ${first[1]}, 0, ${moment(last?.[0])})`;
  for (const [time, prompt, generation] of read) {
    await sql`insert into replica_hours (run_id, hour, prompt_tokens, generation_tokens, requests, scraped_at)
      values (${id}, date_trunc('hour', ${moment(time)}::timestamptz, 'UTC'), ${prompt}, ${generation}, 0,
        ${moment(time)})`;
  }
}

interface Line {
  readonly hour: string;
  readonly state: string;
  readonly kinds: readonly string[];
  readonly unexplained: readonly [prompt: number, completion: number];
}

async function compare(from: string, to: string): Promise<readonly Line[]> {
  const span = [from, to].map((time) => new Date(at(time)).toISOString());
  const found: Body = await bench.ask(`/v1/admin/reconcile?from=${span[0]}&to=${span[1]}`, bench.gateway.key);
  return found.data
    .filter((line: Body) => line.model === model)
    .map((line: Body) => ({
      hour: new Date(line.hour * 1000).toISOString().slice(11, 13),
      state: line.state,
      kinds: line.explanations.map(({ kind }: Body) => kind),
      unexplained: [line.unexplained.prompt_tokens, line.unexplained.completion_tokens],
    }));
}

const clean = { to: '13:00:00', ended: 'clean' } as const;

describe('a request that runs past the end of its hour', () => {
  it('is counted in two hours, and both are explained', async () => {
    begin();
    await use({ from: '10:59:30', seconds: 60, input: 10, output: 40 });
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:55', 10, 15],
        ['11:30:00', 10, 40],
      ],
    });
    expect(await compare('10:00:00', '12:00:00')).toEqual([
      { hour: '10', state: 'explained', kinds: ['carried'], unexplained: [0, 0] },
      { hour: '11', state: 'explained', kinds: [], unexplained: [0, 0] },
    ]);
  });

  it('is explained when it began before the span', async () => {
    begin();
    await use({ from: '10:59:30', seconds: 60, input: 10, output: 40 });
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:55', 10, 15],
        ['11:30:00', 10, 40],
      ],
    });
    expect(await compare('11:00:00', '12:00:00')).toMatchObject([{ hour: '11', state: 'explained' }]);
  });

  it('explains no more than its own tokens', async () => {
    begin();
    await use({ from: '10:59:30', seconds: 60, input: 10, output: 40 });
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:55', 10, 15],
        ['11:30:00', 10, 45],
      ],
    });
    expect(await compare('10:00:00', '12:00:00')).toMatchObject([
      { hour: '10', state: 'explained' },
      { hour: '11', state: 'unexplained', unexplained: [0, 5] },
    ]);
  });

  it('is explained when it waited for a cold engine that started in the next hour', async () => {
    begin();
    await use({ from: '10:59:30', seconds: 90, input: 10, output: 40 });
    await run({ from: '11:00:10', ...clean, read: [['11:30:00', 10, 40]] });
    expect(await compare('10:00:00', '12:00:00')).toMatchObject([
      { hour: '10', state: 'explained', kinds: ['carried'] },
      { hour: '11', state: 'explained' },
    ]);
  });

  it('is explained when it ended just after the last reading of the hour, not when it ended before', async () => {
    begin();
    await use({ from: '10:59:40', seconds: 15, input: 10, output: 40 });
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:50', 0, 0],
        ['11:30:00', 10, 40],
      ],
    });
    expect(await compare('10:00:00', '12:00:00')).toMatchObject([{ state: 'explained' }, { state: 'explained' }]);
    begin();
    await use({ from: '10:59:20', seconds: 15, input: 10, output: 40 });
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:50', 0, 0],
        ['11:30:00', 10, 40],
      ],
    });
    expect(await compare('10:00:00', '12:00:00')).toMatchObject([
      { hour: '10', state: 'unexplained', unexplained: [-10, -40] },
      { hour: '11', state: 'unexplained', unexplained: [10, 40] },
    ]);
  });
});

describe('a run of a replica', () => {
  it('explains what was served since its last reading when it ended unclean', async () => {
    begin();
    await use(
      { from: '10:10:00', seconds: 5, input: 10, output: 20 },
      { from: '10:20:02', seconds: 5, input: 10, output: 20 },
    );
    await run({ from: '10:00:00', to: '10:20:08', ended: 'unclean', read: [['10:20:00', 10, 20]] });
    expect(await compare('10:00:00', '11:00:00')).toEqual([
      { hour: '10', state: 'explained', kinds: ['replica_ended'], unexplained: [0, 0] },
    ]);
  });

  it('explains nothing when it ended clean', async () => {
    begin();
    await use({ from: '10:20:02', seconds: 5, input: 10, output: 20 });
    await run({ from: '10:00:00', to: '10:20:08', ended: 'clean', read: [['10:20:00', 0, 0]] });
    expect(await compare('10:00:00', '11:00:00')).toEqual([
      { hour: '10', state: 'unexplained', kinds: [], unexplained: [-10, -20] },
    ]);
  });

  it('explains earlier hours in which no engine of the model was read when the replica was discovered', async () => {
    begin();
    await use(
      { from: '08:59:00', seconds: 1, input: 30, output: 3 },
      { from: '09:59:58', seconds: 10, input: 20, output: 10 },
      { from: '10:00:20', seconds: 1, input: 5, output: 2 },
    );
    await run({ from: '10:00:30', first: [100, 50], read: [['10:59:59', 100, 50]] });
    expect(await compare('08:00:00', '11:00:00')).toMatchObject([
      { hour: '08', state: 'explained', kinds: ['replica_found'] },
      { hour: '09', state: 'explained', kinds: ['carried', 'replica_found'] },
      { hour: '10', state: 'explained', kinds: ['replica_found'] },
    ]);
  });

  it('explains nothing of an hour in which an engine was read', async () => {
    begin();
    await use({ from: '09:30:00', seconds: 1, input: 30, output: 3 });
    await run({ from: '09:00:00', to: '09:40:00', ended: 'clean', read: [['09:39:00', 0, 0]] });
    await run({ from: '10:00:30', first: [100, 50], read: [['10:59:59', 100, 50]] });
    expect(await compare('08:00:00', '11:00:00')).toMatchObject([{ hour: '09', state: 'unexplained' }]);
  });

  it('explains the earlier usage of its hour when the replica was discovered', async () => {
    begin();
    await use(
      { from: '10:10:00', seconds: 5, input: 10, output: 20 },
      { from: '10:40:00', seconds: 5, input: 1, output: 2 },
    );
    await run({ from: '10:30:00', ...clean, first: [500, 600], read: [['10:59:55', 501, 602]] });
    expect(await compare('10:00:00', '11:00:00')).toEqual([
      { hour: '10', state: 'explained', kinds: ['replica_found'], unexplained: [0, 0] },
    ]);
  });

  it('counts as ended when it is no longer read, and explains no later hour', async () => {
    begin();
    await use({ from: '15:10:00', seconds: 5, input: 10, output: 20 });
    await run({ from: '10:00:00', read: [['10:20:00', 0, 0]] });
    expect(await compare('10:00:00', '16:00:00')).toMatchObject([
      { hour: '10', kinds: ['replica_ended'] },
      { hour: '15', state: 'unexplained', unexplained: [-10, -20] },
    ]);
  });

  it('is summed with parallel runs, and continues over hours without requests', async () => {
    begin();
    await use(
      { from: '10:10:00', seconds: 5, input: 10, output: 20 },
      { from: '12:10:00', seconds: 5, input: 3, output: 4, more: { choices: 2 } },
    );
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:55', 4, 20],
        ['11:59:55', 4, 20],
        ['12:59:55', 10, 24],
      ],
    });
    await run({
      from: '10:00:00',
      ...clean,
      read: [
        ['10:59:55', 6, 0],
        ['12:59:55', 6, 0],
      ],
    });
    expect(await compare('10:00:00', '13:00:00')).toMatchObject([
      { hour: '10', state: 'balanced' },
      { hour: '12', state: 'balanced' },
    ]);
  });
});

describe('recorded requests', () => {
  it('explain more tokens, never fewer, when they were aborted before the last count', async () => {
    begin();
    const more = { outcome: 'aborted', usageSource: 'last_seen', status: 200 } as const;
    await use({ from: '10:10:00', seconds: 5, input: 10, output: 20, more });
    await run({ from: '10:00:00', ...clean, read: [['10:59:55', 10, 23]] });
    expect(await compare('10:00:00', '11:00:00')).toMatchObject([{ state: 'explained', kinds: ['unsure'] }]);
    await bench.gateway.db.sql`update replica_hours set generation_tokens = 19 where generation_tokens = 23`;
    expect(await compare('10:00:00', '11:00:00')).toMatchObject([{ state: 'unexplained', unexplained: [0, -1] }]);
  });

  it('explain no more tokens than they asked for when they were aborted before the last count', async () => {
    begin();
    const most = { promptTokensMax: 30, completionTokensMax: 8 };
    const more = { outcome: 'aborted', usageSource: 'last_seen', status: 200, ...most } as const;
    await use({ from: '10:10:00', seconds: 5, input: 10, output: 20, more });
    await run({ from: '10:00:00', ...clean, read: [['10:59:55', 40, 28]] });
    expect(await compare('10:00:00', '11:00:00')).toMatchObject([{ state: 'explained', kinds: ['unsure'] }]);
    await bench.gateway.db.sql`update replica_hours set generation_tokens = 29 where generation_tokens = 28`;
    expect(await compare('10:00:00', '11:00:00')).toMatchObject([{ state: 'unexplained', unexplained: [0, 1] }]);
  });

  it('use no engine when they came from the response cache', async () => {
    begin();
    const more = { cacheHit: true, usageSource: 'none' } as const;
    await use({ from: '10:10:00', seconds: 0, input: 0, output: 0, more: { ...more, costPicoUsd: 0n } });
    expect(await compare('10:00:00', '11:00:00')).toEqual([
      { hour: '10', state: 'balanced', kinds: ['cache_hit'], unexplained: [0, 0] },
    ]);
  });

  it.each(['/v1/messages/count_tokens', '/v1/responses/input_tokens', '/v1/tokenize', '/v1/detokenize'])(
    'explain nothing when they are for %s',
    async (endpoint) => {
      begin();
      const free = { endpoint, usageSource: 'none', costPicoUsd: 0n } as const;
      const nothing = { from: '10:10:00', seconds: 1, input: 0, output: 0 };
      await use(
        { ...nothing, more: free },
        { ...nothing, more: { ...free, outcome: 'failed', status: 502 } },
        { ...nothing, from: '10:59:59', more: { ...free, outcome: 'aborted', status: 499 } },
      );
      await run({
        from: '10:00:00',
        ...clean,
        read: [
          ['10:59:55', 30, 20],
          ['11:30:00', 37, 27],
        ],
      });
      expect(await compare('10:00:00', '12:00:00')).toEqual([
        { hour: '10', state: 'unexplained', kinds: [], unexplained: [30, 20] },
        { hour: '11', state: 'unexplained', kinds: [], unexplained: [7, 7] },
      ]);
    },
  );

  it('are compared with the ledger only when their engine has no counters', async () => {
    begin();
    await use({ from: '10:10:00', seconds: 5, input: 10, output: 20 });
    await run({ from: '10:00:00', ...clean, read: [] });
    expect(await compare('10:00:00', '11:00:00')).toMatchObject([{ state: 'balanced' }]);
  });
});
