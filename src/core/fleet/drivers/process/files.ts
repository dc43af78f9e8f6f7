import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { engineKey, replicaIdLength } from '#core/fleet/drivers/replica.ts';
import { errorFolder } from './stderr-log.ts';

/** The files that the process driver keeps: sockets, records of its children, and what they wrote. */
export interface ProcessFolders {
  /** 0700, with a path short enough for the sockets in it. */
  readonly sockets: string;
  readonly records: string;
  readonly logs: string;
  /** The same for every gateway on this data folder, and for no other. */
  readonly owner: string;
}

/** sockaddr_un's sun_path without its NUL: 107 bytes on Linux, 103 on macOS. */
const socketPathBytesMax = process.platform === 'linux' ? 107 : 103;
const logBytesMax = 4 * 1_048_576;
const logTailBytes = 65_536;

/** Makes the folders, all of them for the gateway's user alone. */
export function prepareProcessFolders(dataDir: string): ProcessFolders {
  const root = join(dataDir, 'engines');
  mkdirSync(root, { recursive: true, mode: 0o700 });
  const records = privateFolder(join(root, 'running'));
  const logs = privateFolder(join(root, 'logs'));
  privateFolder(join(root, errorFolder));
  const owner = createHash('sha256').update(realpathSync(root)).digest('hex').slice(0, 24);
  return { sockets: socketFolder(root), records, logs, owner };
}

function privateFolder(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  chmodSync(path, 0o700);
  return path;
}

function socketFolder(root: string): string {
  const own = join(root, 's');
  if (fitsSocket(own)) return privateFolder(own);
  // The data folder's path is too long: a short folder elsewhere, remembered so that it does not pile up.
  const memory = join(root, 'socket-folder');
  const remembered = readText(memory);
  if (remembered !== null && fitsSocket(remembered) && isOwnPrivateFolder(remembered)) return remembered;
  for (const parent of [tmpdir(), '/tmp']) {
    if (!fitsSocket(join(parent, 'headgate-XXXXXX'))) continue;
    const made = mkdtempSync(join(parent, 'headgate-'));
    writeFileSync(memory, made, { mode: 0o600 });
    return made;
  }
  throw new Error('No folder has a path short enough for a unix socket; choose a shorter data folder.');
}

function fitsSocket(folder: string): boolean {
  return Buffer.byteLength(folder) + 1 + replicaIdLength + '.sock'.length <= socketPathBytesMax;
}

/** In a folder that everybody may write to, a name alone proves nothing. */
function isOwnPrivateFolder(path: string): boolean {
  try {
    const stat = lstatSync(path);
    return stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o077) === 0;
  } catch {
    return false;
  }
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

const recordSchema = z.object({
  version: z.literal(1),
  replicaId: z.string(),
  engineId: z.string(),
  specHash: z.string(),
  pid: z.int().min(2),
  identity: z.string().min(1),
  socketPath: z.string().nullable(),
  port: z.int(),
  logIndex: z.int().min(0).default(0),
  /** What it takes of the machine, for whoever does not know its engine's file. */
  gpuIds: z.array(z.string()).default([]),
  /** Which gateway adds to its log; absent in records of before there was such a thing. */
  keeper: z.object({ pid: z.int(), identity: z.string() }).nullable().default(null),
  memoryBytes: z.number().min(0).default(0),
});

/** A child as it is written down, for a gateway that comes after this one. */
export type ProcessRecord = z.output<typeof recordSchema>;

export function writeRecord(folders: ProcessFolders, record: ProcessRecord): void {
  const path = recordPath(folders, record.replicaId);
  // Renamed into place: a gateway that is killed meanwhile leaves a whole record or none.
  writeFileSync(`${path}.new`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/** Every record that can be read; what cannot is removed, but for one that another gateway may be writing. */
export function readRecords(folders: ProcessFolders, isAlone = true): ProcessRecord[] {
  const names = readdirSync(folders.records).filter((name) => isAlone || !name.endsWith('.new'));
  return names.flatMap((name) => {
    const path = join(folders.records, name);
    const record = recordSchema.safeParse(parseJson(readText(path)));
    if (record.success && `${record.data.replicaId}.json` === name) return [record.data];
    rmSync(path, { force: true });
    return [];
  });
}

function parseJson(text: string | null): unknown {
  try {
    return JSON.parse(text ?? '');
  } catch {
    return null;
  }
}

/** Forgets a child that has ended: its record, and its socket, which nobody else removes. */
export function removeRecord(
  folders: ProcessFolders,
  { replicaId, socketPath }: { replicaId: string; socketPath: string | null },
): void {
  rmSync(recordPath(folders, replicaId), { force: true });
  if (socketPath !== null) rmSync(socketPath, { force: true });
}

function recordPath({ records }: ProcessFolders, replicaId: string): string {
  return join(records, `${replicaId}.json`);
}

export function socketPathOf({ sockets }: ProcessFolders, replicaId: string): string {
  return join(sockets, `${replicaId}.sock`);
}

/** Removes sockets that no child of `kept` listens on: binding to a path that exists would fail. */
export function removeStaleSockets({ sockets }: ProcessFolders, kept: ReadonlySet<string>): void {
  for (const name of readdirSync(sockets)) {
    const path = join(sockets, name);
    if (name.endsWith('.sock') && !kept.has(path)) rmSync(path, { force: true });
  }
}

/**
 * `logs/<id>-<key>.log`; the key keeps ids apart that differ only in characters which a file name cannot have.
 * @param index 0 for the first replica that runs at once, 1 for the second; those have a file name of their own
 */
export function logPathOf({ logs }: ProcessFolders, engineId: string, index = 0): string {
  const name = `${engineId.replaceAll(/[^A-Za-z0-9._-]/g, '_').slice(0, 80)}-${engineKey(engineId)}`;
  return join(logs, index === 0 ? `${name}.log` : `${name}-${index + 1}.log`);
}

/**
 * Opens an empty log for a new child; the last one's stays as `.1`. A file and not a pipe: the child must not die of
 * a pipe that broke with the gateway.
 */
export function openLog(path: string): number {
  rmSync(`${path}.1`, { force: true });
  try {
    renameSync(path, `${path}.1`);
  } catch {
    // The first start of this engine.
  }
  return openSync(path, 'a', 0o600);
}

/** Keeps a log below its bound while the child writes on: the end moves to `.1`, the file starts anew. */
export function boundLog(path: string): void {
  try {
    if (statSync(path).size <= logBytesMax) return;
    writeFileSync(`${path}.1`, readLogTail(path, logBytesMax / 4), { mode: 0o600 });
    truncateSync(path, 0);
  } catch {
    // Removed by somebody; the child goes on writing to a file without a name.
  }
}

/** The last bytes of a log; '' when there is none. */
export function readLogTail(path: string, bytesMax: number = logTailBytes): string {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return '';
  }
  try {
    const { size } = fstatSync(file);
    const buffer = Buffer.alloc(Math.min(size, bytesMax));
    const read = readSync(file, buffer, 0, buffer.length, size - buffer.length);
    return buffer.toString('utf8', 0, read);
  } finally {
    closeSync(file);
  }
}
