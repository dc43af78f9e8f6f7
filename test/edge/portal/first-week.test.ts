import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  brokenFile,
  eventually,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { makePerson, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Pages for somebody who has this gateway since a few days: sentences that are true, and numbers that agree. */

const bench = useInference(() => ({
  engines: {
    'a-broken': brokenFile('a-broken'),
    chat: standinFile('chat'),
  },
}));
let admin: Visitor;

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
});

const textOf = ({ text }: Shown): string =>
  text
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll('&#39;', "'")
    .replaceAll('&quot;', '"')
    .replaceAll(/\s+/g, ' ');

/** An administrator of an organization of its own, signed in. */
async function openOwned(
  usd: string | null = '1',
): Promise<{ readonly id: string; readonly key: string; readonly owner: Visitor }> {
  const organization = await openOrganization(bench.gateway, usd);
  const { email } = await makePerson(bench.gateway, { role: 'admin' }, organization.key);
  return { ...organization, owner: await signInPerson(bench.gateway, email) };
}

const playgroundChat = (visitor: Visitor): Promise<Shown> =>
  visitor.post(
    '/portal/playground/chat',
    {},
    {
      'content-type': 'application/json',
      'x-form-token': visitor.formToken,
    },
  );

describe('the keys page', () => {
  it('does not count keys that the gateway holds itself, and says so', async () => {
    const { owner, key } = await openOwned();
    // It makes the key, and refuses the body, which is none.
    await playgroundChat(owner);
    const { data }: Body = await (await bench.gateway.request('/v1/keys?status=active', { key })).json();
    const counting = data.filter(({ held }: Body) => !held).length;
    expect([data.length, counting]).toEqual([2, 1]);
    expect(textOf(await owner.get('/'))).toContain('1 active key.');
    const keys = await owner.get('/portal/keys');
    expect(textOf(keys)).toContain('Active (1 of 5)');
    expect(textOf(keys)).toContain('managed by the gateway, not counted');
    const projects = await owner.get('/portal/projects');
    expect(projects.text).toMatch(/<td [^>]*class="number"[^>]*>1<\/td>/);
    expect(projects.text).not.toMatch(/<td [^>]*class="number"[^>]*>2<\/td>/);
  });

  it('lists keys newest first, page by page', async () => {
    const { owner, key } = await openOwned();
    const names = ['first', 'second', 'third', 'fourth'];
    for (const name of names) {
      const made = await owner.post('/portal/keys', { name, once: randomUUID(), expiry: 'never', scope: 'inference' });
      expect(made.status).toBe(200);
    }
    const list = async (query: string): Promise<Body> =>
      (await bench.gateway.request(`/v1/keys?status=active&${query}`, { key })).json();
    const all: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Body = await list(`limit=2${cursor === null ? '' : `&cursor=${cursor}`}`);
      all.push(...page.data.map(({ name }: Body) => name));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(all.slice(0, 4)).toEqual(names.toReversed());
    expect(all).toHaveLength(5);
    const text = textOf(await owner.get('/portal/keys'));
    expect(names.map((name) => text.indexOf(name))).toEqual(
      names.map((name) => text.indexOf(name)).toSorted((a, b) => b - a),
    );
  });

  it('has no create form at the key limit, and shows how to free a place', async () => {
    const { owner } = await openOwned();
    for (const name of ['1', '2', '3', '4']) {
      await owner.post('/portal/keys', { name, once: randomUUID(), expiry: 'never', scope: 'inference' });
    }
    const page = await owner.get('/portal/keys/new');
    expect(page.status).toBe(200);
    expect(page.text).not.toContain('Create key');
    expect(page.text.match(/All 5 active keys/g)).toHaveLength(1);
    expect(page.text).toContain('href="/portal/keys"');
  });
});

describe('the code samples', () => {
  it('use a model that can answer, not one whose engine failed', async () => {
    expect((await bench.chat({ model: 'a-broken' })).status).toBe(503);
    await eventually(async () => (await admin.get('/portal/models')).text.includes('failed'));
    expect((await bench.chat({})).status).toBe(200);
    const overview = await admin.get('/');
    expect(overview.text).toContain('"model":"chat"'.replaceAll('"', '&quot;'));
    expect(overview.text).not.toContain('"model":"a-broken"'.replaceAll('"', '&quot;'));
    const made = await admin.post('/portal/keys', {
      name: 'copied',
      once: randomUUID(),
      expiry: 'never',
      scope: 'inference',
    });
    expect(made.text).not.toContain('&quot;model&quot;:&quot;a-broken&quot;');
    expect(made.text).toContain('&quot;model&quot;:&quot;chat&quot;');
  });
});

describe('the overview', () => {
  it('links to the playground, and to the password form when no password is set', async () => {
    const overview = await admin.get('/');
    const steps = overview.text.slice(overview.text.indexOf('steps-title'));
    expect(steps).toContain('href="/portal/playground"');
    expect(steps).toContain('href="/portal/account#password-title"');
    const { owner } = await openOwned();
    const theirs = await owner.get('/');
    expect(theirs.text.slice(theirs.text.indexOf('steps-title'))).not.toContain('Set a password');
  });

  it('starts with the first steps before the first request, and with the numbers afterwards', async () => {
    const { owner, key } = await openOwned();
    const isFirst = ({ text }: Shown): boolean => text.indexOf('steps-title') < text.indexOf('models-title');
    const fresh = await owner.get('/');
    expect(isFirst(fresh)).toBe(true);
    const [, link = ''] = /class="button primary"\s+href="([^"]*)"/.exec(fresh.text) ?? [];
    expect(link).toMatch(/^\/portal\/playground\?message=/);
    const message = new URLSearchParams(link.slice(link.indexOf('?'))).get('message') ?? '';
    const playground = await owner.get(link);
    expect(/<textarea[^>]*id="prompt"[^>]*>([^<]*)/.exec(playground.text)?.[1]?.trim()).toBe(message);
    await (await bench.chat({}, { key })).text();
    await eventually(async () => !isFirst(await owner.get('/')));
    expect((await owner.get('/')).text).toContain('href="/portal/playground"');
  });

  it('says before the first steps that the balance is used up', async () => {
    const { owner } = await openOwned(null);
    const { text } = await owner.get('/');
    expect(text.indexOf('The balance is used up')).toBeGreaterThan(0);
    expect(text.indexOf('The balance is used up')).toBeLessThan(text.indexOf('steps-title'));
  });

  it('passes a message from a link to the playground as text, with a limited length', async () => {
    const query = new URLSearchParams({ message: `</textarea><b id="planted">${'x'.repeat(5000)}` });
    const { text } = await admin.get(`/portal/playground?${query.toString()}`);
    expect(text).not.toContain('<b id="planted">');
    expect(text).toContain('&lt;/textarea&gt;');
    expect(text).not.toContain('x'.repeat(2001));
  });
});

describe('the account page', () => {
  it('asks for the current password only when one is set', async () => {
    const without = await admin.get('/portal/account');
    expect(without.text).not.toContain('current-password');
    expect(textOf(without)).toContain('Set password');
    const { owner } = await openOwned();
    const having = await owner.get('/portal/account');
    expect(having.text.match(/autocomplete="current-password"/g)).toHaveLength(2);
    expect(textOf(having)).toContain('Change password');
  });
});

describe('a page for platform administrators only', () => {
  it('is rejected with a message for people, without mentioning keys', async () => {
    const { owner } = await openOwned();
    for (const path of ['/portal/engines', '/portal/organizations']) {
      const page = await owner.get(path);
      expect([path, page.status]).toEqual([path, 403]);
      expect(textOf(page)).toContain('Only platform administrators can do this');
      expect(textOf(page)).not.toMatch(/API key|management key/);
    }
  });
});

describe('the page of a request', () => {
  it('says in a sentence that the request used nothing', async () => {
    const failed = await bench.chat({ model: 'a-broken' });
    const id = failed.headers.get('x-request-id') ?? '';
    await bench.record(id);
    const text = textOf(await admin.get(`/portal/usage/${id}`));
    expect(text).toContain('The request used no tokens and is not charged.');
    expect(text).not.toContain('The engine counted the tokens');
  });

  it('shows the same duration in its heading and below, and the time of the ledger', async () => {
    const answer = await bench.chat({});
    await answer.text();
    const { id }: Body = await bench.recordOf(answer);
    const text = textOf(await admin.get(`/portal/usage/${id}`));
    const head = /Duration ([\d.]+ m?s)/.exec(text)?.[1];
    expect(head).toBeDefined();
    expect(/Total ([\d.]+ m?s)/.exec(text)?.[1]).toBe(head);
  });
});

describe('a failed engine', () => {
  it('is shown as retried automatically when the gateway retries it', async () => {
    const page = textOf(await admin.get('/portal/engines/a-broken'));
    expect(page).not.toMatch(/[Tt]here is no automatic retry/);
    expect(page).toContain('The last start failed. The gateway retries after a pause.');
    expect(textOf(await admin.get('/portal/models/a-broken'))).not.toMatch(/[Tt]here is no automatic retry/);
  });

  it('is linked from the playground for operators only', async () => {
    expect((await admin.get('/portal/playground')).text).toContain('data-engines="/portal/engines/"');
    const { owner } = await openOwned();
    expect((await owner.get('/portal/playground')).text).not.toContain('data-engines');
  });
});

describe('the credit form', () => {
  it('has a new generated reference in every form', async () => {
    const referenceOf = ({ text }: Shown): string =>
      /id="credits-reference"[^>]*?value="([^"]*)"/s.exec(text)?.[1] ?? '';
    const [first, second] = [
      referenceOf(await admin.get('/portal/wallet')),
      referenceOf(await admin.get('/portal/wallet')),
    ];
    expect(first).toMatch(/^portal-\d{4}-\d{2}-\d{2}-[0-9a-f]{8}$/);
    expect(second).not.toBe(first);
  });

  it('is the only open form when a page links to it', async () => {
    const openForms = async (path: string): Promise<(string | undefined)[]> =>
      [...(await admin.get(path)).text.matchAll(/<details class="fold"\s+open\s*>\s*<summary>([^<]*)/g)].map(
        ([, title]) => title,
      );
    expect(await openForms('/portal/wallet')).toEqual([]);
    expect(await openForms('/portal/wallet?open=anything')).toEqual([]);
    expect((await admin.get('/')).text).toContain('href="/portal/wallet?open=credits"');
    expect(await openForms('/portal/wallet?open=credits')).toEqual(['Add credit']);
  });
});

describe('a new organization', () => {
  it('links to its credit and its invitations, and redirects to no other address', async () => {
    const made = await admin.post('/portal/organizations', { name: `Led ${randomUUID()}`, once: randomUUID() });
    const [id = ''] = /org_[0-9a-f]{32}/.exec(made.text) ?? [];
    const buttons = [...made.text.matchAll(/name="to" value="([^"]*)"/g)].map(([, to]) => to);
    expect(buttons).toEqual(['/portal/wallet?open=credits', '/portal/invitations']);
    const entered = async (to: string) =>
      (await admin.post('/portal/view', { organization_id: id, to })).headers['location'];
    for (const elsewhere of ['https://evil.example', '//evil.example', '/portal/wallet?open=adjustments', 'toString']) {
      expect([elsewhere, await entered(elsewhere)]).toEqual([elsewhere, '/']);
    }
    for (const to of buttons) expect(await entered(to ?? '')).toBe(to);
  });
});

describe('the audit log', () => {
  it('describes invitations and links in sentences, and can be filtered by them', async () => {
    const { owner } = await openOwned();
    const email = `${randomUUID()}@example.com`;
    expect((await owner.post('/portal/invitations', { email, role: 'member' })).status).toBe(200);
    const text = textOf(await owner.get('/portal/audit'));
    expect(text).toContain(`invited ${email}`);
    expect(text).not.toContain(': invitation.created');
    expect((await owner.get('/portal/audit')).text).toContain('<option value="invitation.created"');
  });
});

describe('the apply page of a stack', () => {
  it('says to add a node to an empty cluster, and has no button', async () => {
    const made = await bench.post('/v1/clusters', {
      name: 'bare',
      organization_id: ((await (await bench.gateway.request('/v1/organizations')).json()) as Body).data[0].id,
      nodes: [],
    });
    expect(made.status).toBe(201);
    const { id }: Body = await made.json();
    const stacks: Body = await (await bench.gateway.request('/v1/stacks')).json();
    const page = await admin.get(`/portal/stacks/${stacks.data[0].id}/apply?cluster=${id}`);
    expect(page.status).toBe(200);
    expect(textOf(page)).toContain('Cluster bare has no nodes yet');
    expect(page.text).toContain(`href="/portal/clusters/${id}`);
    expect(page.text).not.toContain('>Apply</button>');
    expect(page.text).not.toContain('cluster_id: has');
  });
});

describe('a form sent twice', () => {
  it('creates one organization, and links to it', async () => {
    const fields = { name: `Twice ${randomUUID()}`, once: randomUUID() };
    const first = await admin.post('/portal/organizations', fields);
    expect(first.status).toBe(200);
    const again = await admin.post('/portal/organizations', fields);
    expect(again.status).toBe(409);
    expect(textOf(again)).toContain('already created an organization');
    const { data }: Body = await (await bench.gateway.request('/v1/organizations')).json();
    const made = data.filter(({ name }: Body) => name === fields.name);
    expect(made).toHaveLength(1);
    expect(again.text).toContain(`/portal/organizations/${made[0].id}`);
    expect(data[0].name).toBe(fields.name);
    // Other words in the same form are another organization.
    expect((await admin.post('/portal/organizations', { ...fields, name: `Not ${fields.name}` })).status).toBe(200);
  });

  it('creates one organization when both arrive at the same time', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const body = { name: 'At once' };
    const answers = await Promise.all(
      [1, 2, 3].map(() => bench.gateway.request('/v1/organizations', { body, headers })),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409, 409]);
  });
});
