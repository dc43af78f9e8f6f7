import { posix } from 'node:path';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
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
import { patchStack, removeStack, type StackPatch } from './changes.ts';
import { download, type Downloads, packageTooLarge } from './download.ts';
import { createIconImages, type IconImage } from './icon-images.ts';
import { internet } from '#base/outbound.ts';
import { type PushedStack, pushStack, type StackFields } from './push.ts';
import type { Stack, StackVersion, StackViewer, StackVisibility } from './stack.ts';
import { pinVersion, unpinVersion } from './versions.ts';

/**
 * The catalog of stacks: Terraform modules that somebody packed as a zip. A package is read completely before anything
 * of it is kept, and what is kept is its bytes, under their SHA-256.
 */

export type { StackList, StackPage } from './catalog.ts';
export type { StackAuthor } from './change.ts';
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
export type { Outbound } from '#base/outbound.ts';
export { type PushedStack, pushOutcomes, type StackFields } from './push.ts';
export {
  fits,
  inputTypes,
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

/** A package that is sent, or where it lies. */
export type PackageSource =
  | { readonly kind: 'zip'; readonly bytes: Buffer; readonly fileName: string | null }
  | { readonly kind: 'url'; readonly url: string };

export interface DownloadedStack {
  readonly stack: Stack;
  /** Exactly as it was uploaded. */
  readonly zip: Buffer;
}

export interface OpenVersion {
  readonly version: StackVersion;
  /** Of its stack now. */
  readonly visibility: StackVisibility;
  /** All of the package; Terraform runs in the folder that the metadata name. */
  readonly files: readonly PackageFile[];
}

export interface Stacks {
  list(request: StackList): Promise<StackPage>;
  /** By name or id; null where the viewer sees none. */
  find(viewer: StackViewer, nameOrId: string): Promise<Stack | null>;
  /** The image of its icon; null where it has none that can be shown. @throws AppError not_found, TooManyWaitError */
  icon(viewer: StackViewer, nameOrId: string): Promise<IconImage | null>;
  /** @throws AppError not_found; insufficient_scope for a private stack that the viewer only knows of */
  download(viewer: StackViewer, nameOrId: string): Promise<DownloadedStack>;
  /**
   * Makes a stack of a package, or a new version of the author's own.
   * @throws PackageRefusedError with all problems; AppError package_too_large, conflict; TooManyWaitError
   */
  push(source: PackageSource, fields: StackFields, by: StackAuthor): Promise<PushedStack>;
  /** @throws AppError not_found, insufficient_scope, conflict */
  patch(nameOrId: string, patch: StackPatch, by: StackAuthor): Promise<Stack>;
  /** Versions that are held stay. @throws AppError not_found, insufficient_scope */
  remove(nameOrId: string, by: StackAuthor): Promise<void>;
  /** The files of a version, also of a stack that is deleted; null where it is gone. */
  openVersion(versionId: string): Promise<OpenVersion | null>;
  /** Holds a version in the caller's transaction, so that it outlives its stack. @returns whether it is there */
  pinIn(tx: Transaction, versionId: string): Promise<boolean>;
  /** Lets go of what `pinIn` held once. */
  unpinIn(tx: Transaction, versionId: string): Promise<void>;
}

export interface StacksOptions {
  readonly db: Db;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  /** Where packages may be fetched from; the internet, by port 443, where absent. */
  readonly downloads?: Partial<Downloads>;
  /** Finds the program that applies stacks here; null, or absent, where that is not known. */
  readonly terraform?: () => Promise<TerraformProgram | null>;
}

const downloadTimeoutMs = 30_000;

export function createStacks(options: StacksOptions): Stacks {
  const { db, audit, clock, log, terraform = () => Promise.resolve(null) } = options;
  const downloads = { outbound: internet, ports: [443], timeoutMs: downloadTimeoutMs, ...options.downloads };
  const images = createIconImages(downloads, clock);
  const bringBuiltins = createBringBuiltins(db, log);
  const during = async <T>(by: StackAuthor, work: (change: StackChange) => Promise<T>): Promise<T> => {
    await bringBuiltins();
    return db.orm.transaction((tx) => work({ tx, audit, by }));
  };
  return {
    async list(request) {
      await bringBuiltins();
      return listStacks(db, request);
    },
    async find(viewer, nameOrId) {
      await bringBuiltins();
      return findStack(db.orm, viewer, nameOrId);
    },
    async icon(viewer, nameOrId) {
      await bringBuiltins();
      const stack = await findStack(db.orm, viewer, nameOrId);
      if (stack === null) throw noSuchStack();
      return stack.icon === null ? null : images.read(stack.icon);
    },
    async download(viewer, nameOrId) {
      await bringBuiltins();
      const stack = await findStack(db.orm, viewer, nameOrId);
      const found = stack === null ? null : await readVersion(db, stack.version.id);
      if (stack === null || found === null) throw noSuchStack();
      if (stack.visibility === 'private' && stack.ownerUserId !== viewer.userId) {
        throw new AppError('insufficient_scope', { message: 'A private stack is downloaded by its owner alone.' });
      }
      return { stack, zip: found.zip };
    },
    async push(source, fields, by) {
      const zip = source.kind === 'zip' ? source.bytes : await download(source.url, downloads);
      if (zip.length > packageBytesMax) throw packageTooLarge();
      const found = await readPackage(zip, fileNameOf(source), await terraform());
      const { name: stated, ...rest } = found.stated;
      const name = fields.name ?? stated ?? found.derived.name;
      if (name === null) {
        const message = 'is missing: give the stack a name in the request or in its manifest';
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

/**
 * Brings the stacks that come with the product up to date, when the catalog is used for the first time: most gateways
 * that start never read it. What goes wrong there keeps nobody from using it, and is tried again by the next use.
 */
function createBringBuiltins(db: Db, log: Log): () => Promise<void> {
  let bringing: Promise<void> | null = null;
  return () => {
    bringing ??= syncBuiltins(db, log).catch((error: unknown) => {
      bringing = null;
      log.warn({ err: error }, 'the stacks that come with the product could not be brought up to date');
    });
    return bringing;
  };
}

function fileNameOf(source: PackageSource): string | null {
  if (source.kind === 'zip') return source.fileName;
  return posix.basename(URL.parse(source.url)?.pathname ?? '') || null;
}
