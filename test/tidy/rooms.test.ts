import { globSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findCircles } from './circles.ts';
import { house } from './house.js';
import plugin from './rooms-plugin.js';
import { checkRooms, type SourceFile } from './rooms.ts';

const root = new URL('../..', import.meta.url).pathname;

function readTree(): SourceFile[] {
  const paths = globSync('{src,test,engines,drizzle}/**/*.{ts,js}', { cwd: root });
  return paths.map((path) => ({ path, text: readFileSync(`${root}${path}`, 'utf8') }));
}

/** Names the folders of src that have more files than a reader keeps in mind. */
function findLargeFolders(paths: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const path of paths.filter((each) => each.startsWith('src/'))) {
    const folder = dirname(path);
    counts.set(folder, (counts.get(folder) ?? 0) + 1);
  }
  return [...counts].filter(([, count]) => count > 30).map(([folder, count]) => `${folder} has ${count} files`);
}

/** Results of the check for one file in an otherwise faultless house. */
function check(path: string, text: string, others: readonly SourceFile[] = []): string[] {
  return checkRooms([{ path, text }, ...others], house);
}

describe('the check of the rooms', () => {
  it('fails without files', () => {
    expect(checkRooms([], house)).toEqual(['no files were checked']);
  });

  it('rejects a file that it cannot parse', () => {
    expect(check('src/base/a.ts', 'const = 1;')[0]).toContain('cannot be parsed');
  });

  it.each([
    ['src/base/a.ts', '#core/wallet/wallet.ts', 'base may not look up to core'],
    ['src/base/database/connect-database.ts', '#core/wallet/schema.ts', 'base may not look up to core'],
    ['src/core/wallet/a.ts', '#edge/api/api.ts', 'core may not look up to edge'],
    ['src/edge/api/a.ts', '#app/app.ts', 'edge may not look up to app'],
    ['src/app/a.ts', '#programs/main.ts', 'app may not look up to programs'],
    ['src/edge/api/a.ts', '#core/wallet/charge.ts', 'entered by its door, core/wallet/wallet.ts'],
    ['src/app/app.ts', '#core/wallet/schema.ts', 'entered by its door, core/wallet/wallet.ts'],
    ['src/programs/a.ts', '#app/server.ts', 'entered by its door, app/app.ts'],
    ['src/core/metering/a.ts', '#core/wallet/schema.ts', 'entered by its door, core/wallet/wallet.ts'],
    ['src/core/fleet/a.ts', '#core/fleet/plan/draft.ts', 'entered by its door, core/fleet/plan/plan.ts'],
    ['src/core/fleet/leader/a.ts', '#core/fleet/plan/draft.ts', 'entered by its door, core/fleet/plan/plan.ts'],
    ['src/core/fleet/a.ts', '#core/fleet/drivers/docker/docker.ts', 'by its door, core/fleet/drivers/drivers.ts'],
    ['src/core/routing/a.ts', '#core/fleet/plan/plan.ts', 'entered by its door, core/fleet/fleet.ts'],
    ['src/core/fleet/drivers/docker/a.ts', '#base/docker/call.ts', 'entered by its door, base/docker/docker.ts'],
    ['src/base/a.ts', '#base/docker/call.ts', 'entered by its door, base/docker/docker.ts'],
    ['src/core/wallet/a.ts', '#core/metering/metering.ts', 'core/wallet may not know core/metering'],
    ['src/core/engine-client/a.ts', '#core/fleet/fleet.ts', 'core/engine-client may not know core/fleet'],
    ['src/core/fleet/plan/a.ts', '#core/fleet/leader/leader.ts', 'core/fleet/plan may not know core/fleet/leader'],
    ['src/core/fleet/drivers/docker/a.ts', '#core/fleet/drivers/swarm/swarm.ts', 'docker may not know'],
    ['src/edge/inference/a.ts', '#edge/api/api.ts', 'edge/inference may not know edge/api'],
    ['src/base/docker/a.ts', '#base/postgres/postgres.ts', 'base/docker may not know base/postgres'],
    ['src/core/wallet/a.ts', '#core/wallet/charge.ts', 'inside a room "./" is used'],
    ['src/base/a.ts', '#base/log.ts', 'inside a room "./" is used'],
    ['src/programs/a.ts', '#programs/workers.ts', 'inside a room "./" is used'],
    ['src/core/fleet/a.ts', './plan/plan.ts', '"./" stays inside a room'],
    ['src/core/wallet/a.ts', '../metering/metering.ts', '"../" is not used'],
    ['src/core/wallet/sub/a.ts', '../charge.ts', '"../" is not used'],
    ['src/core/wallet/a.ts', './../metering/metering.ts', '"../" is not used'],
    ['src/core/wallet/a.ts', '/srv/wallet.ts', 'a path of one machine'],
    ['src/core/wallet/a.ts', '#test/gateway.ts', 'src may not know test'],
    ['src/edge/web-addresses/a.ts', '#edge/contract/keys.ts', 'edge/web-addresses may not know edge/contract'],
  ])('rejects that %s imports %s', (path, specifier, why) => {
    const breaches = check(path, `import { a } from '${specifier}';\na();\n`);
    expect(breaches).toHaveLength(1);
    expect(breaches[0]).toContain(why);
  });

  it.each([
    ['core/wallet', 'core/stacks', 'the gateway may not know the platform'],
    ['core/stacks', 'core/wallet', 'the platform may not know the gateway'],
    ['core/keys', 'core/wallet', 'the foundation may not know the gateway'],
    ['core/keys', 'core/stacks', 'the foundation may not know the platform'],
  ])('rejects that %s imports %s, even if the table allows it', (room, other, why) => {
    const text = `import type { A } from '#${other}/${other.slice(5)}.ts';`;
    const rooms = { ...house.rooms, [room]: [other] };
    const path = `src/${room}/a.ts`;
    expect(checkRooms([{ path, text }], { ...house, rooms })).toEqual([
      `${path}: imports "#${other}/${other.slice(5)}.ts": ${why}`,
    ]);
  });

  it.each([
    ['src/a.ts', 'is on none of the floors'],
    ['src/tools/a.ts', 'is on none of the floors'],
    ['src/core/a.ts', 'is in no room of core'],
    ['src/edge/a.ts', 'is in no room of edge'],
    ['src/core/tools/a.ts', 'core/tools is in no wing'],
  ])('rejects the place of %s', (path, why) => {
    expect(check(path, '')).toHaveLength(1);
    expect(check(path, '')[0]).toContain(why);
  });

  it.each([
    ["import type { B } from './b.ts';", "import type { A } from './a.ts';"],
    ["import { b } from './b.ts';", "export type { A } from './a.ts';"],
    ["type B = import('./b.ts').B;", "const a = await import('./a.ts');"],
  ])('rejects an import cycle: %s %s', (a, b) => {
    const others = [
      { path: 'src/base/b.ts', text: b },
      { path: 'src/base/c.ts', text: "import './a.ts';" },
    ];
    expect(check('src/base/a.ts', a, others)).toEqual([
      'src/base/a.ts → src/base/b.ts → src/base/a.ts: a circle of imports',
    ]);
    expect(check('src/base/a.ts', a)).toEqual([]);
  });

  it('reports every file in an import cycle, with a short path', () => {
    const imports = { a: ['b', 'c'], b: ['c'], c: ['a'], d: ['d', 'a'], e: ['d', 'f'], f: ['g'], g: ['e', 'f'] };
    expect(findCircles(new Map(Object.entries(imports)))).toEqual([
      ['a', 'c', 'a'],
      ['b', 'c', 'a', 'b'],
      ['d', 'd'],
      ['e', 'f', 'g', 'e'],
    ]);
    expect(
      findCircles(
        new Map([
          ['a', ['b', 'c']],
          ['b', ['c']],
        ]),
      ),
    ).toEqual([]);
  });

  it.each([
    ["import type { A } from '#edge/api/api.ts';"],
    ["export { a } from '#edge/api/api.ts';"],
    ["export * from '#edge/api/api.ts';"],
    ["import '#edge/api/api.ts';"],
    ["const a = await import('#edge/api/api.ts');"],
    ["type A = import('#edge/api/api.ts').A;"],
    ["type A = typeof import('#edge/api/api.ts');"],
  ])('finds an import written as %s', (text) => {
    expect(check('src/core/wallet/a.ts', text)[0]).toContain('core may not look up to edge');
  });

  it('rejects an import with a variable target', () => {
    expect(check('src/app/app.ts', 'const a = await import(name);')).toEqual([
      'src/app/app.ts: imports what cannot be read off',
    ]);
  });

  it.each([
    ['const a = process.env;'],
    ["const a = process.env['PORT'];"],
    ["const a = process['env'].PORT;"],
    ['const { env } = process;'],
    ['const { ...all } = process;'],
    ["import { env } from 'node:process';"],
  ])('rejects process.env outside of base/config/read-config.ts: %s', (text) => {
    expect(check('src/base/log.ts', text)).toEqual([
      'src/base/log.ts: reads process.env, which base/config/read-config.ts alone may',
    ]);
    expect(check('src/base/config/read-config.ts', text)).toEqual([]);
  });

  it.each([
    ["import { sql } from 'drizzle-orm';", '"drizzle-orm"'],
    ["import { pgTable } from 'drizzle-orm/pg-core';", '"drizzle-orm/pg-core"'],
    ["import type { Sql } from 'postgres';", '"postgres"'],
    ["import type { Db } from '#base/database/database.ts';", 'Db'],
    ["import { isDatabaseUnavailable, type Transaction } from '#base/database/database.ts';", 'Transaction'],
    ["import * as db from '#base/database/database.ts';", '*'],
    ['await parts.db.orm.transaction(async () => 1);', '.transaction'],
    ['await db.sql.begin(work);', '.begin'],
    ['await db.sql`select 1`;', 'db.sql'],
  ])('rejects database access in the edge: %s', (text, what) => {
    const path = 'src/edge/api/a.ts';
    expect(check(path, text)).toEqual([`${path}: uses ${what}, but only core speaks to the database`]);
    expect(check('src/core/keys/a.ts', text)).toEqual([]);
    expect(check(path, "import { isDatabaseUnavailable } from '#base/database/database.ts';")).toEqual([]);
  });

  it("rejects another room's table in SQL, and exported tables", () => {
    const schema = { path: 'src/core/wallet/schema.ts', text: "export const wallets = pgTable(\n  'wallets', {});\n" };
    const statement = 'sql`select 1 from ${x} join "wallets" on true`;';
    expect(check('src/core/keys/a.ts', statement, [schema])).toEqual([
      "src/core/keys/a.ts: names the table wallets, which is core/wallet's",
    ]);
    expect(check('src/core/keys/a.ts', statement.replace('sql`', 'a = `'), [schema])).toHaveLength(1);
    expect(check('src/core/wallet/a.ts', statement, [schema])).toEqual([]);
    expect(check('src/core/wallet/sub/a.ts', statement, [schema])).toEqual([]);
    expect(check('src/core/fleet/store/a.ts', statement, [schema])).toHaveLength(1);
    expect(check('src/core/wallet/wallet.ts', "export { wallets } from './schema.ts';", [schema])[0]).toContain(
      'passes on',
    );
  });

  it('rejects tests of a room that does not exist', () => {
    const rooms = [{ path: 'src/core/wallet/wallet.ts', text: '' }];
    expect(check('test/core/wallet/a.test.ts', '', rooms)).toEqual([]);
    expect(check('test/core/wallet/sub/a.test.ts', '', rooms)).toEqual([]);
    expect(check('test/core/wallets/a.test.ts', '', rooms)).toEqual([
      'test/core/wallets/a.test.ts: src has no core/wallets',
    ]);
  });

  it('rejects a file of more than 400 lines, tests included', () => {
    expect(check('test/a.test.ts', '\n'.repeat(401))[0]).toContain('has 401 lines');
    expect(check('test/a.test.ts', '\n'.repeat(400))).toEqual([]);
  });

  it.each([['export default 1;'], ['const a = 1;\nexport { a as default };'], ["export { default } from 'x';"]])(
    'rejects a default export outside of tool configurations and declarations: %s',
    (text) => {
      expect(check('src/base/a.ts', text)).toEqual(['src/base/a.ts: has a default export']);
      expect(check('src/base/a.d.ts', text)).toEqual([]);
      expect(check('test/vitest.config.ts', text)).toEqual([]);
    },
  );

  it.each([['#base/log.ts'], ['../../src/base/log.ts']])('rejects that a stand-in engine imports %s', (specifier) => {
    expect(check('engines/standin/a.ts', `import '${specifier}';`)[0]).toContain('stands alone');
  });

  it.each([
    ['src/core/wallet/a.ts', "import { b } from './b.ts';"],
    ['src/core/wallet/sub/a.ts', "import { b } from '#core/wallet/b.ts';"],
    ['src/base/postgres/a.ts', "import { b } from '#base/log.ts';"],
    ['src/core/keys/a.ts', "import { b } from '#core/accounts/accounts.ts';"],
    ['src/edge/api/a.ts', "import { b } from '#core/wallet/wallet.ts';"],
    ['src/app/app.ts', "import { b } from '#edge/api/api.ts';\nimport { c } from './server.ts';"],
    ['src/programs/main.ts', "import { b } from '#app/app.ts';\nimport { c } from '#base/log.ts';"],
    ['src/core/fleet/fleet.ts', "import { b } from '#core/fleet/plan/plan.ts';"],
    ['src/core/fleet/plan/a.ts', "import { b } from '#core/fleet/policy.ts';"],
    ['src/core/fleet/drivers/docker/a.ts', "import { b } from '#core/fleet/drivers/driver.ts';"],
    ['src/core/fleet/leader/a.ts', "import { b } from '#core/fleet/plan/plan.ts';"],
    ['src/base/a.ts', "import { b } from '#base/docker/docker.ts';"],
    ['src/base/a.ts', "import { b } from 'node:fs';\nimport { z } from 'zod';"],
    ['engines/standin/a.ts', "import { b } from './b.ts';\nimport { c } from 'node:http';"],
  ])('allows in %s: %s', (path, text) => {
    expect(check(path, text)).toEqual([]);
  });
});

it('reports a breach to the linter at the import specifier', () => {
  const found: { message: string }[] = [];
  const filename = `${root}src/edge/api/a.ts`;
  const { ImportDeclaration } = plugin.rules.walls.create({ filename, report: (finding) => found.push(finding) });
  ImportDeclaration?.({ source: { type: 'Literal', value: '#core/wallet/charge.ts' } });
  ImportDeclaration?.({ source: { type: 'Literal', value: '#core/wallet/wallet.ts' } });
  expect(found.map(({ message }) => message)).toEqual([
    'imports "#core/wallet/charge.ts": a room is entered by its door, core/wallet/wallet.ts',
  ]);
});

describe('the source tree', () => {
  it('follows the plan of rooms', () => {
    const files = readTree();
    for (const floor of ['src/base/', 'src/core/', 'src/edge/', 'src/app/', 'src/programs/', 'test/']) {
      expect(files.filter(({ path }) => path.startsWith(floor)).length, floor).toBeGreaterThan(0);
    }
    expect(checkRooms(files, house)).toEqual([]);
  });

  it('has no folder with more than 30 files', () => {
    expect(findLargeFolders(readTree().map(({ path }) => path))).toEqual([]);
  });
});

describe('the check of folders', () => {
  it('counts the files of a folder without those of its folders', () => {
    const files = Array.from({ length: 31 }, (_, at) => `src/core/a/file-${at}.ts`);
    expect(findLargeFolders(files)).toEqual(['src/core/a has 31 files']);
    expect(findLargeFolders([...files.slice(1), 'src/core/a/b/file.ts', 'src/core/file.ts'])).toEqual([]);
  });
});
