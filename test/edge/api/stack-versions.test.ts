import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { packZip, type ZippedFile } from '#base/zip.ts';
import type { Answer } from '#test/api/test-api.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { details, refusal, useStacks } from './stacks-bench.ts';

/** The versions of a stack: their list, their packages, what differs between them, and the way back. */

const { api, ask, keys, upload } = useStacks();

const text = (path: string, content: string, isExecutable = false): ZippedFile => ({
  path,
  bytes: Buffer.from(content),
  isExecutable,
});
const pack = (files: readonly ZippedFile[]): Promise<Buffer> => packZip([...files], { compress: true });

async function pushed(name: string, contents: readonly string[], key?: string): Promise<void> {
  for (const content of contents) await upload(packOf({ 'n.txt': content }), { name }, key);
}

const numbers = ({ body }: Answer): number[] => body.data.map(({ number }: { number: number }) => number);

async function pin(name: string, number: number): Promise<void> {
  const { db, stacks } = api();
  const [row] = await db.sql`select v.id from stack_versions v join stacks s on s.id = v.stack_id
    where s.name = ${name} and v.number = ${number}`;
  await db.orm.transaction((tx) => stacks.pinIn(tx, String(row?.['id'])));
}

describe('the versions of a stack', () => {
  it('are listed in pages, newest first, with uploader and use for those who may change the stack', async () => {
    await pushed('listed', ['1', '2', '3'], keys.mine);
    await pin('listed', 2);
    const { body } = await ask('/v1/stacks/listed/versions?limit=2', { key: keys.mine });
    const { owner_id: owner, version } = (await ask('/v1/stacks/listed', { key: keys.mine })).body;
    expect(body.pagination).toEqual({ page: 1, limit: 2, total: 3, pages: 2 });
    expect(body.data).toEqual([
      { ...version, number: 3, newest: true, created_by: owner, in_use: false },
      expect.objectContaining({ number: 2, newest: false, created_by: owner, in_use: true, files: 2 }),
    ]);
    expect(numbers(await ask('/v1/stacks/listed/versions?limit=2&page=2', { key: keys.mine }))).toEqual([1]);
    expect((await ask('/v1/stacks/listed/versions', { key: keys.theirs })).status).toBe(404);
    await pushed('listed-global', ['1']);
    const seen = (await ask('/v1/stacks/listed-global/versions', { key: keys.theirs })).body.data;
    expect(seen).toEqual([expect.objectContaining({ number: 1, created_by: null, in_use: null })]);
    expect((await ask('/v1/stacks/listed/versions')).body.data[1]).toMatchObject({ created_by: owner, in_use: true });
    expect((await ask('/v1/stacks/scheduler/versions')).body.data).toEqual([
      expect.objectContaining({ number: 1, newest: true, created_by: null }),
    ]);
  });

  it('are read and downloaded one by one, as long as they are kept', async () => {
    const first = packOf({ 'main.tf': 'variable "one" {}' });
    await upload(first, { name: 'single' }, keys.mine);
    await upload(packOf({ 'main.tf': 'variable "two" {}' }), { name: 'single' }, keys.mine);
    const read = (path: string): Promise<Answer> => ask(`/v1/stacks/single${path}`, { key: keys.mine });
    expect((await read('?version=1')).body).toMatchObject({ inputs: [{ name: 'one' }], version: { number: 1 } });
    expect((await read('')).body).toMatchObject({ inputs: [{ name: 'two' }], version: { number: 2 } });
    const zip = await fetch(new URL('/v1/stacks/single/download?version=1', api().url), {
      headers: { authorization: `Bearer ${keys.mine}` },
    });
    expect(zip.headers.get('content-disposition')).toBe('attachment; filename="single-1.zip"');
    expect(Buffer.from(await zip.arrayBuffer()).equals(first)).toBe(true);
    for (const path of ['?version=3', '/download?version=3', '/diff?to=3', '/diff?from=3'])
      expect(refusal(await read(path))).toEqual([404, 'NOT_FOUND']);
    for (const path of ['?version=0', '/download?version=x', '/diff?to=1.5', '?versoin=1'])
      expect(refusal(await read(path))).toEqual([400, 'VALIDATION_ERROR']);
    expect(refusal(await ask('/v1/stacks/single/download?version=1'))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await ask('/v1/stacks/single/diff'))).toEqual([403, 'FORBIDDEN']);
    await pushed('single', ['3', '4', '5', '6', '7'], keys.mine);
    expect(refusal(await read('?version=1'))).toEqual([404, 'NOT_FOUND']);
    expect(numbers(await read('/versions'))).toEqual([7, 6, 5, 4, 3]);
  });
});

describe('the difference between two versions', () => {
  const compare = async (name: string, query = ''): Promise<Answer> =>
    ask(`/v1/stacks/${name}/diff${query}`, { key: keys.mine });

  it('has a diff of each text file, which git applies', async () => {
    const long = Array.from({ length: 200 }, (_, line) => `# line ${line}`);
    const before = [
      text('main.tf', long.join('\n')),
      text('deep/a b/"é".sh', 'echo one\n'),
      text('gone.txt', 'gone\n'),
      text('same.txt', 'same\n'),
      text('tool', '#!/bin/sh\n'),
      text('crlf.txt', 'one\r\ntwo\r\n'),
      text('data.bin', 'a\0b'),
    ];
    const after = [
      text('main.tf', [...long.slice(0, 50), '# new', ...long.slice(52)].join('\n') + '\n'),
      text('deep/a b/"é".sh', 'echo two\n'),
      text('same.txt', 'same\n'),
      text('tool', '#!/bin/sh\n', true),
      text('crlf.txt', 'one\r\n2\r\n'),
      text('data.bin', 'a\0c'),
      text('fresh/run.sh', 'echo\n', true),
    ];
    await upload(
      await pack(before.map((file) => ({ ...file, path: `stack-1.0/${file.path}` }))),
      { name: 'diffed' },
      keys.mine,
    );
    await upload(await pack(after), { name: 'diffed' }, keys.mine);
    const { body } = await compare('diffed');
    expect([body.from, body.to]).toEqual([1, 2]);
    expect(
      body.files.map((file: { path: string; change: string; omitted: string }) => [
        file.path,
        file.change,
        file.omitted,
      ]),
    ).toEqual([
      ['crlf.txt', 'changed', null],
      ['data.bin', 'changed', 'binary'],
      ['deep/a b/"é".sh', 'changed', null],
      ['fresh/run.sh', 'added', null],
      ['gone.txt', 'removed', null],
      ['main.tf', 'changed', null],
      ['tool', 'changed', null],
    ]);
    const folder = mkdtempSync(join(tmpdir(), 'headgate-diff-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    for (const { path, bytes } of before) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), bytes);
      chmodSync(join(folder, path), 0o644);
    }
    const input = body.files.map(({ diff }: { diff: string | null }) => diff ?? '').join('\n');
    execFileSync('git', ['apply', '-p1', '-'], { cwd: folder, input });
    for (const { path, bytes, isExecutable } of after.filter((file) => file.path !== 'data.bin')) {
      expect(readFileSync(join(folder, path)).equals(bytes), path).toBe(true);
      expect((statSync(join(folder, path)).mode & 0o111) !== 0, path).toBe(isExecutable);
    }
    expect(() => statSync(join(folder, 'gone.txt'))).toThrow('ENOENT');
    expect(
      (await compare('diffed', '?from=2&to=1')).body.files.map(({ change }: { change: string }) => change),
    ).toEqual(['changed', 'changed', 'changed', 'removed', 'added', 'changed', 'changed']);
    expect((await compare('diffed', '?from=2')).body).toEqual({ from: 2, to: 2, files: [], inputs: [] });
  });

  it('has the inputs that appear, vanish, and change in type, default, or what is required or secret', async () => {
    const declare = (variables: Readonly<Record<string, string>>): Buffer =>
      packOf({
        'main.tf': Object.entries(variables)
          .map(([name, body]) => `variable "${name}" {\n${body}\n}`)
          .join('\n'),
      });
    const same = { same: 'type = string', described: 'description = "one"' };
    await upload(
      declare({
        ...same,
        gone: '',
        kind: 'type = string',
        list: 'type = list(string)',
        value: 'default = 1',
        need: 'default = 2',
        secret: '',
      }),
      { name: 'inputs' },
      keys.mine,
    );
    await upload(
      declare({
        ...same,
        described: 'description = "two"',
        kind: 'type = number',
        list: 'type = list(number)',
        value: 'default = 3',
        need: '',
        secret: 'sensitive = true',
        fresh: 'default = ["a"]',
      }),
      { name: 'inputs' },
      keys.mine,
    );
    const { inputs } = (await compare('inputs')).body;
    const short = inputs.map(({ name, change, before, after }: Record<string, Record<string, unknown> | null>) => [
      name,
      change,
      ...[before, after].map((one) =>
        one === null || one === undefined
          ? null
          : [one['type_expression'], one['default'], one['required'], one['sensitive']],
      ),
    ]);
    expect(short).toEqual([
      ['fresh', 'added', null, [null, ['a'], false, false]],
      ['gone', 'removed', [null, null, true, false], null],
      ['kind', 'changed', ['string', null, true, false], ['number', null, true, false]],
      ['list', 'changed', ['list(string)', null, true, false], ['list(number)', null, true, false]],
      ['need', 'changed', [null, 2, false, false], [null, null, true, false]],
      ['secret', 'changed', [null, null, true, false], [null, null, true, true]],
      ['value', 'changed', [null, 1, false, false], [null, 3, false, false]],
    ]);
  });

  it('leaves out what is too large, and says so', async () => {
    const lines = (count: number, word: string): string =>
      Array.from({ length: count }, (_, line) => `${word} ${line}`).join('\n');
    const many = (word: string) =>
      Array.from({ length: 60 }, (_, index) => text(`many/${index}.txt`, lines(500, `${word}${index}`)));
    const main = text('main.tf', '');
    await upload(
      await pack([main, text('a.txt', lines(2000, 'one')), text('big.txt', 'x'.repeat(600_000)), ...many('one')]),
      { name: 'large' },
      keys.mine,
    );
    await upload(
      await pack([main, text('a.txt', lines(2000, 'two')), text('big.txt', 'y'.repeat(600_000)), ...many('two')]),
      { name: 'large' },
      keys.mine,
    );
    const { files } = (await compare('large')).body;
    expect(files).toHaveLength(62);
    expect(files.slice(0, 2).map(({ omitted }: { omitted: string }) => omitted)).toEqual(['too_large', 'too_large']);
    const shown = files.filter(({ diff }: { diff: string | null }) => diff !== null);
    expect(shown.length).toBeGreaterThan(20);
    expect(shown.length).toBeLessThan(60);
    expect(JSON.stringify(shown).length).toBeLessThan(700_000);
  });

  it('needs a version before', async () => {
    await pushed('only', ['1'], keys.mine);
    expect(refusal(await compare('only'))).toEqual([409, 'CONFLICT']);
  });
});

describe('a stack that is reverted', () => {
  const revert = (
    name: string,
    body: object = {},
    key: string | undefined = keys.mine,
    headers = {},
  ): Promise<Answer> => ask(`/v1/stacks/${name}/revert`, { body, headers, ...(key !== '' && { key }) });

  it('gets a new version with the package before, or an older one, and its fields', async () => {
    await upload(packOf({ 'manifest.yaml': 'title: First\n' }), { name: 'back' }, keys.mine);
    await upload(packOf({ 'manifest.yaml': 'title: Second\n' }), { name: 'back' }, keys.mine);
    await upload(packOf({ 'manifest.yaml': 'title: Third\n' }), { name: 'back' }, keys.mine);
    expect((await revert('back')).body).toMatchObject({
      outcome: 'new_version',
      title: 'Second',
      version: { number: 4 },
    });
    expect((await revert('back', { version: 1 })).body).toMatchObject({ title: 'First', version: { number: 5 } });
    expect((await revert('back', { version: 5 })).body).toMatchObject({ outcome: 'unchanged', version: { number: 5 } });
    const { data } = (await ask('/v1/stacks/back/versions', { key: keys.mine })).body;
    const hashes = data.map(({ sha256 }: { sha256: string }) => sha256);
    expect([hashes[0], hashes[1], new Set(hashes).size]).toEqual([hashes[4], hashes[3], 3]);
    const rows = await api().db.sql`
      select action, before ->> 'version' as before, after ->> 'version' as after, after ->> 'reverted_to' as to
      from audit_log where action = 'stack.reverted' order by id`;
    expect([...rows]).toEqual([
      { action: 'stack.reverted', before: '3', after: '4', to: '2' },
      { action: 'stack.reverted', before: '4', after: '5', to: '1' },
    ]);
  });

  it('is reverted once for an Idempotency-Key', async () => {
    await pushed('back-once', ['1', '2'], keys.mine);
    const again = () => revert('back-once', {}, keys.mine, { 'idempotency-key': 'back' });
    const first = await again();
    expect(first.body).toMatchObject({ outcome: 'new_version', version: { number: 3 } });
    expect((await again()).body).toEqual({ ...first.body, outcome: 'unchanged' });
    const other = await revert('back-once', { version: 1 }, keys.mine, { 'idempotency-key': 'back' });
    expect(other.status).toBe(422);
  });

  it('keeps one package for two reverts at the same moment', async () => {
    await pushed('back-twice', ['1', '2'], keys.mine);
    const both = await Promise.all([revert('back-twice', { version: 1 }), revert('back-twice', { version: 1 })]);
    expect(new Set(both.map(({ body }) => body.outcome))).toEqual(new Set(['new_version', 'unchanged']));
    expect(numbers(await ask('/v1/stacks/back-twice/versions', { key: keys.mine }))).toEqual([3, 2, 1]);
  });

  it('belongs to its owner, or is a global stack of the product’s administrators', async () => {
    await pushed('owned', ['1', '2'], keys.mine);
    await pushed('owned-global', ['1', '2']);
    expect(refusal(await revert('owned', {}, keys.theirs))).toEqual([404, 'NOT_FOUND']);
    expect(refusal(await revert('owned', {}, ''))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await revert('owned', {}, keys.inference))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await revert('owned-global'))).toEqual([403, 'FORBIDDEN']);
    expect(refusal(await revert('scheduler', { version: 1 }, ''))).toEqual([403, 'FORBIDDEN']);
    expect((await revert('owned-global', {}, '')).body.version.number).toBe(3);
  });

  it('needs the version', async () => {
    await pushed('no-back', ['1'], keys.mine);
    expect(refusal(await revert('no-back'))).toEqual([409, 'CONFLICT']);
    expect(refusal(await revert('no-back', { version: 2 }))).toEqual([404, 'NOT_FOUND']);
    expect(details(await revert('no-back', { version: 0, number: 1 }))[0]).toBe(400);
  });
});
