import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { type EngineDefinition, formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';

export const chat = `version: 1
id: small-chat
name: Small Chat
hugging_face_id: Acme/Small-Chat
task_type: chat
context_length: 4096
pricing:
  input_per_million: 0.10
  cached_input_per_million: "0.05"
  output_per_million: 0.400000
driver: process
command: [serve-it, --socket, "{socket}"]
`;

export const external = `version: 1
id: far-chat
name: Far Chat
hugging_face_id: Acme/Far-Chat
task_type: chat
context_length: 4096
driver: external
url: https://engine.example/base/
`;

type Environment = Readonly<Record<string, string | undefined>>;

let root: string;
let folder: string;

/** Each test of the file has a folder `engines` of its own, which is empty. */
export function useEnginesFolder(): void {
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'hg-catalog-'));
    folder = join(root, 'engines');
    mkdirSync(folder);
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));
}

export const enginesFolder = (): string => folder;

export function write(name: string, text: string): void {
  writeFileSync(join(folder, name), text);
}

/** @param env where nothing is given, that of the process */
export function problems(env?: Environment): string[] {
  const result = loadEngineFiles(folder, env === undefined ? {} : { env });
  return result.ok ? [] : result.problems.map(formatEngineFileProblem);
}

export function load(env: Environment = {}): readonly EngineDefinition[] {
  const result = loadEngineFiles(folder, { env });
  if (!result.ok) throw new Error(result.problems.map(formatEngineFileProblem).join('\n'));
  return result.engines;
}
