import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Person, signIn, useBrowsers } from './browser.ts';
import { corpus, elements } from './hostile-texts.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let clusterId = '';

interface Made {
  readonly id: string;
  readonly organization_id: string;
}

const hcl = (text: string): string => JSON.stringify(text).replaceAll('${', '$${').replaceAll('%{', '%%{');
const long = 'x'.repeat(200);
const all = `${corpus.join(' ')} ${long}`;

/** One text each for a title, a description, a category, and the description and default of an input. */
async function upload(index: number, text: string): Promise<string> {
  const main = `
    variable "said" {
      description = ${hcl(`${text} ${long}`)}
      default     = ${hcl(`${text} ${long}`)}
    }
    variable "secret" {
      description = ${hcl(text)}
      sensitive   = true
    }`;
  const name = `hostile-${index}`;
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': main }))], `${name}.zip`));
  const fields = { name, title: text.slice(0, 60), description: `${text} ${long}`, category: text.slice(0, 30) };
  for (const [field, value] of Object.entries(fields)) form.append(field, value);
  const answer = await fetch(new URL('/v1/stacks', gateway.url), {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.key}` },
    body: form,
  });
  expect([text, answer.status]).toEqual([text, 201]);
  return name;
}

/** A run as one leaves it that wrote and put out hostile texts, and failed with one. */
async function insertRun(status: 'APPLIED' | 'FAILED', cluster: Made): Promise<string> {
  const [id, installation] = [uuidv7(), uuidv7()];
  const [clusterUuid, owner] = [parseId('cluster', cluster.id), parseId('org', cluster.organization_id)];
  const values = corpus.map((value, index) => [`out_${index}`, { sensitive: false, type: 'string', value }] as const);
  const outputs = JSON.stringify(Object.fromEntries(values));
  const failed = status === 'FAILED' ? { code: 'APPLY_FAILED', message: all } : { code: null, message: null };
  const { sql } = gateway.db;
  await sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${installation}, ${clusterUuid}, ${uuidv7()}, ${corpus[0] ?? ''}, ${corpus[1] ?? ''}, now())`;
  await sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
      created_at, ended_at, failure_code, failure_message, outputs, log_lines)
    values (${id}, ${installation}, ${clusterUuid}, ${owner}, ${uuidv7()}, 'apply', ${status}, '', now(), now(),
      ${failed.code}, ${failed.message}, ${outputs}::jsonb, ${corpus.length})`;
  for (const [index, text] of corpus.entries()) {
    await sql`
      insert into run_log (run_id, seq, at, phase, level, type, message)
      values (${id}, ${index + 1}, now(), 'apply', 'error', 'log', ${`${text} ${long}`})`;
  }
  return `run_${id.replaceAll('-', '')}`;
}

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open({ viewport: { width: 360, height: 800 } });
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

/** Shown as texts: nothing of them became part of the page, ran, was asked for, or made it wider than the window. */
async function expectHarmless(path: string): Promise<void> {
  const { page, complaints } = person;
  await page.goto(new URL(path, gateway.url).href);
  expect(new URL(page.url()).origin, path).toBe(new URL(gateway.url).origin);
  expect(await page.locator(elements).count(), path).toBe(0);
  const widest = await page.evaluate('document.documentElement.scrollWidth');
  expect.soft(widest, `${path}: px wide`).toBe(360);
  expect(complaints, path).toEqual([]);
}

it('rejects invalid names of clusters, nodes and profiles, and shows them as text', async () => {
  const { page } = person;
  const { data } = (await (await gateway.request('/v1/organizations')).json()) as { data: { id: string }[] };
  const node = { name: 'gpu-1', address: '10.0.0.7', hardware_profile: 'plain' };
  const body = { name: 'research', organization_id: data[0]?.id, nodes: [node] };
  const made = await gateway.request('/v1/clusters', { body });
  clusterId = ((await made.json()) as Made).id;
  for (const text of corpus) {
    for (const wrong of [{ name: text }, { nodes: [{ ...node, name: text }] }]) {
      expect((await gateway.request('/v1/clusters', { body: { ...body, ...wrong } })).status, text).toBe(400);
    }
  }
  await page.goto(`${gateway.url}/portal/clusters/${clusterId}/nodes/new`);
  await page.getByLabel('Name').fill((corpus[1] ?? '').slice(0, 63));
  await page.getByLabel('Hardware profile').fill((corpus[0] ?? '').slice(0, 63));
  await page.getByLabel('Address', { exact: true }).fill(corpus[2] ?? '');
  await page.getByRole('button', { name: 'Add node' }).click();
  await page.locator('#name-problem').waitFor();
  expect(await page.locator(elements).count()).toBe(0);
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
  expect(person.complaints).toEqual([]);
});

it('shows hostile texts of stacks, inputs, logs, outputs and failures as text, within 360 px', async () => {
  const { page } = person;
  const foreign: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(gateway.url)) foreign.push(request.url());
  });
  const names: string[] = [];
  for (const [index, text] of corpus.entries()) names.push(await upload(index, text));
  const cluster = (await (await gateway.request(`/v1/clusters/${clusterId}`)).json()) as Made;
  const [applied, failed] = [await insertRun('APPLIED', cluster), await insertRun('FAILED', cluster)];

  await expectHarmless('/portal/stacks');
  const titles = await page.locator('main').textContent();
  for (const text of corpus) expect(titles).toContain(text.slice(0, 60));
  for (const name of names) {
    await expectHarmless(`/portal/stacks/${name}`);
    await expectHarmless(`/portal/stacks/${name}/apply`);
  }
  await expectHarmless(`/portal/stacks/${names[0] ?? ''}/edit`);
  for (const run of [applied, failed]) {
    await expectHarmless(`/portal/runs/${run}`);
    const log = await page.locator('#log').textContent();
    for (const text of corpus) expect(log).toContain(text);
  }
  for (const path of ['/portal/runs', '/portal/clusters', `/portal/clusters/${clusterId}`, '/portal/costs']) {
    await expectHarmless(path);
  }
  const word = encodeURIComponent(all.slice(0, 300));
  for (const path of [
    `/portal/stacks?search=${word}&category=${word}`,
    `/portal/runs?stack=${word}&cluster=${word}&status=${word}`,
    `/portal/clusters?status=${word}`,
    `/portal/costs?month=${word}&tz=${word}&org=${word}`,
    `/portal/costs?from=${word}&to=${word}`,
    `/portal/stacks/${word}`,
    `/portal/runs/${word}`,
  ]) {
    await expectHarmless(path);
  }
  expect(foreign).toEqual([]);
});
