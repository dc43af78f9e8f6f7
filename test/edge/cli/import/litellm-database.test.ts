import { createHash } from 'node:crypto';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { litellmTables } from './litellm-tables.ts';

const api = useApi();
let database: TestDatabase;
let litellm: postgres.Sql;

beforeAll(async () => {
  database = await createTestDatabase();
  litellm = postgres(database.url, { max: 1, onnotice: () => undefined });
  await litellm.unsafe(`create schema litellm; set search_path to litellm; ${litellmTables}`);
});

afterAll(async () => {
  await litellm.end();
  await database.drop();
});

/** The URL as LiteLLM itself has it: with parameters of Prisma. */
const databaseUrl = (): string => `${database.url}?schema=litellm&connection_limit=10`;
const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex');
const soon = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, -1);

type Row = Readonly<Record<string, unknown>>;

async function insert(table: string, row: Row): Promise<void> {
  await litellm`insert into ${litellm(`litellm.LiteLLM_${table}`)} ${litellm(row)}`;
}

/** Stores a key as LiteLLM does. */
const addKey = (secret: string, row: Row = {}): Promise<void> =>
  insert('VerificationToken', { token: hashOf(secret), key_name: `sk-...${secret.slice(-4)}`, models: [], ...row });
const addTeam = (row: Row): Promise<void> => insert('TeamTable', { models: [], admins: [], members: [], ...row });

/** Empties LiteLLM's tables, and returns a function that imports them into an organization. */
async function begin() {
  await litellm`truncate litellm."LiteLLM_VerificationToken", litellm."LiteLLM_TeamTable", litellm."LiteLLM_BudgetTable", litellm."LiteLLM_UserTable"`;
  const { id, key } = await api().organization();
  const run = (...flags: readonly string[]) =>
    say(['import', 'litellm', '--database', databaseUrl(), '--org', id, ...flags], {
      url: api().url,
      key: api().admin,
    });
  return { id, key, run };
}

const ownKey = (secret: string) => api().ask('/v1/key', { key: secret });

describe('headgate import litellm --database', () => {
  it('takes over teams and keys with limits, models and budgets, and old secrets work', async () => {
    const { run } = await begin();
    const monthly = { budget_duration: '30d', budget_reset_at: soon(2) };
    await addTeam({
      team_id: 't1',
      team_alias: 'Search',
      models: ['model-a', 'model-b'],
      max_budget: 25,
      spend: 12.345678,
      ...monthly,
    });
    await insert('BudgetTable', {
      budget_id: 'tier',
      max_budget: 50,
      rpm_limit: 30,
      created_by: '',
      updated_by: '',
      ...monthly,
    });
    await addKey('sk-old-app', {
      key_alias: 'app',
      team_id: 't1',
      models: ['model-a', 'model-c'],
      tpm_limit: 2000,
      max_parallel_requests: 4,
      expires: soon(30),
    });
    await addKey('sk-old-tier', { budget_id: 'tier', spend: 1e-7 });
    await addKey('sk-old-past', { max_budget: 5, spend: 4, budget_duration: '1d', budget_reset_at: soon(-1) });

    await addKey('sk-old-life', { max_budget: 3, spend: 3.5 });
    await addKey('sk-old-week', { max_budget: 7, spend: 1, budget_duration: '7d', budget_reset_at: soon(3) });

    const dry = await run('--dry-run');
    expect(dry.stdout).toContain('2 projects and 5 keys would be created');
    expect((await ownKey('sk-old-app')).status).toBe(401);

    const { stdout, code } = await run();
    expect(stdout).toContain(
      '2 projects and 5 keys created, 0 projects and 0 keys exist, 0 projects and 0 keys in conflict',
    );
    expect(stdout).toContain('key app: models that its team does not allow: not imported: model-c');
    expect(code).toBe(0);
    const app = (await ownKey('sk-old-app')).body;
    expect(app.data).toMatchObject({
      name: 'app',
      label: 'sk-…-app',
      models: ['model-a'],
      limits: { requests_per_minute: null, tokens_per_minute: { limit: 2000 }, max_concurrency: { limit: 4 } },
      usage: 0,
      budgets: [{ scope: { type: 'project' }, amount: '25', spent: '12.345678', period: 'monthly', mode: 'hard' }],
    });
    expect(app.data.expires_at).not.toBeNull();
    expect((await ownKey('sk-old-tier')).body.data).toMatchObject({
      limits: { requests_per_minute: { limit: 30 } },
      budgets: [{ amount: '50', spent: '0.0000001' }],
    });
    // LiteLLM has not reset this spending yet.
    expect((await ownKey('sk-old-past')).body.data.budgets).toMatchObject([
      { amount: '5', spent: '0', period: 'daily' },
    ]);
    const budgetsOf = async (secret: string) => (await ownKey(secret)).body.data.budgets;
    expect(await budgetsOf('sk-old-life')).toMatchObject([
      { period: 'total', amount: '3', spent: '3.5', remaining: '0' },
    ]);
    expect(await budgetsOf('sk-old-week')).toMatchObject([{ period: 'weekly', amount: '7', spent: '1' }]);
  });

  it('changes nothing the second time, also after a rotation or revocation', async () => {
    const { key: admin, run } = await begin();
    await addKey('sk-kept', { key_alias: 'kept' });
    await addKey('sk-gone', { key_alias: 'gone' });
    await run();
    const { data } = (await api().ask('/v1/keys?limit=100', { key: admin })).body;
    const idOf = (name: string): string => data.find((key: { name: string }) => key.name === name).id;
    const kept = `/v1/keys/${idOf('kept')}`;
    await api().ask(kept, { key: admin, method: 'PATCH', body: { name: 'renamed' } });
    const { body } = await api().ask(`${kept}/rotate`, { key: admin, body: { grace_seconds: 60 } });
    expect((await ownKey(body.secret)).status).toBe(200);
    expect((await ownKey('sk-kept')).status).toBe(200);
    await api().ask(`/v1/keys/${idOf('gone')}`, { key: admin, method: 'DELETE' });
    expect((await ownKey('sk-gone')).status).toBe(401);
    await api().db.sql`delete from api_key_former_secrets`;

    expect((await run()).stdout).toContain('0 projects and 0 keys created, 1 projects and 2 keys exist');
    expect((await api().ask(kept, { key: admin })).body).toMatchObject({ name: 'renamed', last4: body.last4 });
    expect((await ownKey('sk-gone')).status).toBe(401);
    const other = await api().organization();
    const elsewhere = await say(['import', 'litellm', '--database', databaseUrl(), '--org', other.id], {
      url: api().url,
      key: api().admin,
    });
    expect(elsewhere.stdout).toContain('key gone: not imported: Another organization has a key with this secret.');
    expect(elsewhere.code).toBe(1);
  });

  it('imports more keys than fit into a request, and gateways that got no message accept them', async () => {
    const { keys } = api().secondRooms();
    await keys.start();
    const { run } = await begin();
    await litellm`
      insert into litellm."LiteLLM_VerificationToken" (token, key_alias, models, max_budget, budget_duration)
      select encode(sha256(('sk-' || n)::bytea), 'hex'), n, '{}', 1, '1d' from generate_series(1, 120) n`;
    await addKey('sk-second');
    expect((await run()).stdout).toContain('1 projects and 121 keys created');
    expect(await keys.verify('sk-second')).toBeNull();
    await keys.lookForChanges();
    expect(await keys.verify('sk-second')).not.toBeNull();
  });

  it('names what is not imported, and imports no key that LiteLLM rejects', async () => {
    const { run } = await begin();
    await addTeam({ team_id: 'blocked', team_alias: 'Blocked', blocked: true });
    await addTeam({ team_id: 'a', team_alias: 'Twin' });
    await addTeam({
      team_id: 'b\u0001',
      team_alias: `twin\u001B[31m`,
      rpm_limit: 5,
      metadata: litellm.json({ password: 'hunter22' }),
    });
    await insert('UserTable', { user_id: 'anna', models: [] });
    const refused: readonly (readonly [string, Row, string])[] = [
      ['k1', { blocked: true }, 'it is blocked'],
      ['k2', { expires: soon(-1) }, 'it has expired'],
      ['k3', { token: 'sk-plain' }, 'its token is not a SHA-256'],
      ['k4', { models: ['gpt-4o'] }, 'None of its models exists here.'],
      ['k5', { max_budget: 0 }, 'its budget allows no requests'],
      ['k6', { max_budget: Number.NaN, budget_duration: '30d' }, 'max_budget or spend is not a number'],
      [
        'k7',
        { max_budget: 1, spend: Number.POSITIVE_INFINITY, budget_duration: '30d' },
        'its budget allows no requests',
      ],
      ['k9', { rpm_limit: 0 }, 'its rpm_limit allows no requests'],
      ['k10', { team_id: 'missing' }, 'its team does not exist'],
      ['k11', { allowed_routes: ['management_routes'] }, 'it may not call models'],
    ];
    for (const [alias, row] of refused) await addKey(`sk-${alias}`, { key_alias: alias, ...row });
    await addKey('sk-of-blocked', { team_id: 'blocked' });
    await addKey('sk-dashboard', { team_id: 'litellm-dashboard' });
    const long = `\u0007${'x'.repeat(199)}😀${'y'.repeat(300)}`;
    await addKey('sk-odd', {
      key_alias: long,
      key_name: 'sk-...\n\n\n\n',
      max_budget: Number.POSITIVE_INFINITY,
      tpm_limit: '9223372036854775807',
      aliases: litellm.json({ fast: 'model-a' }),
    });
    await litellm.unsafe(
      `update litellm."LiteLLM_VerificationToken" set expires = 'infinity' where key_alias like '%xx%'`,
    );
    await addKey('sk-odd-days', {
      key_alias: 'odd days',
      max_budget: 7,
      budget_duration: '3d',
      model_max_budget: litellm.json({ x: 1 }),
      max_parallel_requests: 2,
    });

    const { stdout } = await run();
    for (const [alias, , reason] of refused) {
      expect(stdout).toContain(`key ${alias}: not imported: ${reason}`);
      expect((await ownKey(`sk-${alias}`)).status).toBe(401);
    }
    for (const line of [
      'team Blocked: not imported, with its keys (1): it is blocked',
      'LiteLLM: dashboard sessions (1): not imported',
      'LiteLLM: internal users, with their budgets (1): not imported',
      'metadata (password): not imported',
      'rpm_limit: not imported; Headgate limits keys',
      'key odd days: max_budget: not imported; 7 USD per 3d, of which 0 are spent',
      'key odd days: model_max_budget (x): not imported',
      'aliases (fast): not imported',
      'max_budget: not imported; it is above',
    ])
      expect(stdout).toContain(line);
    for (const text of ['hunter22', '\u001B', '\u0007']) expect(stdout).not.toContain(text);
    expect((await ownKey('sk-odd')).body.data).toMatchObject({
      name: 'x'.repeat(199),
      expires_at: null,
      label: 'sk-…',
    });
    expect((await ownKey('sk-of-blocked')).status).toBe(401);
    expect((await run()).stdout).toContain('3 projects and 2 keys exist');
  });

  it('imports keys whose models have odd names, and all beside them', async () => {
    const { run } = await begin();
    await addTeam({ team_id: 't1', team_alias: 'LiteLLM keys without a team' });
    const odd = ['', 'x'.repeat(600), 'a\nb'];
    await addKey('sk-odd-models', { key_alias: 'odd', team_id: 't1', models: [...odd, 'model-a'] });
    await addKey('sk-none', { key_alias: 'none', models: odd });
    await addKey('sk-null', { key_alias: 'null' });
    await addKey('sk-far', { key_alias: 'far' });
    await litellm.unsafe(`
      update litellm."LiteLLM_VerificationToken" set models = array[null]::text[] where key_alias = 'null';
      update litellm."LiteLLM_VerificationToken" set expires = '20000-01-01' where key_alias = 'far'`);
    const { stdout, code } = await run();
    expect(stdout).toContain(`key odd: models that cannot exist here: not imported: "", "${'x'.repeat(50)}", "a b"`);
    for (const name of ['none', 'null']) {
      expect(stdout).toContain(`key ${name}: not imported: none of its models can exist here`);
      expect((await ownKey(`sk-${name}`)).status).toBe(401);
    }
    expect([stdout, code]).toEqual([expect.stringContaining('2 projects and 2 keys created'), 0]);
    expect((await ownKey('sk-odd-models')).body.data.models).toEqual(['model-a']);
    expect((await ownKey('sk-far')).body.data.expires_at).toBeNull();
  });

  it('divides keys with many long names of models between requests', async () => {
    const { run } = await begin();
    await litellm`
      insert into litellm."LiteLLM_VerificationToken" (token, key_alias, models)
      select encode(sha256(('sk-long-' || n)::bytea), 'hex'), n,
        array(select repeat('ü', 480) || m from generate_series(1, 199) m) || array['model-a']
      from generate_series(1, 12) n`;
    expect((await run()).stdout).toContain('1 projects and 12 keys created');
  });

  it('gives a secret to one organization when two import it at once', async () => {
    const organizations = await Promise.all([api().organization(), api().organization()]);
    const hashes = Array.from({ length: 20 }, (_, n) => hashOf(`sk-twice-${n}`));
    const answers = await Promise.all(
      organizations.map(({ id }, index) => {
        const sources = index === 0 ? hashes : hashes.toReversed();
        const keys = sources.map((hash) => ({ secret_sha256: hash, prefix: 'sk-', last4: '', name: 'k' }));
        const body = { organization_id: id, project: { imported_from: 'x', name: 'x' }, keys };
        return api().ask('/v1/imports', { key: api().admin, body });
      }),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    const statuses = answers.map(({ body }) => new Set(body.keys.map((key: { status: string }) => key.status)));
    expect(statuses).toEqual(expect.arrayContaining([new Set(['created']), new Set(['conflict'])]));
  });

  it('rejects wrong usage, other databases and keys of organizations', async () => {
    const { key, run } = await begin();
    const place = { url: api().url, key };
    const other = (url: string) => say(['import', 'litellm', '--database', url], place);
    expect((await other('mysql://x')).stderr).toContain('database must be a URL such as postgres://');
    expect((await other(database.url)).stderr).toContain('the schema public has no tables of LiteLLM');
    expect((await other('postgres://u:hunter22@127.0.0.1:1/x')).stderr).toMatch(/cannot be read \((?!.*hunter22)/);
    for (const url of ['postgres://u:100%hunter22@127.0.0.1:1/x', 'postgres://127.0.0.1:1/x?schema=%00']) {
      expect((await other(url)).stderr).toMatch(
        /^headgate: LiteLLM's database: write % in the URL as %25(?!.*hunter22)/,
      );
    }
    expect((await say(['import', 'litellm'], place)).stderr).toContain('give the file config.yaml, or --database URL');
    expect((await say(['import', 'litellm', 'x', '--dry-run'], place)).stderr).toContain(
      '--dry-run requires --database',
    );
    expect((await run('--force')).stderr).toContain('--force is for files');
    await addKey('sk-mine');
    expect((await other(databaseUrl())).stderr).toContain('platform administrator');
  });
});
