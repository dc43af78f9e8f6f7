import { relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { house } from './house.js';
import { checkImport } from './walls.js';

/**
 * Plugin of oxlint: reports imports that break the plan of the rooms, so that an editor shows them.
 * @see test/tidy/rooms.ts for the other rules of rooms, which need all files at once
 */
const root = fileURLToPath(new URL('../../', import.meta.url));

/**
 * @typedef {{ type: string, value?: unknown }} Source
 * @typedef {{ source: Source | null }} ImportNode
 */

const walls = {
  /** @param {{ filename: string, report: (finding: { message: string, node: unknown }) => void }} context */
  create(context) {
    const path = relative(root, context.filename).split(sep).join('/');
    if (!path.startsWith('src/')) return {};
    /** @param {ImportNode} node */
    const check = ({ source }) => {
      if (source === null || typeof source.value !== 'string') return;
      for (const breach of checkImport(path, source.value, house)) {
        context.report({ message: breach.slice(path.length + 2), node: source });
      }
    };
    return {
      ImportDeclaration: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      ImportExpression: check,
      TSImportType: check,
    };
  },
};

const plugin = { meta: { name: 'rooms' }, rules: { walls } };
// oxlint loads the default export of a plugin.
// oxlint-disable-next-line import/no-default-export
export default plugin;
