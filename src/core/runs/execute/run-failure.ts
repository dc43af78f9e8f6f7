import { constants } from 'node:os';
import type { FailureCode } from '#core/runs/lifecycle/lifecycle.ts';

/** An error that ends a run as FAILED. */
export class RunFailure extends Error {
  readonly code: FailureCode;
  constructor(code: FailureCode, message: string) {
    super(message);
    this.name = 'RunFailure';
    this.code = code;
  }
}

export class RunCanceled extends Error {}

/** Explains exit codes above 128, which are a shell's signals. @returns null if Terraform ended by itself */
export function killedBy(command: string, exitCode: number): string | null {
  const signal = exitCode - 128;
  const isKill = signal === constants.signals.SIGKILL;
  const isOther = [constants.signals.SIGSEGV, constants.signals.SIGABRT, constants.signals.SIGTERM].includes(signal);
  if (!isKill && !isOther) return null;
  const why = isKill ? ', as the kernel does when memory runs out' : '';
  return `${command} was killed by signal ${signal} (exit code ${exitCode})${why}; the resources that it created until then are kept`;
}

/** True if `init` recorded the local backend with its default path, in the file where Terraform stores its backend. */
export function isLocalBackend(text: string): boolean {
  try {
    const { backend } = JSON.parse(text) as { backend?: { type?: unknown; config?: { path?: unknown } } };
    return backend?.type === 'local' && (backend.config?.path ?? null) === null;
  } catch {
    return false;
  }
}
