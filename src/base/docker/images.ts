import type { Readable } from 'node:stream';
import { pullLineSchema } from './answers.ts';
import { type DockerApi, DockerError } from './api.ts';
import { hideLogin, type RegistryLogin } from './registry-logins.ts';

export interface PullOptions {
  readonly api: DockerApi;
  readonly reference: string;
  /** Login of the image's registry. */
  readonly login: RegistryLogin | null;
  readonly signal: AbortSignal;
  /** Called for each line of the engine with the loaded percentage, 0 to 100, which never falls. */
  readonly onProgress: (percent: number) => void;
}

/**
 * Pulls an image. When the signal aborts, the engine stops pulling as well.
 * @throws DockerError without a secret in it
 */
export async function pullImage({ api, reference, login, signal, onProgress }: PullOptions): Promise<void> {
  onProgress(0);
  const layers = new Map<string, Layer>();
  let percent = 0;
  let failure: string | null = null;
  try {
    for await (const line of readLines(await api.pull(reference, login, signal))) {
      failure ??= notePullLine(layers, line);
      percent = Math.max(percent, percentOf(layers));
      onProgress(percent);
    }
  } catch (error) {
    if (error instanceof DockerError) throw new DockerError('pull', error.status, hideLogin(error.reason, login));
    throw new DockerError('pull', null, hideLogin(error instanceof Error ? error.message : String(error), login));
  }
  if (failure !== null) throw new DockerError('pull', null, hideLogin(failure, login));
}

interface Layer {
  loadedBytes: number;
  totalBytes: number;
}

/** @returns the error that the line reports; null without an error */
export function notePullLine(layers: Map<string, Layer>, line: string): string | null {
  const parsed = pullLineSchema.safeParse(parseJson(line));
  if (!parsed.success) return null;
  const { id, status, progressDetail, error } = parsed.data;
  if (error) return error;
  if (!id) return null;
  const layer = layers.get(id) ?? { loadedBytes: 0, totalBytes: 0 };
  layers.set(id, layer);
  if (status === 'Downloading') {
    layer.totalBytes = progressDetail?.total ?? layer.totalBytes;
    layer.loadedBytes = progressDetail?.current ?? layer.loadedBytes;
  } else if (status === 'Download complete' || status === 'Pull complete') layer.loadedBytes = layer.totalBytes;
  return null;
}

/** Percentage of the bytes that are known to be needed, rounded down. */
export function percentOf(layers: ReadonlyMap<string, Readonly<Layer>>): number {
  let loaded = 0;
  let total = 0;
  for (const { loadedBytes, totalBytes } of layers.values()) {
    loaded += loadedBytes;
    total += totalBytes;
  }
  return total === 0 ? 0 : Math.floor((100 * loaded) / total);
}

/** Yields the lines of a stream except empty ones; throws if the stream breaks. */
async function* readLines(stream: Readable): AsyncGenerator<string> {
  let rest = '';
  for await (const chunk of stream.setEncoding('utf8') as AsyncIterable<string>) {
    const lines = `${rest}${chunk}`.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') yield line;
  }
  if (rest.trim() !== '') yield rest;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
