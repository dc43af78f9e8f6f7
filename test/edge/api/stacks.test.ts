import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { packOf, rawZip } from '#test/stacks/raw-zip.ts';
import { details, refusal, useStacks } from './stacks-bench.ts';
import type { Answer } from '#test/api/test-api.ts';

const { api, ask, keys, upload, send } = useStacks();

describe('stack uploads', () => {
  it.each([
    ['no key', null, 401, 'UNAUTHORIZED'],
    ['a wrong key', 'sk-hg-nothing', 401, 'UNAUTHORIZED'],
  ])('are rejected with %s', async (_, key, status, code) => {
    const answer = await ask('/v1/stacks', { method: 'POST', body: { url: 'https://example.org' }, key });
    expect(refusal(answer)).toEqual([status, code]);
  });

  it('are rejected with inference keys', async () => {
    for (const key of [keys.inference, keys.adminInference]) {
      expect(refusal(await upload(packOf({}), { name: 'by-app' }, key))).toEqual([403, 'FORBIDDEN']);
    }
    expect((await ask('/v1/stacks/by-app')).status).toBe(404);
  });

  it('are rejected with another type, no body, no boundary, or no form', async () => {
    const post = (body: unknown, type: string): Promise<Answer> =>
      ask('/v1/stacks', { method: 'POST', body, headers: { 'content-type': type } });
    expect(refusal(await post('x', 'text/plain'))).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE']);
    expect(refusal(await post('', 'application/json'))).toEqual([400, 'VALIDATION_ERROR']);
    expect(refusal(await post('x', 'multipart/form-data'))).toEqual([400, 'VALIDATION_ERROR']);
    expect(refusal(await post('x', 'multipart/form-data; boundary=a'))).toEqual([400, 'VALIDATION_ERROR']);
    expect(refusal(await post(`${'--a\r\n'.repeat(10_000)}`, 'multipart/form-data; boundary=a'))).toEqual([
      400,
      'VALIDATION_ERROR',
    ]);
  });

  it('return all invalid fields of the form', async () => {
    const form = new FormData();
    for (const [name, value] of Object.entries({
      name: 'No Name',
      title: '',
      icon: 'x',
      colour: 'red',
      file: 'text',
    })) {
      form.append(name, value);
    }
    const answer = await send(form);
    expect(answer.status).toBe(400);
    const fields = answer.body.error.details.map(({ field }: { field: string }) => field);
    expect(fields.toSorted()).toEqual(['colour', 'file', 'icon', 'name', 'title']);
  });

  it('are rejected when they are too large', async () => {
    const large = Buffer.alloc(10 * 1024 * 1024 + 1);
    expect(refusal(await upload(large))).toEqual([413, 'PACKAGE_TOO_LARGE']);
    expect(refusal(await upload(Buffer.alloc(12 * 1024 * 1024)))).toEqual([413, 'PACKAGE_TOO_LARGE']);
  });

  it('return all problems of a package, and store nothing', async () => {
    const zip = rawZip([
      { name: 'main.tf', content: 'x = 1' },
      { name: '../evil', content: 'x' },
      { name: 'link', content: 'x', mode: 0o120_777 },
      { name: 'override.tf', content: 'x' },
    ]);
    expect(details(await upload(zip, { name: 'evil' }))).toEqual([
      422,
      'PACKAGE_INVALID',
      [
        { field: '../evil', message: expect.stringContaining('leads out of the package') },
        { field: 'link', message: expect.stringContaining('a symbolic link') },
        { field: 'override.tf', message: expect.stringContaining('an override file') },
      ],
    ]);
    const together = packOf({
      'manifest.yaml': 'title: ""\ninputs: [{name: nodes}, {name: 5}]',
      'main.tf': 'variable "x" {',
      'override.tf': '',
    });
    const fields = (await upload(together)).body.error.details.map(({ field }: { field: string }) => field);
    expect(fields.toSorted()).toEqual(['inputs.1.name', 'main.tf', 'override.tf', 'title']);
    const [row] = await api().db.sql`
      select (select count(*)::int from stack_packages) as kept, (select count(*)::int from stacks where is_builtin) as ours`;
    expect(row?.['kept']).toBe(row?.['ours']);
  });

  it('require a name in the form, the manifest or the file name', async () => {
    expect(details(await upload(packOf({}), { fileName: '!.zip' }))).toEqual([
      422,
      'PACKAGE_INVALID',
      [{ field: 'name', message: expect.stringContaining('is missing') }],
    ]);
    expect((await upload(packOf({}), { fileName: 'From File.zip' })).body.name).toBe('from-file');
    expect((await upload(packOf({ 'From_Folder/main.tf': '' }), { fileName: 'x-y.zip' })).body).toMatchObject({
      name: 'from-folder',
      title: 'From_Folder',
    });
    const stated = packOf({ 'from-folder/main.tf': '', 'stack.json': '{"name": "from-manifest"}' });
    expect((await upload(stated)).body.name).toBe('from-manifest');
    expect((await upload(stated, { name: 'from-request' })).body.name).toBe('from-request');
  });

  it('create global stacks for administrators and private stacks for users', async () => {
    const [global, own] = [
      await upload(packOf({}), { name: 'for-all' }),
      await upload(packOf({}), { name: 'own-one' }, keys.mine),
    ];
    expect([global.status, global.body.visibility, own.status, own.body.visibility]).toEqual([
      201,
      'global',
      201,
      'private',
    ]);
    expect(global.headers.get('location')).toBe('/v1/stacks/for-all');
    expect([
      (await ask('/v1/stacks/for-all', { key: keys.inference })).status,
      (await ask('/v1/stacks/own-one', { key: keys.theirs })).status,
    ]).toEqual([200, 404]);
  });

  it('reject the name of a stack that the user sees, and accept that of a hidden one', async () => {
    await upload(packOf({}), { name: 'taken' });
    expect(details(await upload(packOf({}), { name: 'taken' }, keys.mine))).toEqual([
      409,
      'CONFLICT',
      [{ field: 'name', message: expect.stringContaining('taken') }],
    ]);
    expect((await upload(packOf({}), { name: 'hidden-name' }, keys.mine)).status).toBe(201);
    expect((await upload(packOf({}), { name: 'hidden-name' }, keys.theirs)).status).toBe(201);
    expect((await upload(packOf({}), { name: 'hidden-name' })).body.visibility).toBe('global');
    // Their own stays theirs.
    expect((await ask('/v1/stacks/hidden-name', { key: keys.mine })).body.visibility).toBe('private');
  });

  it("add a version to the user's own stack, and none for the same bytes", async () => {
    const [first, second] = [packOf({ 'a.txt': '1' }), packOf({ 'a.txt': '2' })];
    const made = await upload(first, { name: 'versions', title: 'First', category: 'monitoring' }, keys.mine);
    expect(made.body).toMatchObject({ category: 'Monitoring', version: { number: 1 } });
    const again = await upload(first, { name: 'versions' }, keys.mine);
    expect([again.status, again.body.version.number, again.body.outcome]).toEqual([200, 1, 'unchanged']);
    expect(again.body.updated_at).toBe(made.body.updated_at);
    const renamed = await upload(first, { name: 'versions', title: 'First one' }, keys.mine);
    expect([renamed.body.version.number, renamed.body.outcome]).toEqual([1, 'changed']);
    const back = await ask('/v1/stacks/versions', { method: 'PATCH', body: { title: 'First' }, key: keys.mine });
    await ask('/v1/stacks/versions', { method: 'PATCH', body: { title: 'First' }, key: keys.mine });
    expect(back.status).toBe(200);
    const { body: audited } = await ask(`/v1/audit?target_id=${made.body.id}`, { key: keys.mine });
    expect(audited.data.map(({ action }: { action: string }) => action)).toEqual([
      'stack.changed',
      'stack.changed',
      'stack.created',
    ]);
    const next = await upload(second, { name: 'versions', description: 'Better' }, keys.mine);
    expect([next.status, next.body]).toMatchObject([
      200,
      { outcome: 'new_version', id: made.body.id, title: 'First', description: 'Better', category: 'Monitoring' },
    ]);
    expect(next.body.version).toMatchObject({
      number: 2,
      sha256: createHash('sha256').update(second).digest('hex'),
      size: second.length,
      files: 2,
    });
  });

  it('are limited for each user', async () => {
    const { key } = await api().organization();
    const zip = packOf({});
    await upload(zip, { name: 'many-0' }, key);
    await api().db.sql`
      insert into stacks (id, name, visibility, owner_user_id, title, description, current_version_id, created_at, updated_at)
      select gen_random_uuid(), 'many-' || n, 'private', owner_user_id, '', '', current_version_id, now(), now()
      from stacks, generate_series(1, 48) n where name = 'many-0'`;
    expect((await upload(zip, { name: 'many-49' }, key)).status).toBe(201);
    expect(refusal(await upload(zip, { name: 'one-more' }, key))).toEqual([409, 'CONFLICT']);
    const [row] = await api().db.sql`select count(*)::int as kept from stack_packages
      where sha256 = ${createHash('sha256').update(zip).digest('hex')}`;
    expect(row?.['kept']).toBe(1);
  });
});

describe('a stack', () => {
  it('is parsed from its manifest and its module', async () => {
    const zip = packOf({
      'README.md': '# Title\n\nA queue.\n',
      'deep/er/manifest.yaml': 'title: Not this one',
      'pack/manifest.yaml': [
        'title: Queue',
        'category: scheduler',
        'icon: 🐙',
        'author: Somebody',
        'applicable_profiles: [h100x8, cpu]',
        'web: {port: 8080, path: /ui}',
        'inputs:',
        '  - {name: replicas, type: number, default: 3, description: How many}',
        '  - {name: token, required: true}',
        '  - {name: labels, type: map}',
        '  - {name: gone, type: bool, default: true}',
      ].join('\n'),
      'pack/main.tf': [
        'terraform {\n  required_version = ">= 1.4"\n}',
        'variable "replicas" {\n  type = number\n}',
        'variable "token" {\n  type = string\n  sensitive = true\n}',
        'variable "labels" {\n  type = map(string)\n  default = {}\n}',
        'variable "needed" {\n  type = list(object({ a = optional(number, 1) }))\n}',
        'variable "quiet" {\n  default = "x"\n}',
        'variable "nodes" {\n  type = any\n}',
      ].join('\n'),
      'pack/.terraform/modules.json': '{}',
      'pack/terraform.tfstate': 'secret',
    });
    const {
      body: { outcome, ...body },
    } = await upload(zip, { name: 'queue' });
    expect(outcome).toBe('created');
    expect(body).toEqual({
      id: expect.stringMatching(/^stack_[0-9a-f]{32}$/),
      name: 'queue',
      title: 'Queue',
      description: 'A queue.',
      category: 'Scheduler',
      icon: '🐙',
      visibility: 'global',
      builtin: false,
      owner_id: expect.stringMatching(/^user_/),
      inputs: [
        {
          name: 'replicas',
          type: 'number',
          type_expression: 'number',
          description: 'How many',
          required: false,
          default: 3,
          sensitive: false,
        },
        {
          name: 'token',
          type: 'string',
          type_expression: 'string',
          description: '',
          required: true,
          default: null,
          sensitive: true,
        },
        {
          name: 'labels',
          type: 'map',
          type_expression: 'map(string)',
          description: '',
          required: false,
          default: {},
          sensitive: false,
        },
        {
          name: 'gone',
          type: 'bool',
          type_expression: null,
          description: '',
          required: false,
          default: true,
          sensitive: false,
        },
        {
          name: 'needed',
          type: 'list',
          type_expression: 'list(object({ a = optional(number, 1) }))',
          description: '',
          required: true,
          default: null,
          sensitive: false,
        },
      ],
      applicable_profiles: ['h100x8', 'cpu'],
      web: { port: 8080, node: null, path: '/ui' },
      required_versions: ['>= 1.4'],
      providers: [],
      warnings: [
        expect.stringContaining('ignored the unknown field author'),
        expect.stringContaining('no variable gone'),
        expect.stringContaining('needed'),
        expect.stringContaining('pack/terraform.tfstate'),
      ],
      version: {
        number: 1,
        sha256: expect.any(String),
        size: zip.length,
        files: 4,
        created_at: expect.stringMatching(/Z$/),
      },
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      updated_at: expect.any(String),
    });
    expect((await ask('/v1/stacks/queue', { key: keys.inference })).body).toEqual({ ...body, owner_id: null });
    expect((await ask(`/v1/stacks/${body.id}`)).body).toEqual(body);
  });

  it('is parsed from its module when it has no manifest', async () => {
    const zip = packOf({
      'web-app/main.tf':
        'variable "port" {\n  type = number\n  default = 80\n}\noutput "web_port" {\n  value = var.port\n}\n',
      'web-app/more.tf.json': '{"variable": {"flag": {"type": "bool", "default": false, "description": "On"}}}',
    });
    expect((await upload(zip)).body).toMatchObject({
      name: 'web-app',
      title: 'web-app',
      category: null,
      icon: null,
      applicable_profiles: null,
      web: { port: null },
      inputs: [
        { name: 'port', type: 'number', required: false, default: 80 },
        { name: 'flag', type: 'bool', required: false, default: false, description: 'On' },
      ],
    });
  });

  it('is downloaded byte for byte by users who see it, and a private one by its owner only', async () => {
    const zip = packOf({ 'unlike.txt': 'any other' });
    await upload(zip, { name: 'exact' });
    const own = await upload(zip, { name: 'exact-own' }, keys.mine);
    const fetchZip = async (path: string, key: string | null) => {
      const response = await fetch(new URL(path, api().url), {
        headers: key === null ? {} : { authorization: `Bearer ${key}` },
      });
      return { response, bytes: Buffer.from(await response.arrayBuffer()) };
    };
    const { response, bytes } = await fetchZip('/v1/stacks/exact/download', keys.inference);
    expect([response.status, response.headers.get('content-type'), bytes.equals(zip)]).toEqual([
      200,
      'application/zip',
      true,
    ]);
    expect(response.headers.get('content-disposition')).toBe('attachment; filename="exact-1.zip"');
    expect((await fetchZip('/v1/stacks/exact-own/download', keys.mine)).bytes.equals(zip)).toBe(true);
    expect((await fetchZip('/v1/stacks/exact/download', null)).response.status).toBe(401);
    expect((await fetchZip('/v1/stacks/exact-own/download', keys.theirs)).response.status).toBe(404);
    expect(refusal(await ask(`/v1/stacks/${own.body.id}/download`))).toEqual([403, 'FORBIDDEN']);
    // An application's key of the owner reads what is the owner's.
    expect((await fetchZip('/v1/stacks/exact-own/download', keys.inference)).response.status).toBe(200);
  });

  it('returns the same 404 when it is hidden as when it is unknown', async () => {
    const { body } = await upload(packOf({}), { name: 'secret-one' }, keys.theirs);
    const none = { error: { code: 'NOT_FOUND', message: 'There is no such stack.', details: [] } };
    for (const name of ['secret-one', body.id, formatId('stack', uuidv7()), 'nothing', '%00', '..%2f..', 'stack_1']) {
      for (const answer of [
        await ask(`/v1/stacks/${name}`, { key: keys.mine }),
        await ask(`/v1/stacks/${name}/download`, { key: keys.mine }),
        await ask(`/v1/stacks/${name}`, { key: keys.mine, method: 'PATCH', body: { title: 'x' } }),
        await ask(`/v1/stacks/${name}`, { key: keys.mine, method: 'DELETE' }),
      ]) {
        expect([answer.status, answer.body]).toEqual([404, none]);
      }
    }
    // Administrators see that it exists.
    expect((await ask('/v1/stacks/secret-one')).body).toMatchObject({ id: body.id, owner_id: body.owner_id });
    expect((await ask('/v1/stacks/secret-one', { key: keys.adminInference })).status).toBe(404);
  });
});

describe('the built-in stacks', () => {
  it('are visible to all users, and cannot be deleted or replaced', async () => {
    const { body } = await ask('/v1/stacks?limit=100', { key: keys.inference });
    const ours = body.data.filter(({ builtin }: { builtin: boolean }) => builtin);
    expect(ours.map((s: { name: string }) => s.name).join()).toBe('k3s,monitoring,notebook,ray,scheduler,slurm,vllm');
    expect(ours.flatMap(({ warnings }: { warnings: string[] }) => warnings)).toEqual([]);
    expect(refusal(await ask('/v1/stacks/scheduler', { method: 'DELETE' }))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await upload(packOf({}), { name: 'scheduler' }))).toEqual([409, 'CONFLICT']);
    const changed = await ask('/v1/stacks/scheduler', { method: 'PATCH', body: { title: 'Jobs' } });
    expect([changed.status, changed.body.title]).toEqual([200, 'Jobs']);
  });
});

describe('GET /v1/stacks', () => {
  it.each(['page=0', 'limit=x', 'search=', 'sort=name', 'search=a&search=b', 'category=%00', 'search=%00'])(
    'returns 400 for ?%s',
    async (query) => {
      const answer = await ask(`/v1/stacks?${query}`);
      expect([answer.status, answer.body.error.details[0].field]).toEqual([400, query.split('=')[0]]);
    },
  );

  it('returns global and own stacks, by search and category, in pages', async () => {
    const { key } = await api().organization();
    await upload(packOf({}), { name: 'lister-b', title: 'Zebra 100%', category: 'Zoo_1' }, key);
    await upload(packOf({}), { name: 'lister-a', description: 'has a zebra', category: 'zoo_1' }, key);
    await upload(packOf({}), { name: 'lister-c', title: 'Zebra', category: 'zooA1' });
    const names = async (query: string, asked = key) =>
      (await ask(`/v1/stacks?${query}`, { key: asked })).body.data.map(({ name }: { name: string }) => name);
    expect(await names('search=ZEBRA')).toEqual(['lister-a', 'lister-b', 'lister-c']);
    expect(await names('search=100%25')).toEqual(['lister-b']);
    expect(await names('search=zebra&category=ZOO_1')).toEqual(['lister-a', 'lister-b']);
    expect(await names('search=zebra', keys.theirs)).toEqual(['lister-c']);
    const page = await ask('/v1/stacks?search=zebra&limit=2&page=2', { key });
    expect([page.body.data.length, page.body.pagination]).toEqual([1, { page: 2, limit: 2, total: 3, pages: 2 }]);
  });
});
