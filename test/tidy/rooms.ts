import { dirname, join, normalize } from 'node:path';
import { type ParseResult, parseSync, Visitor } from 'oxc-parser';
import { findCircles } from './circles.ts';
import { checkImport, floors, foldersOf, type House, roomOf, targetOf, wingOf } from './walls.js';

/** A source file by its path from the top of the repository; the text need not be on a disk. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

const linesMax = 400;

/** Facts of one file that the rules read. */
interface Facts {
  readonly path: string;
  readonly lines: number;
  /** Specifiers of imports and re-exports, type-only ones included; null where one cannot be read off. */
  readonly imports: readonly (string | null)[];
  readonly reexports: readonly string[];
  readonly hasDefaultExport: boolean;
  readonly readsEnvironment: boolean;
  /** Parts of it that speak to the database, as they are written there. */
  readonly database: readonly string[];
  /** Texts of templates, tagged or not, which is how SQL is written. */
  readonly statements: readonly string[];
}

/**
 * Holds the plan of the house against its files.
 * @returns one sentence per breach, each beginning with the path; a check that saw no file is a breach
 */
export function checkRooms(files: readonly SourceFile[], house: House): string[] {
  if (files.length === 0) return ['no files were checked'];
  const tables = findTables(files);
  const imports = new Map<string, readonly string[]>();
  const rooms = new Set(files.filter(({ path }) => path.startsWith('src/')).map(({ path }) => roomOf(path)));
  const breaches = files.flatMap((file) => {
    const parsed = parseSync(file.path, file.text);
    if (parsed.errors.length > 0) return [`${file.path}: cannot be parsed: ${parsed.errors[0]?.message ?? ''}`];
    const facts = gatherFacts(file, parsed);
    const inSource = file.path.startsWith('src/');
    if (inSource) imports.set(file.path, importedFiles(facts));
    return [
      ...checkForm(facts),
      ...(inSource ? checkEnvironment(facts) : []),
      ...(file.path.startsWith('test/') ? checkTestPlace(file.path, rooms) : []),
      ...(inSource ? checkDatabase(facts) : []),
      ...(inSource ? checkPlace(facts.path, house) : []),
      ...(inSource ? facts.imports.flatMap((specifier) => checkImport(facts.path, specifier, house)) : []),
      ...(inSource ? checkTables(facts, tables) : []),
      ...(file.path.startsWith('engines/') ? checkApart(facts) : []),
    ];
  });
  return [...breaches, ...findCircles(imports).map((circle) => `${circle.join(' → ')}: a circle of imports`)];
}

function gatherFacts({ path, text }: SourceFile, parsed: ParseResult): Facts {
  const { module, program } = parsed;
  const imports: (string | null)[] = module.staticImports.map((entry) => entry.moduleRequest.value);
  const reexports = module.staticExports.flatMap(({ entries }) =>
    entries.flatMap((entry) => entry.moduleRequest?.value ?? []),
  );
  const statements: string[] = [];
  let readsEnvironment = module.staticImports.some(
    ({ moduleRequest, entries }) =>
      /^(node:)?process$/.test(moduleRequest.value) && entries.some((entry) => entry.importName.name === 'env'),
  );
  const database = databaseImports(parsed);
  const isProcess = (node: { type: string }): boolean => 'name' in node && node.name === 'process';
  new Visitor({
    ImportExpression: ({ source }) => {
      imports.push(source.type === 'Literal' && typeof source.value === 'string' ? source.value : null);
    },
    TSImportType: ({ source }) => {
      imports.push(source.value);
    },
    MemberExpression: ({ object, property }) => {
      const name = 'name' in property ? property.name : 'value' in property ? property.value : null;
      if (isProcess(object) && name === 'env') readsEnvironment = true;
      if (name === 'transaction' || name === 'begin') database.push(`.${name}`);
    },
    VariableDeclarator: ({ id, init }) => {
      if (init === null || id.type !== 'ObjectPattern' || !isProcess(init)) return;
      if (
        id.properties.some(
          (property) => property.type !== 'Property' || text.slice(property.key.start, property.key.end) === 'env',
        )
      ) {
        readsEnvironment = true;
      }
    },
    TaggedTemplateExpression: ({ tag }) => {
      const written = text.slice(tag.start, tag.end);
      if (/(^|\.)sql$/.test(written)) database.push(written);
    },
    TemplateLiteral: ({ quasis }) => {
      statements.push(quasis.map((part) => part.value.raw).join(' ? '));
    },
  }).visit(program);
  const names = module.staticExports.flatMap(({ entries }) => entries.map((entry) => entry.exportName));
  return {
    path,
    lines: text.split('\n').length - (text.endsWith('\n') ? 1 : 0),
    imports: [...imports, ...reexports],
    reexports,
    hasDefaultExport: names.some(({ kind, name }) => kind === 'Default' || name === 'default'),
    readsEnvironment,
    database: [...new Set(database)],
    statements,
  };
}

function checkForm({ path, lines, hasDefaultExport }: Facts): string[] {
  return [
    ...(lines > linesMax ? [`${path}: has ${lines} lines, at most ${linesMax} are allowed`] : []),
    ...(hasDefaultExport && !/\.config\.ts$|-plugin\.js$|\.d\.ts$/.test(path) ? [`${path}: has a default export`] : []),
  ];
}

function checkEnvironment({ path, readsEnvironment }: Facts): string[] {
  return readsEnvironment && path !== 'src/base/config/read-config.ts'
    ? [`${path}: reads process.env, which base/config/read-config.ts alone may`]
    : [];
}

/** Names of the database's door that the edge may use: errors, and the id by which an unknown COMMIT is looked up. */
const databaseNamesForEdge = ['isDatabaseUnavailable', 'Change', 'CommitUnknownError', 'duringChange'];

/** Imports of drivers, and of names from base/database that read or write; types too. */
function databaseImports({ module }: ParseResult): string[] {
  return module.staticImports.flatMap(({ moduleRequest, entries }) => {
    if (/^(drizzle-orm|postgres)(\/|$)/.test(moduleRequest.value)) return [`"${moduleRequest.value}"`];
    if (moduleRequest.value !== '#base/database/database.ts') return [];
    const names = entries.map(({ importName }) => importName.name ?? '*');
    return names.filter((name) => !databaseNamesForEdge.includes(name));
  });
}

/** The edge translates: what is read or written together is decided behind a door of core. */
function checkDatabase({ path, database }: Facts): string[] {
  if (!path.startsWith('src/edge/')) return [];
  return database.map((what) => `${path}: uses ${what}, but only core speaks to the database`);
}

/** Stand-ins are programs of their own: they may be copied out of the repository. */
function checkApart({ path, imports }: Facts): string[] {
  const [, folder = ''] = path.split('/');
  return imports.flatMap((specifier) => {
    if (specifier === null) return [`${path}: imports what cannot be read off`];
    const target = specifier.startsWith('.') ? normalize(join(dirname(path), specifier)) : specifier;
    const isInside = specifier.startsWith('.') ? target.startsWith(`engines/${folder}/`) : !specifier.startsWith('#');
    return isInside ? [] : [`${path}: imports "${specifier}", but what is in engines/ stands alone`];
  });
}

/** Every file of src has a room, and every room of core a wing. */
function checkPlace(path: string, { wings }: House): string[] {
  const [floor, room] = foldersOf(path);
  if (floor === undefined || !floors.includes(floor))
    return [`${path}: is on none of the floors, ${floors.join(', ')}`];
  if (room === undefined) return floor === 'core' || floor === 'edge' ? [`${path}: is in no room of ${floor}`] : [];
  return floor === 'core' && wingOf(room, wings) === null ? [`${path}: core/${room} is in no wing`] : [];
}

/** Tests stand in the room that they test: below the floors of `test` there is no room that `src` does not have. */
function checkTestPlace(path: string, rooms: ReadonlySet<string>): string[] {
  const isInTree = floors.includes(foldersOf(path)[0] ?? '');
  return isInTree && !rooms.has(roomOf(path)) ? [`${path}: src has no ${roomOf(path)}`] : [];
}

function importedFiles({ path, imports }: Facts): readonly string[] {
  return imports.flatMap((specifier) => (specifier === null ? [] : (targetOf(path, specifier) ?? [])));
}

/** Table name → the room whose schema.ts declares it. */
function findTables(files: readonly SourceFile[]): ReadonlyMap<string, string> {
  const schemas = files.filter(({ path }) => /^src\/core\/[^/]+\/schema\.ts$/.test(path));
  return new Map(
    schemas.flatMap(({ path, text }) => {
      return [...text.matchAll(/pgTable\(\s*'([a-z_]+)'/g)].map((match): [string, string] => [
        match[1] ?? '',
        foldersOf(path).join('/'),
      ]);
    }),
  );
}

/** Drizzle's tables are kept in by the doors, as long as no door passes them on; SQL is text and needs a look. */
function checkTables({ path, reexports, statements }: Facts, tables: ReadonlyMap<string, string>): string[] {
  const room = foldersOf(path).join('/');
  const isOwn = (owner = ''): boolean => room === owner || room.startsWith(`${owner}/`);
  const named = statements.flatMap((statement) => {
    const matches = statement.matchAll(
      /\b(?:from|join|into|update|using|truncate|table)\s+(?:only\s+)?"?([a-z_]+)"?/gi,
    );
    return [...matches].map((match) => (match[1] ?? '').toLowerCase());
  });
  const foreign = [...new Set(named)].filter((name) => tables.has(name) && !isOwn(tables.get(name)));
  return [
    ...foreign.map((name) => `${path}: names the table ${name}, which is ${tables.get(name) ?? ''}'s`),
    ...(reexports.includes('./schema.ts') ? [`${path}: passes on its room's tables`] : []),
  ];
}
