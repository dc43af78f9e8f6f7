import { posix } from 'node:path';

/**
 * Rules for imports between rooms, for the linter and the room tests. Paths are relative to the repository.
 *
 * @typedef {object} House
 * @property {Readonly<Record<string, readonly string[]>>} rooms rooms beside it that a room may enter, 'core/wallet'
 *   for example; none where it is not listed
 * @property {readonly string[]} open rooms without a door, whose files are imported each by itself
 * @property {Readonly<Record<Wing, readonly string[]>>} wings rooms of core by wing, without 'core/'
 *
 * @typedef {'foundation' | 'gateway' | 'platform'} Wing
 */

/** From the ground up: a file imports from its own floor and from those below. No file imports the programs. */
export const floors = ['base', 'core', 'edge', 'app', 'programs'];

/** Floors that are one room each. On the others every folder is a room; files directly in base are open to all. */
const floorsOfOneRoom = ['app', 'programs'];

/** @type {Readonly<Record<Wing, readonly Wing[]>>} */
const wingsKnown = { foundation: [], gateway: ['foundation'], platform: ['foundation'] };

/**
 * Returns the folders below src that hold a file: its floor, its room, and the rooms inside that.
 * @param {string} path
 * @returns {readonly string[]}
 */
export function foldersOf(path) {
  return path.split('/').slice(1, -1);
}

/**
 * Returns the outermost room of a file: 'core/wallet', 'base', or 'base/docker'.
 * @param {string} path
 */
export function roomOf(path) {
  return foldersOf(path).slice(0, 2).join('/');
}

/**
 * @param {string | undefined} room without 'core/'
 * @param {House['wings']} wings
 * @returns {Wing | null}
 */
export function wingOf(room, wings) {
  /** @type {readonly Wing[]} */
  const names = ['foundation', 'gateway', 'platform'];
  return names.find((wing) => room !== undefined && wings[wing].includes(room)) ?? null;
}

/**
 * Returns the file of the repository that an import names; null for a package.
 * @param {string} path
 * @param {string} specifier
 */
export function targetOf(path, specifier) {
  if (specifier.startsWith('#test/')) return `test/support/${specifier.slice(6)}`;
  if (specifier.startsWith('#')) return `src/${specifier.slice(1)}`;
  return specifier.startsWith('.') ? posix.normalize(posix.join(posix.dirname(path), specifier)) : null;
}

/**
 * Checks one import of a file of src.
 * @param {string} path of the file that imports
 * @param {string | null} specifier null where it is not a literal
 * @param {House} house
 * @returns {string[]} one sentence per breach
 */
export function checkImport(path, specifier, house) {
  if (specifier === null) return [`${path}: imports what cannot be read off`];
  /** @param {string} why */
  const breach = (why) => [`${path}: imports "${specifier}": ${why}`];
  if (specifier.split('/').includes('..')) return breach('"../" is not used');
  const target = targetOf(path, specifier);
  if (target === null) return specifier.startsWith('/') ? breach('a path of one machine') : [];
  if (target.startsWith('test/')) return breach('src may not know test');
  if (posix.dirname(target) === posix.dirname(path))
    return specifier.startsWith('#') ? breach('inside a room "./" is used') : [];
  if (specifier.startsWith('./')) return breach('"./" stays inside a room');
  return checkWall(path, target, house).flatMap(breach);
}

/**
 * Down the floors, and through the door of the outermost room that holds the target and not the importer. A room
 * inside another one sees the files of the room that it is in.
 * @param {string} path
 * @param {string} target
 * @param {House} house
 * @returns {string[]}
 */
function checkWall(path, target, house) {
  const from = foldersOf(path);
  const to = foldersOf(target);
  const [floor = ''] = from;
  const [targetFloor = ''] = to;
  if (floors.indexOf(targetFloor) > floors.indexOf(floor)) return [`${floor} may not look up to ${targetFloor}`];
  const shared = to.findIndex((folder, index) => folder !== from[index]);
  if (shared === -1) return [];
  const depth = Math.max(shared + 1, floorsOfOneRoom.includes(targetFloor) ? 1 : 2);
  const theirs = to.slice(0, depth);
  const door = `${theirs.join('/')}/${theirs.at(-1)}.ts`;
  if (to.length < depth) return [];
  return [
    ...checkWings(from, to, house.wings),
    ...(floor === targetFloor && from.length >= depth ? checkTable(from.slice(0, depth), theirs, house.rooms) : []),
    ...(target === `src/${door}` || house.open.includes(theirs.join('/'))
      ? []
      : [`a room is entered by its door, ${door}`]),
  ];
}

/**
 * @param {readonly string[]} from
 * @param {readonly string[]} to
 * @param {House['rooms']} rooms
 */
function checkTable(from, to, rooms) {
  const [room, other] = [from.join('/'), to.join('/')];
  return (rooms[room] ?? []).includes(other) ? [] : [`${room} may not know ${other}`];
}

/**
 * @param {readonly string[]} from
 * @param {readonly string[]} to
 * @param {House['wings']} wings
 */
function checkWings(from, to, wings) {
  if (from[0] !== 'core' || to[0] !== 'core') return [];
  const [own, other] = [wingOf(from[1], wings), wingOf(to[1], wings)];
  if (own === null || other === null || own === other || wingsKnown[own].includes(other)) return [];
  return [`the ${own} may not know the ${other}`];
}
