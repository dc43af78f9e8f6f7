import { execFile } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

/** The interface of an installed vLLM, as `describe-vllm.py` prints it. */
export interface Description {
  /** Such as `0.32.0`. */
  readonly version: string;
  /** Request fields by the place at which they stand: a route, or the path of an object inside a body. */
  readonly fields: Readonly<Record<string, readonly string[]>>;
  /** Such as `POST /abort_requests`. */
  readonly routes: readonly string[];
  readonly metrics: readonly string[];
  readonly environment: readonly string[];
  /** Arguments of `vllm serve`. */
  readonly flags: readonly string[];
}

/**
 * Reads the interface of an installed vLLM, which takes half a minute.
 * @param place its folder with `venv/bin/python` or `bin/python`, or its program
 */
export async function describeVllm(place: string): Promise<Description> {
  const script = new URL('describe-vllm.py', import.meta.url).pathname;
  const env = { ...process.env, VLLM_TARGET_DEVICE: 'cpu', HF_HUB_OFFLINE: '1', VLLM_NO_USAGE_STATS: '1' };
  const { stdout } = await promisify(execFile)(pythonOf(place), [script], { env, maxBuffer: 64 * 1024 * 1024 });
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Description;
}

/** The Python that a vLLM runs in: of its virtual environment, or what the first line of its program names. */
function pythonOf(place: string): string {
  if (!existsSync(place)) throw new Error(`${place} does not exist`);
  const folder = statSync(place).isDirectory() ? place : dirname(place);
  const beside = ['venv/bin/python', 'bin/python', 'python'].map((path) => join(folder, path)).find(existsSync);
  if (beside !== undefined) return beside;
  const named = statSync(place).isFile() ? /^#!(\S+)/.exec(readFileSync(place, 'utf8'))?.[1] : undefined;
  if (named === undefined) throw new Error(`${place} has no venv/bin/python and no bin/python`);
  return named;
}

export interface Difference {
  readonly added: readonly string[];
  readonly gone: readonly string[];
}

/** Request fields as `place field`. */
export const fieldList = ({ fields }: Pick<Description, 'fields'>): string[] =>
  Object.entries(fields).flatMap(([place, names]) => names.map((name) => `${place} ${name}`));

/** New and removed parts from one release to another, by part of the interface. */
export function differencesBetween(
  older: Description,
  newer: Description,
): Readonly<Record<Exclude<keyof Description, 'version'>, Difference>> {
  const between = (before: readonly string[], after: readonly string[]): Difference => ({
    added: after.filter((name) => !before.includes(name)),
    gone: before.filter((name) => !after.includes(name)),
  });
  return {
    fields: between(fieldList(older), fieldList(newer)),
    routes: between(older.routes, newer.routes),
    metrics: between(older.metrics, newer.metrics),
    environment: between(older.environment, newer.environment),
    flags: between(older.flags, newer.flags),
  };
}
