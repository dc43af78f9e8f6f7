import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadEngineFileList } from '#core/catalog/catalog.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { externalFile, standinFile } from '#test/inference/inference-gateway.ts';
import { type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The form that shows an engine file and writes none. */

const examples = new URL('../../../engines/examples/', import.meta.url).pathname;
const disabled = (text: string): string => `${text}\nenabled: false\n`;

/** Files of all kinds, whose engines do not start. */
const files: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    readdirSync(examples)
      .filter((name) => name.endsWith('.yaml') && name !== 'hosts.yaml')
      .map((name) => [name, disabled(readFileSync(join(examples, name), 'utf8'))]),
  ),
  'standin.yaml': standinFile('standin', {
    flags: ['--note', '"two words"', '{a: b}', '# no comment', "it's"],
    lines: ['replicas: { min: 0, max: 2 }', 'idle_seconds: 60', 'gpus: { count: 1, profile: "100" }'],
  }),
  'far.yaml': externalFile('far', 'http://127.0.0.1:1', { lines: ['aliases: [Far away]', 'upstream_model: other'] }),
  'shared.yaml': standinFile('shared').replace(
    'driver: process',
    'fallbacks: &others [standin]\nallow: []\ndriver: process',
  ),
};

let folder = '';
let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-engine-file-'));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  gateway = await startGateway({ enginesDir: folder });
  admin = await signInVisitor(gateway);
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const decoded = (text: string): string =>
  text
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');

/** Returns what the browser would send of the form. */
function formIn({ text }: Shown): Record<string, string> {
  const [, form = ''] =
    /<form class="form" method="post" action="\/portal\/engine-file">(.*?)<\/form>/s.exec(text) ?? [];
  const inputs = [...form.matchAll(/<input\b[^>]*>/g)].map(([tag]) => [
    /\bname="([^"]*)"/.exec(tag)?.[1] ?? '',
    decoded(/\bvalue="([^"]*)"/.exec(tag)?.[1] ?? ''),
  ]);
  const areas = [...form.matchAll(/<textarea\b[^>]*\bname="([^"]*)"[^>]*>\n?(.*?)<\/textarea>/gs)].map(
    ([, name = '', text = '']) => [name, decoded(text).replaceAll('\n', '\r\n')],
  );
  const selects = [...form.matchAll(/<select\b[^>]*\bname="([^"]*)"[^>]*>(.*?)<\/select>/gs)].map(
    ([, name = '', options = '']) => [name, /<option value="([^"]*)" selected/.exec(options)?.[1] ?? ''],
  );
  return Object.fromEntries([...inputs, ...areas, ...selects].filter(([name]) => name !== 'form_token'));
}

const shownText = ({ text }: Shown): string =>
  decoded(/<pre id="engine-file"[^>]*>(.*?)<\/pre>/s.exec(text)?.[1] ?? '');
const words = ({ text }: Shown): string => decoded(text.replaceAll(/<[^>]*>/g, ' ')).replaceAll(/\s+/g, ' ');

/** Reads a text as the file of this name in a folder of its own. */
function definitionOf(name: string, text: string): unknown {
  const place = mkdtempSync(join(tmpdir(), 'hg-parsed-'));
  writeFileSync(join(place, name), text);
  const result = loadEngineFileList([join(place, name)]);
  rmSync(place, { recursive: true });
  if (!result.ok) throw new Error(JSON.stringify(result.problems));
  // Paths relative to the file differ with the folder.
  return JSON.parse(
    JSON.stringify(result.engines, (_, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    ).replaceAll(place, ''),
  );
}

async function engineOf(name: string): Promise<string> {
  const { data } = (await (await gateway.request('/v1/admin/engines')).json()) as {
    data: { id: string; file: string }[];
  };
  return data.find(({ file }) => file.endsWith(`/${name}`))?.id ?? '';
}

describe('the form for an engine file', () => {
  it.each(Object.keys(files))('shows the same settings as the file that it began with: %s', async (name) => {
    const engine = await engineOf(name);
    const begun = await admin.get(`/portal/engine-file?engine=${encodeURIComponent(engine)}`);
    const sent = formIn(begun);
    const shown = await admin.post('/portal/engine-file', sent);
    expect([shown.status, words(shown)]).toEqual([200, expect.stringContaining(`Save the text as ${name}`)]);
    expect(definitionOf(name, shownText(shown))).toEqual(definitionOf(name, files[name] ?? ''));
    // The text that is shown leads to the same form.
    expect(formIn(shown)).toEqual(sent);
  });

  it('has the common settings in fields of their own, and comments of other settings in the rest', async () => {
    const form = formIn(await admin.get('/portal/engine-file?engine=qwen2.5-vl-7b'));
    expect(form).toMatchObject({ id: 'qwen2.5-vl-7b', driver: 'docker', task_type: 'vision', 'gpus.count': '1' });
    expect(form['args']).toContain('Qwen/Qwen2.5-VL-7B-Instruct\r\n');
    expect(form['pricing.input_per_million']).toBe('0.10');
    expect(form['more']).toContain('# Clients send images');
    expect(form['more']).not.toContain('image:');
  });

  const fresh = {
    driver: 'process',
    engine: '',
    file: '',
    id: 'acme/new',
    name: 'New',
    hugging_face_id: 'acme/new',
    task_type: 'chat',
    context_length: '4096',
    command: 'node\r\nserver.js\r\n--port\r\n{port}',
    more: '',
  };

  it('shows the text of a new file, its name and the next command, and writes nothing', async () => {
    const before = readdirSync(folder);
    const shown = await admin.post('/portal/engine-file', fresh);
    expect(shown.status).toBe(200);
    expect(shownText(shown)).toBe(
      [
        'version: 1',
        'driver: process',
        'id: acme/new',
        'name: New',
        'hugging_face_id: acme/new',
        'task_type: chat',
        'context_length: 4096',
        'command:',
        '  - node',
        '  - server.js',
        '  - --port',
        '  - "{port}"',
        '',
      ].join('\n'),
    );
    expect(words(shown)).toMatch(/Save the text as acme-new\.yaml .*headgate engines reload/);
    expect(readdirSync(folder)).toEqual(before);
  });

  it('shows the problems of the parser at their fields', async () => {
    const wrong = { ...fresh, id: '', context_length: 'many', 'gpus.count': '0', more: 'imagee: a\nidle_seconds: x' };
    const shown = await admin.post('/portal/engine-file', wrong);
    expect(shown.status).toBe(422);
    const problem = (name: string): string =>
      decoded(
        new RegExp(`id="${name.replaceAll('.', '\\.')}-problem"[^>]*>([^<]*)<`).exec(shown.text)?.[1] ?? '',
      ).trim();
    expect(problem('id')).toContain('is missing');
    expect(problem('context_length')).toContain('expected number');
    expect(problem('gpus.count')).toContain('must be at least 1');
    expect(problem('more')).toContain('imagee: unknown field');
    expect(problem('idle_seconds')).toContain('expected number');
    expect(formIn(shown)).toMatchObject({ context_length: 'many', 'gpus.count': '0' });
  });

  it('shows an id or a setting that another file or field has already', async () => {
    const taken = await admin.post('/portal/engine-file', { ...fresh, id: 'far' });
    expect([taken.status, words(taken)]).toEqual([
      422,
      expect.stringMatching(/must be another: \S+\/far\.yaml is the file of far/),
    ]);
    const named = await admin.post('/portal/engine-file', { ...fresh, name: 'Far away' });
    expect(words(named)).toMatch(/"Far away" is already the id, name, alias or repository of \S+\/far\.yaml/);
    const twice = await admin.post('/portal/engine-file', { ...fresh, more: 'name: Again' });
    expect([twice.status, words(twice)]).toEqual([422, expect.stringMatching(/Line \d+: not valid YAML/)]);
  });

  it('has the fields of the chosen driver', async () => {
    const external = formIn(await admin.get('/portal/engine-file?driver=external'));
    expect([external['driver'], 'url' in external, 'image' in external]).toEqual(['external', true, false]);
  });
});

describe('POST /v1/admin/engine-files/check', () => {
  const check = (body: object) => gateway.request('/v1/admin/engine-files/check', { body });

  it('returns each problem with its line and field', async () => {
    const answer = await check({
      name: 'far.yaml',
      text: files['far.yaml']?.replace('driver: external', 'driver: out'),
    });
    expect([answer.status, await answer.json()]).toEqual([
      200,
      {
        object: 'engine_file_check',
        problems: [expect.objectContaining({ field: 'driver', line: expect.any(Number) })],
      },
    ]);
    expect(await (await check({ name: 'far.yaml', text: files['far.yaml'] })).json()).toMatchObject({ problems: [] });
  });

  it('returns 400 for a name that is no engine file', async () => {
    for (const name of ['hosts.yaml', '../far.yaml', '.a.yaml', 'far.yml', ''])
      expect((await check({ name, text: '' })).status, name).toBe(400);
  });
});

describe('GET /v1/admin/engines/{id}/file', () => {
  it('returns the text of the file as it is now, and 404 once it is deleted', async () => {
    const read = () => gateway.request('/v1/admin/engines/shared/file');
    writeFileSync(join(folder, 'shared.yaml'), 'changed');
    expect(await (await read()).json()).toMatchObject({ object: 'engine_file', engine: 'shared', text: 'changed' });
    rmSync(join(folder, 'shared.yaml'));
    expect((await read()).status).toBe(404);
  });
});
