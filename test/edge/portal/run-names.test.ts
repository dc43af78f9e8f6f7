import { beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { makePerson, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';
import { useRunsFolder } from '#test/runs-folder.ts';

/** Names on a run's pages: of the cluster, and of the run's author. */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder() } };
});

let mine = { id: '', key: '' };
let clusterId = '';
let key: { readonly id: string; readonly name: string };

const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await bench.gateway.request(path, options)).text());

async function applied(to = clusterId): Promise<Body> {
  const run = await ask('/v1/stacks/words/apply', { key: mine.key, body: { cluster_id: to, inputs: {} } });
  return eventually(async () => {
    const now = await ask(`/v1/runs/${run.id}`);
    return now.ended_at === null ? null : now;
  });
}

beforeAll(async () => {
  const { gateway } = bench;
  mine = await openOrganization(gateway, '5');
  const form = new FormData();
  const module = 'output "said" { value = "hello" }';
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'words.zip'));
  form.append('name', 'words');
  const headers = { authorization: `Bearer ${gateway.key}` };
  const pushed = await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
  if (pushed.status !== 201) throw new Error(await pushed.text());
  const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
  clusterId = (await ask('/v1/clusters', { body: { name: 'named-site', organization_id: mine.id, nodes } })).id;
  [key] = (await ask('/v1/keys?limit=1', { key: mine.key })).data;
});

const person = async (role: string): Promise<Visitor> =>
  signInPerson(bench.gateway, (await makePerson(bench.gateway, { role }, mine.key)).email);

describe('the page of a run', () => {
  it("shows members the key's id, not its name", async () => {
    const run = await applied();
    expect(run.created_by).toBe(key.id);
    const { text } = await (await person('member')).get(`/portal/runs/${run.id}`);
    expect(text).toContain(`<span class="quiet" title="${key.id}">by ${key.id}</span>`);
    expect(text).not.toContain(`the key ${key.name}`);
  });

  it('shows administrators the names of key and cluster, with the ids on hover', async () => {
    const run = await applied();
    for (const visitor of [await person('admin'), await signInVisitor(bench.gateway)]) {
      const { text } = await visitor.get(`/portal/runs/${run.id}`);
      expect(text).toContain(`<span class="quiet" title="${key.id}">by the key ${key.name}</span>`);
      const place = new RegExp(`<a href="/portal/clusters/${clusterId}" title="${clusterId}"\\s*>named-site</a\\s*>`);
      expect(text).toMatch(place);
      expect((await visitor.get('/portal/runs')).text).toMatch(place);
    }
  });

  it('names the cluster in the list, and offers more than a hundred clusters', async () => {
    const first = await applied();
    const nodes = [{ name: 'n-1', address: '10.9.8.6', hardware_profile: 'h100' }];
    const others = Array.from({ length: 101 }, (_, index) => ({
      name: `other-${index}`,
      organization_id: mine.id,
      nodes,
    }));
    for (const body of others) await ask('/v1/clusters', { body });
    const { id } = await ask('/v1/clusters', { body: { ...others[0], name: 'last-site' } });
    const last = await applied(id);
    const visitor = await signInVisitor(bench.gateway);
    const { text } = await visitor.get('/portal/runs');
    const apply = await visitor.get(`/portal/stacks/${last.stack}/apply`);
    for (const page of [text, apply.text]) {
      for (const name of ['named-site', 'other-0', 'other-100', 'last-site'])
        expect(page).toMatch(new RegExp(`<option[^>]*>\\s*${name}( \\(1 node\\))?\\s*</option>`));
    }
    for (const [run, name] of [
      [first, 'named-site'],
      [last, 'last-site'],
    ]) {
      expect(text).toMatch(new RegExp(`title="${run.cluster_id}"\\s*>${name}</a`));
    }
  });
});
