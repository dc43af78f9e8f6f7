import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { eventually, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { createTestDatabase } from '#test/database.ts';
import { startGateway } from '#test/gateway.ts';
import { enoughOfTheDay } from '#test/one-day.ts';
import { makePerson, sendForm, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The overview as a home: first steps that are marked when they are done, and what is wrong now. */

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
let admin: Visitor;

beforeEach(enoughOfTheDay);

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
});

interface Own {
  readonly organizationId: string;
  readonly key: string;
  readonly email: string;
  readonly owner: Visitor;
}

async function openOwned(role = 'admin'): Promise<Own> {
  const { id, key } = await openOrganization(bench.gateway, '1');
  const { email } = await makePerson(bench.gateway, { role }, key);
  return { organizationId: parseId('org', id) ?? '', key, email, owner: await signInPerson(bench.gateway, email) };
}

async function make<T = { id: string }>(path: string, key: string, body: object): Promise<T> {
  const made = await bench.gateway.request(path, { key, body });
  expect(made.status).toBe(201);
  return (await made.json()) as T;
}

/** The titles of the first steps that are done, and of those that are not. */
function stepsIn({ text }: Shown) {
  const titles = [...text.matchAll(/<h3>([^<]*?)\s*(<span class="badge good">done<\/span>)?\s*<\/h3>/g)];
  const named = titles.map(([, title = '', done]) => ({ title, isDone: done !== undefined }));
  return {
    done: named.filter(({ isDone }) => isDone).map(({ title }) => title),
    open: named.filter(({ isDone }) => !isDone).map(({ title }) => title),
  };
}

const troublesIn = ({ text }: Shown): string =>
  (/<ul class="troubles">[^]*?<\/ul>/.exec(text)?.[0] ?? '')
    .replaceAll(/<[^>]*>/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();

describe('the first steps', () => {
  it('are marked one by one as they are done, also while the page refreshes itself', async () => {
    const { owner, key } = await openOwned();
    // The key that manages the organization is its first one.
    expect(stepsIn(await owner.get('/'))).toEqual({ done: ['API key', 'Password'], open: ['First request'] });
    await (await bench.chat({}, { key })).text();
    await eventually(async () => stepsIn(await owner.get('/', { 'x-poll': '1' })).open.length === 0);
    expect(stepsIn(await owner.get('/')).done).toEqual(['First request', 'API key', 'Password']);
    const steps = stepsIn(await admin.get('/'));
    expect([...steps.done, ...steps.open]).toEqual(expect.arrayContaining(['Credit', 'Password']));
    expect(steps.open).toContain('Password');
  });

  it('stay away once a person put them away, also after signing out, until the person brings them back', async () => {
    const { owner, email } = await openOwned();
    const answer = await owner.post('/portal/first-steps', { steps: 'away' });
    expect([answer.status, answer.headers.location]).toEqual([303, '/']);
    const [set = ''] = answer.headers['set-cookie'] ?? [];
    expect(set).toContain('HttpOnly');
    const kept = set.split(';')[0] ?? '';
    const again = await signInPerson(bench.gateway, email);
    const cookie = `${again.cookie}; ${kept}`;
    const home = await again.get('/', { cookie });
    expect(stepsIn(home)).toEqual({ done: [], open: [] });
    expect(home.text).not.toContain('steps-title');
    expect(home.text).toContain('Show the first steps');
    // Each person of a browser decides for themselves.
    const other = await openOwned();
    expect((await other.owner.get('/', { cookie: `${other.owner.cookie}; ${kept}` })).text).toContain('steps-title');
    const back = await again.post('/portal/first-steps', { steps: 'back' }, { cookie });
    expect(String(back.headers['set-cookie'])).toContain(`${kept.split('=')[0]}=`);
    expect(String(back.headers['set-cookie'])).toContain('Max-Age=0');
    expect((await again.get('/')).text).toContain('steps-title');
  });

  it('are put away only by a form of the own session', async () => {
    const { owner } = await openOwned();
    const fields = { steps: 'away', form_token: 'x' };
    const forged = await sendForm(bench.gateway.url, '/portal/first-steps', fields, { cookie: owner.cookie });
    expect(forged.status).toBe(403);
  });
});

describe('what is wrong now', () => {
  it('is absent when all is well', async () => {
    const { owner } = await openOwned();
    expect((await owner.get('/')).text).not.toContain('Needs attention');
  });

  it('names budgets near their end and spent, for those who see them, until they are raised', async () => {
    const { sql } = bench.gateway.db;
    const { owner, key } = await openOwned();
    const project = await make('/v1/projects', key, { name: 'Night <b>shift' });
    const inference = await make<{ id: string; secret: string }>('/v1/keys', key, {
      name: 'crawler',
      project_id: project.id,
    });
    for (const _ of [1, 2, 3]) await (await bench.chat({}, { key: inference.secret })).text();
    const scope = { type: 'project', id: project.id };
    const budget = await make('/v1/budgets', key, { scope, period: 'monthly', mode: 'soft', amount: '0.000001' });
    const far = await make('/v1/budgets', key, {
      scope: { type: 'api_key', id: inference.id },
      period: 'daily',
      mode: 'soft',
      amount: '100',
    });
    const monthStart = `${new Date().toISOString().slice(0, 7)}-01`;
    for (const { id } of [budget, far]) {
      // As the check of every minute notes an alert.
      await sql`
        insert into budget_alerts (budget_id, period_start, end_user, percent, raised_at)
        values (${parseId('budget', id)}, ${id === far.id ? new Date().toISOString().slice(0, 10) : monthStart}, '', 80, now())
        on conflict do nothing`;
    }
    const home = await owner.get('/');
    expect(troublesIn(home)).toMatch(
      /^The budget of project Night &lt;b&gt;shift is spent: \$\S+ of \S+ \(month\)\. Budget$/,
    );
    expect(home.text).toContain(`href="/portal/budgets/${budget.id}"`);
    const stranger = await openOwned();
    expect(troublesIn(await stranger.owner.get('/'))).toBe('');
    const raise = { amount: '1', until: Math.floor(Date.now() / 1000) + 3600 };
    const raised = await bench.gateway.request(`/v1/budgets/${budget.id}`, { key, method: 'PATCH', body: { raise } });
    expect(raised.status).toBe(200);
    expect(troublesIn(await owner.get('/'))).toBe('');
  });

  it('names webhooks that the gateway disabled, and none that a person disabled', async () => {
    const { sql } = bench.gateway.db;
    const { owner, key } = await openOwned();
    const [gone, off] = [
      await make('/v1/webhooks', key, { url: 'https://example.com/in', description: 'Pager', events: null }),
      await make('/v1/webhooks', key, { url: 'https://example.com/off', description: 'Off', events: null }),
    ];
    await sql`
      update webhook_endpoints set enabled = false, disabled_reason = 'gone' where id = ${parseId('wh', gone.id)}`;
    await sql`update webhook_endpoints set enabled = false where id = ${parseId('wh', off.id)}`;
    const home = await owner.get('/');
    expect(troublesIn(home)).toBe('The webhook Pager was disabled: the receiver returned 410. Webhook');
    expect(home.text).toContain(`href="/portal/webhooks/${gone.id}"`);
    const member = await makePerson(bench.gateway, { role: 'member' }, key);
    expect(troublesIn(await (await signInPerson(bench.gateway, member.email)).get('/'))).toBe('');
  });

  it('names records in quarantine to platform administrators, who discard them on their page', async () => {
    const id = uuidv7();
    await bench.gateway.db.sql`
      insert into usage_quarantine (id, record, error, created_at) values (${id}, '{}', 'bad <b>bytes', now())`;
    expect(troublesIn(await admin.get('/'))).toContain('Usage records are in quarantine');
    const { owner } = await openOwned();
    expect(troublesIn(await owner.get('/'))).toBe('');
    expect((await owner.get('/portal/quarantine')).status).toBe(403);
    expect((await admin.get('/portal/quarantine')).text).toContain('bad &lt;b&gt;bytes');
    const retried = await admin.post(`/portal/quarantine/${id}/retry`);
    expect([retried.status, retried.text.includes('The record stays in quarantine')]).toEqual([409, true]);
    const empty = await admin.post(`/portal/quarantine/${id}/discard`, { reason: ' ' });
    expect(empty.status).toBe(400);
    const discarded = await admin.post(`/portal/quarantine/${id}/discard`, { reason: 'test record' });
    expect(discarded.headers.location).toBe('/portal/quarantine?notice=discarded');
    expect((await admin.get('/portal/quarantine?notice=discarded')).text).toContain('The record was discarded.');
    expect(troublesIn(await admin.get('/'))).not.toContain('quarantine');
  });
});

describe('an old backup', () => {
  it('is named to platform administrators', async () => {
    const database = await createTestDatabase();
    const { url: databaseUrl } = database;
    const first = await startGateway({ databaseUrl });
    const { email } = await makePerson(first, { role: 'owner' });
    await first.db.sql`insert into backups (name, made_at) values ('old', now() - interval '50 hours')`;
    await first.stop();
    const gateway = await startGateway({ databaseUrl, keepLimits: true });
    try {
      const text = 'The newest good backup is 50 hours old.';
      expect(troublesIn(await (await signInVisitor(gateway)).get('/'))).toContain(text);
      expect(troublesIn(await (await signInPerson(gateway, email)).get('/'))).toBe('');
    } finally {
      await gateway.stop();
      await database.drop();
    }
  });
});

describe('spend by project', () => {
  it('lists the projects that spent most, with a link to their usage', async () => {
    const { owner, key } = await openOwned();
    const ids: string[] = [];
    for (const name of ['Research', 'Support']) {
      const project = await make('/v1/projects', key, { name });
      ids.push(project.id);
      const inference = await make<{ secret: string }>('/v1/keys', key, { name, project_id: project.id });
      await (await bench.chat({}, { key: inference.secret })).text();
    }
    await eventually(async () => {
      const { text } = await owner.get('/');
      return ids.every((id) => text.includes(`href="/portal/usage?by=model&amp;project=${id}"`));
    });
    const { text } = await owner.get('/');
    expect(text.slice(text.indexOf('projects-title'))).toContain('Research');
  });
});
