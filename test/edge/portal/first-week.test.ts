import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually, openOrganization, standinFile, useInference } from '../inference/inference-gateway.ts';
import { makePerson, type Shown, signInPerson, signInVisitor, type Visitor } from './visitor.ts';

/** What somebody reads who has this gateway since a few days: sentences that are true, and numbers that agree. */

const bench = useInference(() => ({
  engines: {
    'a-broken': standinFile('a-broken').replace('main.ts', 'not-there.ts'),
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
async function openOwned(): Promise<{ readonly id: string; readonly key: string; readonly owner: Visitor }> {
  const organization = await openOrganization(bench.gateway, '1');
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

describe('keys', () => {
  it('that the gateway holds itself are counted nowhere, and said to be so', async () => {
    const { owner, key } = await openOwned();
    // It makes the key, and refuses the body, which is none.
    await playgroundChat(owner);
    const { data }: Body = await (await bench.gateway.request('/v1/keys?status=active', { key })).json();
    const counting = data.filter(({ held }: Body) => !held).length;
    expect([data.length, counting]).toEqual([2, 1]);
    expect(textOf(await owner.get('/'))).toContain('1 active key.');
    const keys = await owner.get('/portal/keys');
    expect(textOf(keys)).toContain('Active (1 of 5)');
    expect(textOf(keys)).toContain('held by the gateway, does not count');
    const projects = await owner.get('/portal/projects');
    expect(projects.text).toMatch(/<td class="number">1<\/td>/);
    expect(projects.text).not.toMatch(/<td class="number">2<\/td>/);
  });

  it('are listed in the order in which they were made, the newest first, page by page', async () => {
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

  it('have no form for one more while all of them are taken, but the way to make room', async () => {
    const { owner } = await openOwned();
    for (const name of ['1', '2', '3', '4']) {
      await owner.post('/portal/keys', { name, once: randomUUID(), expiry: 'never', scope: 'inference' });
    }
    const page = await owner.get('/portal/keys/new');
    expect(page.status).toBe(200);
    expect(page.text).not.toContain('Make the key');
    expect(page.text.match(/All 5 active keys/g)).toHaveLength(1);
    expect(page.text).toContain('href="/portal/keys"');
  });
});

describe('the lines to copy', () => {
  it('name a model that can answer, not one whose engine failed', async () => {
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
  it('leads to the playground, and to a password where there is none yet', async () => {
    const overview = await admin.get('/');
    const steps = overview.text.slice(overview.text.indexOf('steps-title'));
    expect(steps).toContain('href="/portal/playground"');
    expect(steps).toContain('href="/portal/account"');
    const { owner } = await openOwned();
    const theirs = await owner.get('/');
    expect(theirs.text.slice(theirs.text.indexOf('steps-title'))).not.toContain('A password');
  });
});

describe('the why of a request', () => {
  it('that used nothing says so in a sentence', async () => {
    const failed = await bench.chat({ model: 'a-broken' });
    const id = failed.headers.get('x-request-id') ?? '';
    await bench.record(id);
    const text = textOf(await admin.get(`/portal/usage/${id}`));
    expect(text).toContain('It used no tokens, and nothing is charged.');
    expect(text).not.toContain('Tokens are nothing');
  });

  it('says one time at its head and below it, and what the books took beside it', async () => {
    const answer = await bench.chat({});
    await answer.text();
    const { id }: Body = await bench.recordOf(answer);
    const text = textOf(await admin.get(`/portal/usage/${id}`));
    const head = /Time taken ([\d.]+ m?s)/.exec(text)?.[1];
    expect(head).toBeDefined();
    expect(/All of it ([\d.]+ m?s)/.exec(text)?.[1]).toBe(head);
  });
});

describe('an engine that failed', () => {
  it('is not said to wait for somebody where it is tried again by itself', async () => {
    const page = textOf(await admin.get('/portal/engines/a-broken'));
    expect(page).not.toContain('refused until it is tried again.');
    expect(page).toContain('Requests are refused until a start succeeds');
    expect(textOf(await admin.get('/portal/models/a-broken'))).not.toContain('refused until it is tried again.');
  });

  it('has its page named to an operator in the playground, and to nobody else', async () => {
    expect((await admin.get('/portal/playground')).text).toContain('data-engines="/portal/engines/"');
    const { owner } = await openOwned();
    expect((await owner.get('/portal/playground')).text).not.toContain('data-engines');
  });
});

describe('credit', () => {
  it('is added without thinking up a reference: one stands there, another one in every form', async () => {
    const referenceOf = ({ text }: Shown): string =>
      /id="credits-reference"[^>]*?value="([^"]*)"/s.exec(text)?.[1] ?? '';
    const [first, second] = [
      referenceOf(await admin.get('/portal/wallet')),
      referenceOf(await admin.get('/portal/wallet')),
    ];
    expect(first).toMatch(/^portal-\d{4}-\d{2}-\d{2}-[0-9a-f]{8}$/);
    expect(second).not.toBe(first);
  });
});

describe('applying a stack', () => {
  it('on a cluster without nodes says to add one, and has no button', async () => {
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
    expect(textOf(page)).toContain('The cluster bare has no nodes yet');
    expect(page.text).toContain(`href="/portal/clusters/${id}`);
    expect(page.text).not.toContain('>Apply</button>');
    expect(page.text).not.toContain('cluster_id: has');
  });
});

describe('a form that came twice', () => {
  it('opens one organization, and says where it is', async () => {
    const fields = { name: `Twice ${randomUUID()}`, once: randomUUID() };
    const first = await admin.post('/portal/organizations', fields);
    expect(first.status).toBe(200);
    const again = await admin.post('/portal/organizations', fields);
    expect(again.status).toBe(409);
    expect(textOf(again)).toContain('has opened its organization before');
    const { data }: Body = await (await bench.gateway.request('/v1/organizations')).json();
    const made = data.filter(({ name }: Body) => name === fields.name);
    expect(made).toHaveLength(1);
    expect(again.text).toContain(`/portal/organizations/${made[0].id}`);
    expect(data[0].name).toBe(fields.name);
    // Other words in the same form are another organization.
    expect((await admin.post('/portal/organizations', { ...fields, name: `Not ${fields.name}` })).status).toBe(200);
  });

  it('opens one organization where both come at the same time', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const body = { name: 'At once' };
    const answers = await Promise.all(
      [1, 2, 3].map(() => bench.gateway.request('/v1/organizations', { body, headers })),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409, 409]);
  });
});
