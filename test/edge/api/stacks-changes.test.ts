import { describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { details, refusal, useStacks } from './stacks-bench.ts';
import type { Answer } from '#test/api/test-api.ts';

const { api, ask, keys, upload } = useStacks();

describe('changes of a stack', () => {
  it('are rejected for users without the right', async () => {
    await upload(packOf({}), { name: 'global-one' });
    await upload(packOf({}), { name: 'mine-one' }, keys.mine);
    const patch = (name: string, key: string, body: object): Promise<Answer> =>
      ask(`/v1/stacks/${name}`, { key, method: 'PATCH', body });
    expect(refusal(await patch('global-one', keys.mine, { title: 'x' }))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await ask('/v1/stacks/global-one', { key: keys.mine, method: 'DELETE' }))).toEqual([
      403,
      'FORBIDDEN',
    ]);
    expect(refusal(await patch('mine-one', keys.mine, { visibility: 'global' }))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await patch('mine-one', keys.inference, { title: 'x' }))).toEqual([403, 'FORBIDDEN']);
    expect(details(await patch('mine-one', keys.mine, { title: '', icon: 'x', name: 'y', visibility: 'all' }))).toEqual(
      [
        400,
        'VALIDATION_ERROR',
        expect.arrayContaining([
          { field: 'title', message: 'must not be empty' },
          { field: 'icon', message: expect.stringContaining('emoji') },
          { field: 'visibility', message: 'must be one of global, private' },
          { field: 'name', message: 'is not a known field' },
        ]),
      ],
    );
    expect((await patch('mine-one', keys.mine, {})).status).toBe(400);
  });

  it('are made by the owner and by administrators, who can make a stack global', async () => {
    const { body } = await upload(packOf({}), { name: 'to-share' }, keys.mine);
    const patch = (key: string | undefined, change: object): Promise<Answer> =>
      ask('/v1/stacks/to-share', { method: 'PATCH', body: change, ...(key !== undefined && { key }) });
    const changed = await patch(keys.mine, {
      title: 'New',
      category: 'ml framework',
      icon: 'https://example.org/i.png',
    });
    expect(changed.body).toMatchObject({ title: 'New', category: 'ML Framework', icon: 'https://example.org/i.png' });
    expect((await patch(keys.mine, { category: null })).body.category).toBeNull();
    expect((await patch(undefined, { visibility: 'global' })).body.visibility).toBe('global');
    expect((await ask('/v1/stacks/to-share', { key: keys.theirs })).body.id).toBe(body.id);
    // A stack that everybody may use is no longer its maker's to change.
    expect(refusal(await patch(keys.mine, { title: 'x' }))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await upload(packOf({ 'b.tf': '' }), { name: 'to-share' }, keys.mine))).toEqual([409, 'CONFLICT']);
    await upload(packOf({}), { name: 'to-share-2' }, keys.mine);
    await upload(packOf({}), { name: 'to-share-2' });
    const own = (await ask('/v1/stacks/to-share-2', { key: keys.mine })).body.id;
    expect(refusal(await ask(`/v1/stacks/${own}`, { method: 'PATCH', body: { visibility: 'global' } }))).toEqual([
      409,
      'CONFLICT',
    ]);
  });

  it('have audit entries', async () => {
    const { body } = await upload(packOf({}), { name: 'audited' }, keys.mine);
    await upload(packOf({ 'b.txt': '' }), { name: 'audited' }, keys.mine);
    await ask('/v1/stacks/audited', { key: keys.mine, method: 'PATCH', body: { title: 'Other' } });
    await ask('/v1/stacks/audited', { key: keys.mine, method: 'DELETE' });
    const rows = await api().db.sql`
      select action, before ->> 'title' as before, after ->> 'title' as after, after ->> 'version' as version
      from audit_log where target_id = ${body.id} order by id`;
    expect([...rows]).toEqual([
      { action: 'stack.created', before: null, after: 'audited', version: '1' },
      { action: 'stack.pushed', before: 'audited', after: 'audited', version: '2' },
      { action: 'stack.changed', before: 'audited', after: 'Other', version: '2' },
      { action: 'stack.deleted', before: 'Other', after: null, version: null },
    ]);
  });

  it('keep the latest five versions and one that a run holds, even when the stack is deleted', async () => {
    const zip = packOf({ 'held.txt': 'held' });
    const { body } = await upload(zip, { name: 'held' }, keys.mine);
    const [row] = await api().db.sql`select id from stack_versions where sha256 = ${body.version.sha256}`;
    const versionId = String(row?.['id']);
    expect(await api().db.orm.transaction((tx) => api().stacks.pinIn(tx, versionId))).toBe(true);
    for (let number = 0; number < 8; number += 1)
      await upload(packOf({ 'n.txt': String(number) }), { name: 'held' }, keys.mine);
    const kept = await api().db.sql`select number from stack_versions v join stacks s on s.id = v.stack_id
      where s.name = 'held' order by number`;
    expect(kept.map(({ number }) => number)).toEqual([1, 5, 6, 7, 8, 9]);
    expect((await ask('/v1/stacks/held', { key: keys.mine, method: 'DELETE' })).status).toBe(204);
    expect((await ask('/v1/stacks/held', { key: keys.mine, method: 'DELETE' })).status).toBe(404);
    const open = await api().stacks.openVersion(versionId);
    expect(open?.files.map(({ path }) => path)).toEqual(['held.txt', 'main.tf']);
    // Its name is free, and the new stack is another one.
    expect((await upload(packOf({}), { name: 'held' }, keys.mine)).body.id).not.toBe(body.id);
    await api().db.orm.transaction((tx) => api().stacks.unpinIn(tx, versionId));
    expect(await api().stacks.openVersion(versionId)).toBeNull();
    expect(await api().db.orm.transaction((tx) => api().stacks.pinIn(tx, versionId))).toBe(false);
  });
});
