import { describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);

describe.each(['/v1/projects', '/api/v1/projects'])('%s', (path) => {
  it('lists all problems of a body at once', async () => {
    const { status, body } = await ask(path, {
      body: { description: 5, visibility: 'secret', colour: 'red', archived: true },
    });
    expect([status, body.error.code]).toEqual([400, 'VALIDATION_ERROR']);
    expect(body.error.details).toEqual([
      { field: 'name', message: 'is missing' },
      { field: 'description', message: 'must be a string' },
      { field: 'visibility', message: 'must be one of private, public' },
      { field: 'colour', message: 'is not a known field' },
      { field: 'archived', message: 'is not a known field' },
    ]);
  });

  it.each([
    [{ name: '' }, 'name'],
    [{ name: 'x'.repeat(101) }, 'name'],
    [{ name: 'a\0' }, 'name'],
    [{ name: 'ok', description: 'x'.repeat(1001) }, 'description'],
    [{ name: 'ok', description: 'a\0' }, 'description'],
    [{ name: 'ok', description: null }, 'description'],
  ])('returns 400 for the body %j', async (body, field) => {
    const answer = await ask(path, { body });
    expect([answer.status, answer.body.error.details.map((detail: { field: string }) => detail.field)]).toEqual([
      400,
      [field],
    ]);
  });

  it.each([
    'page=0',
    'page=-1',
    'page=1.5',
    'page=1e3',
    'page=0x10',
    'page=%202',
    'page=',
    'page=1&page=2',
    'limit=0',
    'limit=x',
    'cursor=x',
  ])('returns 400 for the list ?%s', async (query) => {
    const { status, body } = await ask(`${path}?${query}`);
    expect([status, body.error.code, body.error.details[0].field]).toEqual([
      400,
      'VALIDATION_ERROR',
      query.split('=')[0],
    ]);
  });

  it('returns 409 for a name used in the organization, in any case, also on rename', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const { body: project } = await ask(path, { key: mine.key, body: { name: 'Search' } });
    const changed = await ask(path, { key: mine.key, body: { name: 'other' } });
    for (const answer of [
      await ask(path, { key: mine.key, body: { name: 'sEARCH' } }),
      await ask(path, { key: mine.key, body: { name: 'Default' } }),
      await ask(`${path}/${changed.body.id}`, { key: mine.key, method: 'PATCH', body: { name: 'search' } }),
    ]) {
      expect([answer.status, answer.body.error.code, answer.body.error.details[0].field]).toEqual([
        409,
        'CONFLICT',
        'name',
      ]);
    }
    const again = await ask(`${path}/${project.id}`, { key: mine.key, method: 'PATCH', body: { name: 'SEARCH' } });
    expect([again.status, again.body.name]).toEqual([200, 'SEARCH']);
    expect((await ask(path, { key: other.key, body: { name: 'search' } })).status).toBe(201);
  });

  it('returns 404 for projects of other organizations and for unknown ones', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const { body } = await ask(path, { key: other.key, body: { name: 'theirs' } });
    for (const id of [body.id, formatId('proj', uuidv7()), 'proj_1', '1', '%00']) {
      for (const answer of [
        await ask(`${path}/${id}`, { key: mine.key }),
        await ask(`${path}/${id}`, { key: mine.key, method: 'PATCH', body: { name: 'mine' } }),
        await ask(`${path}/${id}/archive`, { key: mine.key, method: 'POST' }),
      ]) {
        expect([answer.status, answer.body]).toEqual([
          404,
          { error: { code: 'NOT_FOUND', message: 'There is no such project.', details: [] } },
        ]);
      }
    }
    expect((await ask(`${path}/${body.id}`, { key: other.key })).body).toEqual(body);
  });

  it('creates, reads, changes and archives a project', async () => {
    const { key } = await api().organization();
    const made = await ask(path, { key, body: { name: ' Search ', description: 'two\nlines' } });
    expect(made.status).toBe(201);
    expect(made.body).toEqual({
      id: expect.stringMatching(/^proj_[0-9a-f]{32}$/),
      name: 'Search',
      description: 'two\nlines',
      visibility: 'private',
      archived: false,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    });
    expect(made.headers.get('location')).toBe(`${path}/${made.body.id}`);
    expect((await ask(made.headers.get('location') ?? '', { key })).body).toEqual(made.body);
    const patch = { description: '', visibility: 'public' };
    const changed = await ask(`${path}/${made.body.id}`, { key, method: 'PATCH', body: patch });
    expect([changed.status, changed.body]).toEqual([200, { ...made.body, ...patch }]);
    const archived = await ask(`${path}/${made.body.id}/archive`, { key, method: 'POST' });
    expect([archived.status, archived.body]).toEqual([200, { ...changed.body, archived: true }]);
    expect((await ask(`${path}/${made.body.id}`, { key })).body).toEqual(archived.body);
    const back = await ask(`${path}/${made.body.id}`, { key, method: 'PATCH', body: { archived: false } });
    expect(back.body).toEqual(changed.body);
    const rows = await api().db
      .sql`select action, before, after from audit_log where target_id = ${made.body.id} order by id`;
    expect(rows.map(({ action }) => action)).toEqual([
      'project.created',
      'project.changed',
      'project.archived',
      'project.unarchived',
    ]);
    expect(rows[2]).toMatchObject({ before: { archived: false }, after: { archived: true } });
  });

  it('changes the fields sent by PUT, and ignores read-only fields', async () => {
    const { key } = await api().organization();
    const { body: made } = await ask(path, { key, body: { name: 'Search', description: 'old' } });
    const put = (body: unknown): Promise<Answer> => ask(`${path}/${made.id}`, { key, method: 'PUT', body });
    for (const body of [{}, { name: null }, { visibility: 'secret' }, { description: 5 }, { archived: 'no' }]) {
      expect((await put(body)).status).toBe(400);
    }
    expect((await put({ name: 'default' })).status).toBe(409);
    expect((await put({ id: 'proj_x', created_at: 5, colour: 'red' })).body).toEqual(made);
    const changed = { ...made, name: 'Find', visibility: 'public' };
    expect((await put(changed)).body).toEqual(changed);
    const nobody = `${path}/${formatId('proj', uuidv7())}`;
    expect((await ask(nobody, { key, method: 'PUT', body: { name: 'x' } })).status).toBe(404);
  });

  it('shows an inference key its own project and public ones, and rejects its changes', async () => {
    const { key } = await api().organization();
    const { body: open } = await ask(path, { key, body: { name: 'open', visibility: 'public' } });
    const { body: closed } = await ask(path, { key, body: { name: 'closed' } });
    const { body: made } = await ask('/v1/keys', { key, body: {} });
    const read = (under = ''): Promise<Answer> => ask(path + under, { key: made.secret });
    const { body: list } = await read();
    expect(list.data.map(({ name }: { name: string }) => name)).toEqual(['default', 'open']);
    expect(list.pagination.total).toBe(2);
    expect((await read(`/${open.id}`)).body).toEqual(open);
    expect((await read(`/${list.data[0].id}`)).status).toBe(200);
    expect((await read(`/${closed.id}`)).status).toBe(404);
    for (const method of ['PUT', 'PATCH']) {
      expect((await ask(`${path}/${open.id}`, { key: made.secret, method, body: { name: 'x' } })).status).toBe(403);
    }
  });

  it.each([
    ['', 'default b a c'],
    ['sort=created_at', 'default b a c'],
    ['sort=-created_at', 'c a b default'],
    ['sort=name', 'a b c default'],
    ['sort=-name', 'default c b a'],
    ['sort=-id', 'c a b default'],
  ])('sorts by ?%s', async (query, names) => {
    const { key } = await api().organization();
    for (const name of ['b', 'a', 'c']) await ask(path, { key, body: { name } });
    const { body } = await ask(`${path}?${query}`, { key });
    expect(body.data.map(({ name }: { name: string }) => name).join(' ')).toBe(names);
  });

  it.each(['sort=', 'sort=email', 'sort=NAME', 'sort=name,id', 'sort=name&sort=id'])(
    'returns 400 for the sort order ?%s',
    async (query) => {
      const { status, body } = await ask(`${path}?${query}`);
      expect([status, body.error.details[0].field]).toEqual([400, 'sort']);
    },
  );

  it('pages by number, and shows the limit in effect', async () => {
    const { key } = await api().organization();
    for (const name of ['a', 'b', 'c', 'd']) await ask(path, { key, body: { name } });
    const names = async (query: string): Promise<unknown> => {
      const { body } = await ask(`${path}?${query}`, { key });
      return [body.data.map(({ name }: { name: string }) => name), body.pagination];
    };
    expect(await names('limit=2&page=1')).toEqual([['default', 'a'], { page: 1, limit: 2, total: 5, pages: 3 }]);
    expect(await names('limit=2&page=3')).toEqual([['d'], { page: 3, limit: 2, total: 5, pages: 3 }]);
    expect(await names('limit=2&page=9')).toEqual([[], { page: 9, limit: 2, total: 5, pages: 3 }]);
    expect(await names('limit=5000')).toEqual([
      ['default', 'a', 'b', 'c', 'd'],
      { page: 1, limit: 100, total: 5, pages: 1 },
    ]);
    expect(await names('page=999999999')).toEqual([[], { page: 999_999_999, limit: 20, total: 5, pages: 1 }]);
  });
});

describe('a project in the cache for requests', () => {
  it('is available after its first use, and changes apply at once', async () => {
    const { id, key } = await api().organization();
    const { body } = await ask('/v1/projects', { key, body: { name: 'hot' } });
    const ref = [parseId('org', id) ?? '', parseId('proj', body.id) ?? ''] as const;
    expect(await api().accounts.findProject(...ref)).toMatchObject({ name: 'hot', archived: false });
    expect(api().accounts.findProject(...ref)).toMatchObject({ name: 'hot' });
    expect(api().accounts.findProject(uuidv7(), ref[1])).toBeNull();
    await ask(`/v1/projects/${body.id}/archive`, { key, method: 'POST' });
    expect(api().accounts.findProject(...ref)).toMatchObject({ archived: true });
  });

  it('follows a change by another gateway after at most 30 seconds and one use', async () => {
    const { id, key } = await api().organization();
    const { body } = await ask('/v1/projects', { key, body: { name: 'far' } });
    const ref = { organizationId: parseId('org', id) ?? '', projectId: parseId('proj', body.id) ?? '' };
    const find = () => api().accounts.findProject(ref.organizationId, ref.projectId);
    await find();
    const other = api().secondRooms();
    await other.accounts.patchProject(ref, { archived: true }, systemAuthor);
    expect(find()).toMatchObject({ archived: false });
    api().turnClock(30_000);
    await expect.poll(find).toMatchObject({ archived: true });
  });
});
