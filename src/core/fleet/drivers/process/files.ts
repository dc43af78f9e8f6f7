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

/** Files of the process driver: sockets, records of its children, and their output. */
export interface ProcessFolders {
  /** Mode 0700, with a path short enough for the sockets in it. */
  readonly sockets: string;
  readonly records: string;
  readonly logs: string;
  /** Identical for all gateways on this data folder, and unique to it. */
  readonly owner: string;
}

/** sockaddr_un's sun_path without its NUL: 107 bytes on Linux, 103 on macOS. */
const socketPathBytesMax = process.platform === 'linux' ? 107 : 103;
const logBytesMax = 4 * 1_048_576;
const logTailBytes = 65_536;

/** Creates the folders, accessible only to the gateway's user. */
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
  // The data folder's path is too long: use a short folder elsewhere, and remember it to avoid creating one per start.
  const memory = join(root, 'socket-folder');
  const remembered = readText(memory);
  if (remembered !== null && fitsSocket(remembered) && isOwnPrivateFolder(remembered)) return remembered;
  for (const parent of [tmpdir(), '/tmp']) {
    if (!fitsSocket(join(parent, 'headgate-XXXXXX'))) continue;
    const made = mkdtempSync(join(parent, 'headgate-'));
    writeFileSync(memory, made, { mode: 0o600 });
    return made;
  }
  throw new Error('The path of the data folder is too long for a Unix socket; choose a shorter one.');
}

function fitsSocket(folder: string): boolean {
  return Buffer.byteLength(folder) + 1 + replicaIdLength + '.sock'.length <= socketPathBytesMax;
}

/** True if the folder is private and ours. In a world-writable parent folder, a name proves nothing. */
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
  /** Resources of the child, for gateways that do not know its engine's file. */
  gpuIds: z.array(z.string()).default([]),
  /** The gateway that copies stderr to the log; absent in records of older versions. */
  keeper: z.object({ pid: z.int(), identity: z.string() }).nullable().default(null),
  memoryBytes: z.number().min(0).default(0),
});

/** A child as recorded for a later gateway. */
export type ProcessRecord = z.output<typeof recordSchema>;

export function writeRecord(folders: ProcessFolders, record: ProcessRecord): void {
  const path = recordPath(folders, record.replicaId);
  // Renamed into place: a gateway that is killed meanwhile leaves a whole record or none.
  writeFileSync(`${path}.new`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/** Reads all valid records and removes invalid ones, except one that another gateway may be writing. */
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

/** Removes the record of an ended child and its socket, which nobody else removes. */
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

/** Removes sockets that no child of `kept` listens on: binding to an existing path would fail. */
export function removeStaleSockets({ sockets }: ProcessFolders, kept: ReadonlySet<string>): void {
  for (const name of readdirSync(sockets)) {
    const path = join(sockets, name);
    if (name.endsWith('.sock') && !kept.has(path)) rmSync(path, { force: true });
  }
}

/**
 * Returns `logs/<id>-<key>.log`; the key separates ids that differ only in characters that file names cannot have.
 * @param index 0 for the first of the replicas that run at once, 1 for the second; index 1 and above are part of the
 *   file name
 */
export function logPathOf({ logs }: ProcessFolders, engineId: string, index = 0): string {
  const name = `${engineId.replaceAll(/[^A-Za-z0-9._-]/g, '_').slice(0, 80)}-${engineKey(engineId)}`;
  return join(logs, index === 0 ? `${name}.log` : `${name}-${index + 1}.log`);
}

/**
 * Opens an empty log for a new child, and keeps the last log as `.1`. Uses a file and not a pipe: a pipe breaks when
 * the gateway ends, and the child must not end with it.
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

/** Bounds a log while the child keeps writing: its end moves to `.1`, and the file restarts empty. */
export function boundLog(path: string): void {
  try {
    if (statSync(path).size <= logBytesMax) return;
    writeFileSync(`${path}.1`, readLogTail(path, logBytesMax / 4), { mode: 0o600 });
    truncateSync(path, 0);
  } catch {
    // The file was removed; the child keeps writing to a file without a name.
  }
}

/** Returns the last bytes of a log; '' if there is none. */
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
