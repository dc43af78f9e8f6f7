import { once } from 'node:events';
import { isDeepStrictEqual } from 'node:util';
import { Worker } from 'node:worker_threads';
import { AppError } from '#base/errors.ts';
import { ConcurrencyLimit } from '#base/queues/queues.ts';
import { type PackageFile, type StackInput, unpack } from '#core/stacks/package/package.ts';
import type { ChangeKind, FileChange, SentFiles } from './diff-worker.ts';
import type { StackVersion } from './stack.ts';

/** Compares two versions of a stack: their files and their inputs. */

/** An input that differs in its type, default, or whether it is required or sensitive. */
export interface InputChange {
  readonly name: string;
  readonly change: ChangeKind;
  readonly before: StackInput | null;
  readonly after: StackInput | null;
}

export interface Comparison {
  readonly from: StackVersion;
  readonly to: StackVersion;
  readonly files: readonly FileChange[];
  readonly inputs: readonly InputChange[];
}

/** A version with its zip. */
export interface VersionPackage {
  readonly version: StackVersion;
  readonly zip: Buffer;
}

/** Limits of JavaScript's memory in the thread. */
const resourceLimits = { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };
const compareMsMax = 60_000;

/** Two packages at once are at most 100 MiB in memory, and as much again in the thread. */
const compareLimit = new ConcurrencyLimit({ atOncePerNameMax: 1, waitingPerNameMax: 32, waitMsMax: 60_000 });

/** @throws TooManyWaitError */
export function compareVersions(from: VersionPackage, to: VersionPackage): Promise<Comparison> {
  return compareLimit.during('versions', async () => {
    const isSame = from.version.sha256 === to.version.sha256;
    const files = isSame ? [] : await compareFiles(await unpack(from.zip), await unpack(to.zip));
    const inputs = compareInputs(from.version.metadata.inputs, to.version.metadata.inputs);
    return { from: from.version, to: to.version, files, inputs };
  });
}

/**
 * Compares in a thread, because a diff would delay other requests of the gateway. The thread gets no environment.
 * @throws AppError package_too_large if it takes too long or too much memory
 */
async function compareFiles(
  before: readonly PackageFile[],
  after: readonly PackageFile[],
): Promise<readonly FileChange[]> {
  const workerData: SentFiles = { before, after };
  const worker = new Worker(new URL('./diff-worker.ts', import.meta.url), {
    workerData,
    resourceLimits,
    env: {},
    argv: [],
  });
  // A terminated thread may still emit an error.
  worker.on('error', () => undefined);
  try {
    const [changes] = (await once(worker, 'message', { signal: AbortSignal.timeout(compareMsMax) })) as [FileChange[]];
    return changes;
  } catch (error) {
    const message = 'These versions are too large to be compared here. Download both and compare the files.';
    throw new AppError('package_too_large', { message, cause: error });
  } finally {
    void worker.terminate();
  }
}

function compareInputs(before: readonly StackInput[], after: readonly StackInput[]): InputChange[] {
  const [old, fresh] = [before, after].map((inputs) => new Map(inputs.map((input) => [input.name, input])));
  const names = [...new Set([...before, ...after].map(({ name }) => name))].toSorted();
  return names.flatMap((name): InputChange[] => {
    const [was, is] = [old?.get(name) ?? null, fresh?.get(name) ?? null];
    const isSame = was !== null && is !== null && isDeepStrictEqual(comparedOf(was), comparedOf(is));
    const change = was === null ? 'added' : is === null ? 'removed' : 'changed';
    return isSame ? [] : [{ name, change, before: was, after: is }];
  });
}

const comparedOf = ({ type, typeExpression, required, default: value, sensitive }: StackInput): object => ({
  type,
  typeExpression,
  required,
  value,
  sensitive,
});
