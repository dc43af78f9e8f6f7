import { beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { makePerson, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The versions of a stack on its page: what differs, the way back, and older versions that are applied. */

const bench = useInference(() => ({ engines: {}, env: { HEADGATE_TERRAFORM_BIN: '/nonexistent/terraform' } }));
let admin: Visitor;
let member: Visitor;
let stack = '';
let clusterId = '';

const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await bench.gateway.request(path, options)).text());

async function push(main: string, name = 'queue'): Promise<string> {
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': main }))], 'x.zip'));
  form.append('name', name);
  const headers = { authorization: `Bearer ${bench.gateway.key}` };
  const answer = await fetch(`${bench.gateway.url}/v1/stacks`, { method: 'POST', headers, body: form });
  return ((await answer.json()) as { id: string }).id;
}

const textOf = (html: string): string =>
  html
    .replaceAll(/<[^>]+>/g, ' ')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll(/\s+/g, ' ');

beforeAll(async () => {
  const { id, key } = await openOrganization(bench.gateway, '5');
  await push('variable "size" {\n  default = "<b>one</b>"\n}\nvariable "gone" {\n  type = string\n}');
  stack = await push('variable "size" {\n  default = "two"\n}');
  admin = await signInVisitor(bench.gateway);
  member = await signInPerson(bench.gateway, (await makePerson(bench.gateway, { role: 'member' }, key)).email);
  const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
  clusterId = (await ask('/v1/clusters', { body: { name: 'shared', organization_id: id, nodes } })).id;
});

describe('the page of a stack', () => {
  it('lists the versions with what each visitor may do', async () => {
    const path = `/portal/stacks/${stack}`;
    const shown = (await admin.get(path)).text;
    expect(textOf(shown)).toMatch(/ 2 newest .* by you .* 1 .*Download · Compare with newest · Apply · Revert/);
    const links = ['download?version=2', 'download?version=1', 'diff?from=1', 'apply?version=1', 'revert?version=1'];
    for (const link of links) expect(shown).toContain(`href="${path}/${link}"`);
    expect(shown).not.toContain('revert?version=2');
    const ofMember = (await member.get(path)).text;
    for (const link of links.slice(0, -1)) expect(ofMember).toContain(`href="${path}/${link}"`);
    expect(ofMember).not.toContain('/revert');
    expect((await admin.get('/portal/stacks/scheduler')).text).not.toContain('/revert');
    expect((await member.get(`${path}/download?version=1`)).headers['content-disposition']).toContain('queue-1.zip');
  });

  it('shows what differs, as text', async () => {
    const { text } = await member.get(`/portal/stacks/${stack}/diff?from=1`);
    expect(text).not.toContain('<b>one');
    expect(textOf(text)).toContain('gone removed string , required none');
    expect(textOf(text)).toContain('size changed string , default <b>one</b> string , default two');
    expect(textOf(text)).toContain('- default = "<b>one</b>"');
    expect(textOf(text)).toContain('+ default = "two"');
    expect((await member.get(`/portal/stacks/${stack}/diff?from=7`)).status).toBe(404);
    expect((await member.get(`/portal/stacks/${stack}/diff?from=x`)).status).toBe(400);
    expect((await member.get(`/portal/stacks/${stack}/diff?from=2&to=2`)).text).toContain('the same files and inputs');
  });

  it('marks added and removed lines that look like headers of a diff', async () => {
    await push('/*\n-- gone\n*/\n', 'dashes');
    const { text } = await member.get(`/portal/stacks/${await push('/*\n++ fresh\n*/\n', 'dashes')}/diff`);
    expect(text).toContain('<span class="removed">--- gone</span><span class="added">+++ fresh</span>');
    expect(text).toContain('<span class="quiet">--- a/main.tf</span>');
  });

  it('applies an older version with its own inputs', async () => {
    const page = `/portal/stacks/${stack}/apply`;
    const { text } = await member.get(`${page}?version=1&cluster=${clusterId}`);
    expect(text).toContain('queue, version 1');
    expect(text).toContain('name="inputs.gone"');
    expect((await member.get(`${page}?cluster=${clusterId}`)).text).not.toContain('name="inputs.gone"');
    const fields = { cluster_id: clusterId, node: '', access: '', mode: '', stack_version: '1', 'inputs.gone': '' };
    const refused = await member.post(page, fields);
    expect(refused.status).toBe(400);
    expect(refused.text).toContain('queue, version 1');
    expect((await member.post(page, { ...fields, 'inputs.gone': 'x' })).status).toBe(503);
    expect((await member.get(`${page}?version=9`)).status).toBe(404);
  });

  it('is reverted by an administrator, once for a form that is sent twice', async () => {
    const path = `/portal/stacks/${stack}/revert?version=1`;
    expect((await member.post(path)).status).toBe(403);
    const page = (await admin.get(path)).text;
    expect(textOf(page)).toContain('The package of version 1 becomes version 3');
    const fields = { once: /name="once" value="([^"]+)"/.exec(page)?.[1] ?? '' };
    const done = await admin.post(path, fields);
    expect(done.headers.location).toBe(`/portal/stacks/${stack}?notice=reverted`);
    expect((await admin.get(String(done.headers.location))).text).toContain('Reverted: version 3 has the package');
    await push('variable "size" {\n  default = "four"\n}');
    expect((await admin.post(path, fields)).headers.location).toBe(`/portal/stacks/${stack}?notice=unchanged`);
    expect((await ask(`/v1/stacks/${stack}`)).version.number).toBe(4);
    const refused = await admin.post(`/portal/stacks/${stack}/revert?version=9`);
    expect([refused.status, textOf(refused.text)]).toEqual([404, expect.stringContaining('has no version 9')]);
  });

  it('lists versions in pages', async () => {
    for (let size = 0; size < 12; size += 1) {
      await push(`variable "size" {\n  default = ${size}\n}`);
      await bench.gateway.db.sql`update stack_versions set pins = 1`;
    }
    expect((await member.get(`/portal/stacks/${stack}`)).text).toContain('Page 1 of 2');
    const { text } = await member.get(`/portal/stacks/${stack}?page=2`);
    expect(text).toContain('download?version=1"');
  });
});
