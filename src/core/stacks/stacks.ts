import { posix } from 'node:path';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { internet } from '#base/net/net.ts';
import type { Audit } from '#core/audit/audit.ts';
import {
  packageBytesMax,
  type PackageFile,
  PackageRefusedError,
  readPackage,
  type TerraformProgram,
  unpack,
} from '#core/stacks/package/package.ts';
import { syncBuiltins } from './builtin.ts';
import { findStack, listStacks, readVersion, type StackList, type StackPage } from './catalog.ts';
import { noSuchStack, type StackAuthor, type StackChange } from './change.ts';
import { type Comparison, compareVersions, type VersionPackage } from './compare.ts';
import { patchStack, removeStack, type StackPatch } from './changes.ts';
import { download, type Downloads, packageTooLarge } from './download.ts';
import { listVersions, mustFindEarlier, mustFindVersion, type VersionPage } from './history.ts';
import { createIconImages, type IconImage } from './icon-images.ts';
import { type PushedStack, pushStack, requireMayRevert, revertStack, type StackFields } from './push.ts';
import type { Stack, StackVersion, StackViewer, StackVisibility } from './stack.ts';
import { pinVersion, unpinVersion } from './versions.ts';

/**
 * Catalog of stacks: Terraform modules packed as zips. A package is read completely before any of it is stored, and its
 * bytes are stored under their SHA-256.
 */

export type { StackList, StackPage } from './catalog.ts';
export type { StackAuthor } from './change.ts';
export type { Comparison } from './compare.ts';
export type { KeptVersion, VersionPage } from './history.ts';
export type { StackPatch } from './changes.ts';
export type { Downloads } from './download.ts';
export { iconRule, isIcon } from './icon.ts';
export type { IconImage } from './icon-images.ts';
export {
  categoryCharsMax,
  descriptionCharsMax,
  stackNamePattern,
  stackNameRule,
  titleCharsMax,
  toCategory,
} from './names.ts';
export type { Outbound } from '#base/net/net.ts';
export { type PushedStack, type StackFields } from './push.ts';
export {
  fits,
  type InputValue,
  packageBytesMax,
  type PackageFile,
  type PackageProblem,
  PackageRefusedError,
  type StackInput,
  type VersionMetadata,
  type WebPort,
} from '#core/stacks/package/package.ts';
export { type Stack, type StackVersion, type StackViewer, type StackVisibility, stackVisibilities } from './stack.ts';

/** An uploaded package, or its URL. */
export type PackageSource =
  | { readonly kind: 'zip'; readonly bytes: Buffer; readonly fileName: string | null }
  | { readonly kind: 'url'; readonly url: string };

export interface DownloadedStack {
  readonly stack: Stack;
  /** Bytes exactly as uploaded. */
  readonly zip: Buffer;
}

export interface OpenVersion {
  readonly version: StackVersion;
  /** Current visibility of the version's stack. */
  readonly visibility: StackVisibility;
  /** All files of the package; Terraform runs in the `root` of the metadata. */
  readonly files: readonly PackageFile[];
}

export interface Stacks {
  list(request: StackList): Promise<StackPage>;
  /**
   * Finds a stack by name or id; null if the viewer sees none.
   * @param number the version to return with the stack; the newest one if null or absent
   * @throws AppError not_found if the stack does not have the version
   */
  find(viewer: StackViewer, nameOrId: string, number?: number | null): Promise<Stack | null>;
  /** Lists the versions of a stack, newest first. @throws AppError not_found */
  versions(
    viewer: StackViewer,
    nameOrId: string,
    page: { readonly page: number; readonly limit: number },
  ): Promise<VersionPage & { readonly stack: Stack }>;
  /**
   * Compares two versions, for those who may download them. `to` is the newest one if null, `from` the one before `to`.
   * @throws AppError not_found, insufficient_scope, conflict; TooManyWaitError
   */
  compare(
    viewer: StackViewer,
    nameOrId: string,
    versions: { readonly from: number | null; readonly to: number | null },
  ): Promise<Comparison>;
  /**
   * Adds a new version with the package of an earlier one, as if it was pushed again.
   * @param number the earlier version; the one before the newest if null
   * @throws AppError not_found, insufficient_scope, conflict; PackageRefusedError; TooManyWaitError
   */
  revert(nameOrId: string, number: number | null, by: StackAuthor): Promise<PushedStack>;
  /** Returns the image of a stack's icon; null if it has no image. @throws AppError not_found, TooManyWaitError */
  icon(viewer: StackViewer, nameOrId: string): Promise<IconImage | null>;
  /** @throws AppError not_found; insufficient_scope for a private stack of another user */
  download(viewer: StackViewer, nameOrId: string, number?: number | null): Promise<DownloadedStack>;
  /**
   * Creates a stack from a package, or adds a version to an existing stack that the author may change.
   * @throws PackageRefusedError with all problems; AppError package_too_large, conflict; TooManyWaitError
   */
  push(source: PackageSource, fields: StackFields, by: StackAuthor): Promise<PushedStack>;
  /** @throws AppError not_found, insufficient_scope, conflict */
  patch(nameOrId: string, patch: StackPatch, by: StackAuthor): Promise<Stack>;
  /** Deletes a stack; its pinned versions stay. @throws AppError not_found, insufficient_scope */
  remove(nameOrId: string, by: StackAuthor): Promise<void>;
  /** Returns the files of a version, also of a deleted stack; null if it no longer exists. */
  openVersion(versionId: string): Promise<OpenVersion | null>;
  /** Pins a version in the caller's transaction, so that it outlives its stack. @returns false if it does not exist */
  pinIn(tx: Transaction, versionId: string): Promise<boolean>;
  /** Removes one pin of `pinIn`. */
  unpinIn(tx: Transaction, versionId: string): Promise<void>;
}

export interface StacksOptions {
  readonly db: Db;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  /** Network access for downloads of packages; the internet, port 443, if absent. */
  readonly downloads?: Partial<Downloads>;
  /** Finds the program that applies stacks here; null or absent if unknown. */
  readonly terraform?: () => Promise<TerraformProgram | null>;
}

const downloadTimeoutMs = 30_000;

export function createStacks(options: StacksOptions): Stacks {
  const { db, audit, clock, log, terraform = () => Promise.resolve(null) } = options;
  const downloads = { outbound: internet, ports: [443], timeoutMs: downloadTimeoutMs, ...options.downloads };
  const images = createIconImages(downloads, clock);
  const bringBuiltins = createBringBuiltins(db, log);
  const during: During = async (by, work) => {
    await bringBuiltins();
    return db.orm.transaction((tx) => work({ tx, audit, by }));
  };
  const mustFind: MustFind = async (viewer, nameOrId) => {
    await bringBuiltins();
    const stack = await findStack(db.orm, viewer, nameOrId);
    if (stack === null) throw noSuchStack();
    return stack;
  };
  return {
    async list(request) {
      await bringBuiltins();
      return listStacks(db, request);
    },
    async find(viewer, nameOrId, number = null) {
      await bringBuiltins();
      const stack = await findStack(db.orm, viewer, nameOrId);
      if (stack === null || number === null) return stack;
      return { ...stack, version: await mustFindVersion(db.orm, stack, number) };
    },
    ...createHistory(options, during, mustFind),
    async icon(viewer, nameOrId) {
      const stack = await mustFind(viewer, nameOrId);
      return stack.icon === null ? null : images.read(stack.icon);
    },
    async push(source, fields, by) {
      const zip = source.kind === 'zip' ? source.bytes : await download(source.url, downloads);
      if (zip.length > packageBytesMax) throw packageTooLarge();
      const found = await readPackage(zip, fileNameOf(source), await terraform());
      const { name: stated, ...rest } = found.stated;
      const name = fields.name ?? stated ?? found.derived.name;
      if (name === null) {
        const message = 'is missing: set the name of the stack in the request or in the manifest';
        throw new PackageRefusedError([{ field: 'name', message }]);
      }
      const { title, description, category, icon } = fields;
      const together = {
        title: title ?? rest.title,
        description: description ?? rest.description,
        category: category ?? rest.category,
        icon: icon ?? rest.icon,
      };
      return during(by, (change) => pushStack(change, name, { zip, found, fields: together }));
    },
    patch: (nameOrId, patch, by) => during(by, (change) => patchStack(change, nameOrId, patch)),
    remove: (nameOrId, by) => during(by, (change) => removeStack(change, nameOrId)),
    async openVersion(versionId) {
      const found = await readVersion(db, versionId);
      return found === null ? null : { ...found, files: await unpack(found.zip) };
    },
    pinIn: pinVersion,
    unpinIn: unpinVersion,
  };
}

type During = <T>(by: StackAuthor, work: (change: StackChange) => Promise<T>) => Promise<T>;
type MustFind = (viewer: StackViewer, nameOrId: string) => Promise<Stack>;

function createHistory(
  { db, terraform = () => Promise.resolve(null) }: StacksOptions,
  during: During,
  mustFind: MustFind,
): Pick<Stacks, 'download' | 'versions' | 'compare' | 'revert'> {
  async function read({ id }: StackVersion): Promise<VersionPackage> {
    const found = await readVersion(db, id);
    // The version was deleted at this moment.
    if (found === null) throw noSuchStack();
    return found;
  }
  return {
    async download(viewer, nameOrId, number = null) {
      const stack = await mustFind(viewer, nameOrId);
      requireMayDownload(stack, viewer);
      const version = number === null ? stack.version : await mustFindVersion(db.orm, stack, number);
      return { stack: { ...stack, version }, zip: (await read(version)).zip };
    },
    async versions(viewer, nameOrId, page) {
      const stack = await mustFind(viewer, nameOrId);
      return { stack, ...(await listVersions(db, stack, page)) };
    },
    async compare(viewer, nameOrId, { from, to }) {
      const stack = await mustFind(viewer, nameOrId);
      requireMayDownload(stack, viewer);
      const later = to === null ? stack.version : await mustFindVersion(db.orm, stack, to);
      const earlier =
        from === null ? await mustFindEarlier(db.orm, stack, later.number) : await mustFindVersion(db.orm, stack, from);
      return compareVersions(await read(earlier), await read(later));
    },
    async revert(nameOrId, number, by) {
      const stack = await mustFind(by.viewer, nameOrId);
      requireMayRevert(stack, by.viewer);
      const version =
        number === null
          ? await mustFindEarlier(db.orm, stack, stack.version.number)
          : await mustFindVersion(db.orm, stack, number);
      const { zip } = await read(version);
      const found = await readPackage(zip, null, await terraform());
      return during(by, (change) =>
        revertStack(change, stack.id, { number: version.number, content: { zip, found, fields: found.stated } }),
      );
    },
  };
}

/** @throws AppError insufficient_scope */
function requireMayDownload({ visibility, ownerUserId }: Stack, { userId }: StackViewer): void {
  if (visibility !== 'private' || ownerUserId === userId) return;
  throw new AppError('insufficient_scope', { message: 'Only its owner can download a private stack.' });
}

/**
 * Updates the built-in stacks at the first use of the catalog, because most starting gateways never read it. A failure
 * does not prevent that use; the next use tries again.
 */
function createBringBuiltins(db: Db, log: Log): () => Promise<void> {
  let bringing: Promise<void> | null = null;
  return () => {
    bringing ??= syncBuiltins(db, log).catch((error: unknown) => {
      bringing = null;
      log.warn(
        { err: error },
        'the built-in stacks could not be updated in the catalog; the next use of the catalog retries',
      );
    });
    return bringing;
  };
}

function fileNameOf(source: PackageSource): string | null {
  if (source.kind === 'zip') return source.fileName;
  return posix.basename(URL.parse(source.url)?.pathname ?? '') || null;
}
