import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { HclFile, HclParsed } from './hcl-worker.ts';
import { hclTimeoutMs } from './limits.ts';
import { PackageRefusedError } from './problem.ts';

/** Limits of JavaScript's memory in the thread; the size of the files bounds the parser's own memory. */
const resourceLimits = { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };

/**
 * Milliseconds that an idle thread waits for the next package. A thread parses a limited number of packages, because
 * its memory does not shrink.
 */
const idleMs = 10_000;
const packagesMax = 50;
/** Milliseconds for the thread to start. On an idle machine the parser starts within a second. */
const startTimeoutMs = 60_000;

interface Thread {
  readonly worker: Worker;
  packages: number;
}

interface IdleThread {
  readonly thread: Thread;
  readonly timer: NodeJS.Timeout;
}

let idle: IdleThread | null = null;

/**
 * Parses Terraform files in a thread, which is terminated if they take too long.
 * @throws PackageRefusedError if they take too long or too much memory
 */
export async function parseHcl(files: readonly HclFile[]): Promise<readonly HclParsed[]> {
  const thread = takeIdle() ?? (await startThread());
  try {
    const parsed = await ask(thread.worker, files);
    keep(thread);
    return parsed;
  } catch (error) {
    void thread.worker.terminate();
    throw error;
  }
}

async function startThread(): Promise<Thread> {
  // The thread gets no environment, so that nothing of the gateway's can be read.
  const worker = new Worker(new URL('./hcl-worker.ts', import.meta.url), { resourceLimits, env: {}, argv: [] });
  // A terminated thread may still emit an error.
  worker.on('error', () => undefined);
  try {
    await once(worker, 'message', { signal: AbortSignal.timeout(startTimeoutMs) });
  } catch (error) {
    void worker.terminate();
    throw new Error('the parser for Terraform files could not be started', { cause: error });
  }
  return { worker, packages: 0 };
}

function ask(worker: Worker, files: readonly HclFile[]): Promise<readonly HclParsed[]> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      clearTimeout(timer);
      worker.off('message', onParsed).off('exit', onExit);
    };
    const refuse = (message: string): void => {
      leave();
      reject(new PackageRefusedError([{ field: 'file', message: `its Terraform files ${message}` }]));
    };
    const onParsed = (parsed: readonly HclParsed[]): void => {
      leave();
      resolve(parsed);
    };
    const onExit = (): void => refuse('cannot be parsed: they need too much memory');
    const timer = setTimeout(() => refuse(`take longer than ${hclTimeoutMs / 1000} seconds to parse`), hclTimeoutMs);
    worker.on('message', onParsed).on('exit', onExit);
    worker.postMessage(files);
  });
}

function takeIdle(): Thread | null {
  if (idle === null) return null;
  const { thread, timer } = idle;
  idle = null;
  clearTimeout(timer);
  thread.worker.ref();
  return thread;
}

function keep(thread: Thread): void {
  thread.packages += 1;
  if (idle !== null || thread.packages >= packagesMax) {
    void thread.worker.terminate();
    return;
  }
  const timer = setTimeout(() => {
    idle = null;
    void thread.worker.terminate();
  }, idleMs);
  // The idle thread does not keep a stopping gateway alive.
  timer.unref();
  thread.worker.unref();
  idle = { thread, timer };
}
