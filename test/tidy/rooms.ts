import { dirname, join, normalize } from 'node:path';
import { type ParseResult, parseSync, Visitor } from 'oxc-parser';

/** A source file by its path from the top of the repository; the text need not be on a disk. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

/** Which rooms of its own floor a room may enter, by names such as 'core/wallet'; none where it is not listed. */
export type RoomTable = Readonly<Record<string, readonly string[]>>;

const linesMax = 400;

/** Where a file of src lives. The files directly in src are above the floors: they put everything together. */
interface Place {
  readonly floor: 'top' | 'edge' | 'core' | 'base';
  /** 'core/wallet', 'edge/api', or 'base' and 'top', which are one room each. */
  readonly room: string;
}

const heights = { base: 0, core: 1, edge: 2, top: 3 };

function placeOf(path: string): Place {
  const [, floor = '', room = ''] = path.split('/');
  if (floor === 'base') return { floor, room: 'base' };
  if (floor === 'core' || floor === 'edge') return { floor, room: `${floor}/${room}` };
  return { floor: 'top', room: 'top' };
}

/** What the rules look at in one file. */
interface Facts {
  readonly path: string;
  readonly lines: number;
  /** Specifiers of imports and re-exports, type-only ones included; null where one cannot be read off. */
  readonly imports: readonly (string | null)[];
  readonly reexports: readonly string[];
  readonly hasDefaultExport: boolean;
  readonly readsEnvironment: boolean;
  /** Texts of templates, tagged or not, which is how SQL is written. */
  readonly statements: readonly string[];
}

/**
 * Holds the plan of the house against its files.
 * @returns one sentence per breach, each beginning with the path; a check that saw no file is a breach
 */
export function checkRooms(files: readonly SourceFile[], table: RoomTable): string[] {
  if (files.length === 0) return ['no files were checked'];
  const tables = findTables(files);
  return files.flatMap((file) => {
    const parsed = parseSync(file.path, file.text);
    if (parsed.errors.length > 0) return [`${file.path}: cannot be parsed: ${parsed.errors[0]?.message ?? ''}`];
    const facts = gatherFacts(file, parsed);
    const inSource = file.path.startsWith('src/');
    return [
      ...checkForm(facts),
      ...(inSource ? checkEnvironment(facts) : []),
      ...(inSource ? facts.imports.flatMap((specifier) => checkImport(facts.path, specifier, table)) : []),
      ...(inSource ? checkTables(facts, tables) : []),
      ...(file.path.startsWith('engines/') ? checkApart(facts) : []),
    ];
  });
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
    statements,
  };
}

function checkForm({ path, lines, hasDefaultExport }: Facts): string[] {
  return [
    ...(lines > linesMax ? [`${path}: has ${lines} lines, at most ${linesMax} are allowed`] : []),
    ...(hasDefaultExport && !path.endsWith('.config.ts') ? [`${path}: has a default export`] : []),
  ];
}

function checkEnvironment({ path, readsEnvironment }: Facts): string[] {
  return readsEnvironment && path !== 'src/base/config.ts'
    ? [`${path}: reads process.env, which base/config.ts alone may`]
    : [];
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

function checkImport(path: string, specifier: string | null, table: RoomTable): string[] {
  if (specifier === null) return [`${path}: imports what cannot be read off`];
  const breach = (why: string): string[] => [`${path}: imports "${specifier}": ${why}`];
  if (specifier.split('/').includes('..')) return breach('"../" is not used');
  const from = placeOf(path);
  if (specifier.startsWith('./')) {
    const target = normalize(join(dirname(path), specifier));
    return placeOf(target).room === from.room ? [] : breach('"./" stays inside a room');
  }
  if (!specifier.startsWith('#')) return specifier.startsWith('/') ? breach('a path of one machine') : [];

  const target = `src/${specifier.slice(1)}`;
  const to = placeOf(target);
  if (to.room === from.room) {
    // From a subfolder there is no other way up.
    return target.startsWith(`${dirname(path)}/`) ? breach('inside a room "./" is used') : [];
  }
  return checkWall(from, to, target)
    .flatMap(breach)
    .concat(checkTable(from, to, table).flatMap(breach));
}

/** Down the floors, and through the door. */
function checkWall(from: Place, to: Place, target: string): string[] {
  if (heights[to.floor] > heights[from.floor]) return [`${from.floor} may not look up to ${to.floor}`];
  const name = to.room.split('/')[1];
  if (name === undefined || target === `src/${to.room}/${name}.ts`) return [];
  return [`a room is entered by its door, ${to.room}/${name}.ts`];
}

function checkTable(from: Place, to: Place, table: RoomTable): string[] {
  if (from.floor !== to.floor || (table[from.room] ?? []).includes(to.room)) return [];
  return [`${from.room} may not know ${to.room}`];
}

/** Table name → the room whose schema.ts declares it. */
function findTables(files: readonly SourceFile[]): ReadonlyMap<string, string> {
  const schemas = files.filter(({ path }) => /^src\/core\/[^/]+\/schema\.ts$/.test(path));
  return new Map(
    schemas.flatMap(({ path, text }) => {
      return [...text.matchAll(/pgTable\(\s*'([a-z_]+)'/g)].map((match): [string, string] => [
        match[1] ?? '',
        placeOf(path).room,
      ]);
    }),
  );
}

/** Drizzle's tables are kept in by the doors, as long as no door passes them on; SQL is text and needs a look. */
function checkTables({ path, reexports, statements }: Facts, tables: ReadonlyMap<string, string>): string[] {
  const { room } = placeOf(path);
  const named = statements.flatMap((statement) => {
    const matches = statement.matchAll(
      /\b(?:from|join|into|update|using|truncate|table)\s+(?:only\s+)?"?([a-z_]+)"?/gi,
    );
    return [...matches].map((match) => (match[1] ?? '').toLowerCase());
  });
  const foreign = [...new Set(named)].filter((name) => tables.has(name) && tables.get(name) !== room);
  return [
    ...foreign.map((name) => `${path}: names the table ${name}, which is ${tables.get(name) ?? ''}'s`),
    ...(reexports.includes('./schema.ts') ? [`${path}: passes on its room's tables`] : []),
  ];
}
