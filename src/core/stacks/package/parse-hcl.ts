import { Worker } from 'node:worker_threads';
import type { HclFile, HclParsed } from './hcl-worker.ts';
import { hclTimeoutMs } from './limits.ts';
import { PackageRefusedError } from './problem.ts';

/** Of JavaScript's own in the thread; the parser's memory is bounded by the size of the files. */
const resourceLimits = { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };

/**
 * Parses Terraform's files in a thread of their own, which is ended with the last of them or when its time is over.
 * @throws PackageRefusedError where they take too long or too much memory
 */
export function parseHcl(files: readonly HclFile[]): Promise<readonly HclParsed[]> {
  return new Promise((resolve, reject) => {
    // Nothing of the gateway's environment is there to be read.
    const worker = new Worker(new URL('./hcl-worker.ts', import.meta.url), { resourceLimits, env: {}, argv: [] });
    const end = (done: () => void): void => {
      clearTimeout(timer);
      worker.removeAllListeners();
      // Ended by force, it may still say that it failed.
      worker.on('error', () => undefined);
      void worker.terminate();
      done();
    };
    const refuse = (message: string): void =>
      end(() => reject(new PackageRefusedError([{ field: 'file', message: `its Terraform files ${message}` }])));
    const timer = setTimeout(() => refuse(`take longer than ${hclTimeoutMs / 1000} seconds to parse`), hclTimeoutMs);
    worker.once('message', (parsed: readonly HclParsed[]) => end(() => resolve(parsed)));
    worker.once('error', () => refuse('cannot be parsed: they take too much memory'));
    worker.once('exit', () => refuse('cannot be parsed'));
    worker.postMessage(files);
  });
}
