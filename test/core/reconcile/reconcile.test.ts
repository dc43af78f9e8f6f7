import { describe, expect, it } from 'vitest';
import { type Body, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { runCli } from '#test/cli/run-cli.ts';
import { enoughOfTheHour, reconcile, reconcileAtRest, sendMix } from '#test/reconcile/mixed-traffic.ts';

const bench = useInference(async () => {
  await enoughOfTheHour();
  return {
    engines: {
      chat: standinFile('chat'),
      embed: standinFile('embed', { taskType: 'embedding' }),
    },
  };
});

const cli = (...args: readonly string[]) =>
  runCli(['reconcile', ...args], { env: { HEADGATE_URL: bench.gateway.url, HEADGATE_API_KEY: bench.gateway.key } });

describe('GET /v1/admin/reconcile', () => {
  it('returns 401 without a key and 403 for a user who is not a platform administrator', async () => {
    const { key } = await openOrganization(bench.gateway, null);
    expect((await bench.gateway.request('/v1/admin/reconcile', { key: null })).status).toBe(401);
    expect((await bench.gateway.request('/v1/admin/reconcile', { key })).status).toBe(403);
  });

  it.each([
    ['?from=2026-01-01&to=2026-02-02', 'at most 31 days'],
    ['?from=2026-01-02&to=2026-01-01', 'after'],
    ['?from=2999-01-01', 'future'],
    ['?from=yesterday', 'RFC 3339'],
    ['?since=2026-01-01', 'since'],
  ])('returns 400 for an invalid span: %s', async (query, words) => {
    const answer = await bench.gateway.request(`/v1/admin/reconcile${query}`);
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain(words);
  });
});

describe('ledger, usage and counters', () => {
  it('balance to the token', async () => {
    await sendMix(bench, { standin: { tpot_ms: 5, output_tokens: 1500 } });
    const embedded = await bench.post('/v1/embeddings', { model: 'embed', input: ['one', 'two and more'] });
    expect(embedded.status).toBe(200);
    const found = await reconcileAtRest(bench);
    expect(found).toMatchObject({ balanced: true, unexplained: 0, ledger_differences: [] });
    const models = new Set(found.data.map(({ model }: Body) => model));
    expect(models).toEqual(new Set(['chat', 'embed']));
    for (const line of found.data) {
      expect(line, JSON.stringify(line)).toMatchObject({
        state: 'balanced',
        difference: { cost: '0', prompt_tokens: 0, completion_tokens: 0 },
      });
      expect(line.engines.prompt_tokens).toBeGreaterThan(0);
      const kinds = line.explanations.map(({ kind }: Body) => kind);
      expect(kinds).toEqual(line.model === 'chat' ? ['choices', 'probe'] : ['probe']);
    }
    const chat = found.data.find(({ model }: Body) => model === 'chat');
    expect(chat.engines.prompt_tokens).toBeGreaterThan(chat.usage.prompt_tokens);
    const { code, stdout } = await cli();
    expect(stdout).toContain('balanced: every difference is explained');
    expect(code).toBe(0);
  });
});

describe('the detection of altered data', () => {
  const { stringify } = JSON;
  /** As somebody does who has the database: past the triggers that keep the ledger as it is. */
  const altered = (text: string) =>
    bench.gateway.db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx.unsafe(text);
    });
  const lineOf = (found: Body): Body => found.data.find(({ model }: Body) => model === 'chat');
  /** Runs a statement, compares, and runs another that makes it good again. */
  const doctored = async (spoil: string, mend: string) => {
    await altered(spoil);
    const found = await reconcile(bench);
    const { code, stdout } = await cli();
    await altered(mend);
    expect((await reconcile(bench)).balanced, stringify(found)).toBe(true);
    expect(code).toBe(1);
    expect(stdout).toContain('NOT EXPLAINED');
    return found;
  };

  it('finds a removed record, and the command fails', async () => {
    const found = await doctored(
      `create table removed as select * from usage_requests where cost > 0 and outcome = 'completed' limit 1;
       delete from usage_requests where id = (select id from removed)`,
      'insert into usage_requests select * from removed; drop table removed',
    );
    expect(found.ledger_differences).toHaveLength(1);
    expect(found.data.some(({ model, problem }: Body) => model === null && problem.includes('records: 1'))).toBe(true);
    expect(lineOf(found).problem).toMatch(/sums of the hour .*engines counted \d+ prompt tokens more/);
  });

  it('finds a record removed together with its part of the sums and the ledger', async () => {
    const found = await doctored(
      `create table removed as select * from usage_requests where cost > 0 and outcome = 'completed' limit 1;
       create table kept_hours as select * from usage_hourly;
       create table kept_entries as select * from ledger_entries;
       update usage_hourly h set requests = h.requests - 1, completed = h.completed - 1,
         input_tokens = h.input_tokens - r.input_tokens, output_tokens = h.output_tokens - r.output_tokens,
         cost = h.cost - r.cost from removed r
         where h.organization = r.organization and h.key = r.key and h.project = r.project and h.model = r.model
           and h.hour = date_trunc('hour', uuid_extract_timestamp(r.id));
       delete from ledger_entries e using removed r where e.id = r.id and e.requests = 1;
       update ledger_entries e set requests = e.requests - 1, amount = e.amount - r.cost from removed r
         where e.group_id = r.group_id;
       delete from usage_requests where id = (select id from removed)`,
      `insert into usage_requests select * from removed; delete from usage_hourly;
       insert into usage_hourly select * from kept_hours; delete from ledger_entries;
       insert into ledger_entries select * from kept_entries; drop table removed, kept_hours, kept_entries`,
    );
    expect(found.ledger_differences).toEqual([]);
    expect(lineOf(found).problem).toMatch(/^the engines counted \d+ prompt tokens more than the records/);
  });

  it('finds altered sums of an hour', async () => {
    const found = await doctored(
      'update usage_hourly set cost = cost + 1 where cost > 0',
      'update usage_hourly set cost = cost - 1 where cost > 0',
    );
    expect(lineOf(found).problem).toBe('the sums of the hour differ from its records');
  });

  it('finds an altered amount of a ledger entry', async () => {
    const found = await doctored(
      "update ledger_entries set amount = amount + 5 where type = 'usage'",
      "update ledger_entries set amount = amount - 5 where type = 'usage'",
    );
    expect(found.ledger_differences.length).toBeGreaterThan(0);
    expect(lineOf(found).difference.cost).not.toBe('0');
  });

  it('finds a removed ledger entry', async () => {
    const found = await doctored(
      "create table gone as select * from ledger_entries where type = 'usage'; delete from ledger_entries where type = 'usage'",
      'insert into ledger_entries select * from gone; drop table gone',
    );
    expect(found.ledger_differences.every(({ entry_id: id }: Body) => id === null)).toBe(true);
  });

  it('finds an altered token count of an engine in an hour', async () => {
    const hour = "(select min(hour) from replica_hours) - interval '1 hour'";
    const found = await doctored(
      `insert into replica_hours (run_id, hour, prompt_tokens, generation_tokens, requests, scraped_at)
         select id, ${hour}, 0, 7, 0, ${hour} from replica_runs where model = 'chat'`,
      'delete from replica_hours where generation_tokens = 7 and prompt_tokens = 0',
    );
    expect(lineOf(found).problem).toBe('the engines counted 7 completion tokens more than the records');
  });
});
