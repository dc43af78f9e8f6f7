import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type EngineDefinition, formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';
import { runCli } from '#test/cli/run-cli.ts';

export interface Imported {
  readonly code: number | null;
  readonly stderr: string;
  /** `model: text`, with `-` for the configuration as a whole. */
  readonly notes: readonly string[];
  readonly out: string;
  readonly engines: ReadonlyMap<string, EngineDefinition>;
  /** All text that was written or said. */
  readonly everything: string;
}

interface Note {
  readonly model: string | null;
  readonly text: string;
}

/** Imports a configuration as the command does. @param folder an empty one */
export async function importInto(folder: string, program: string, config: string): Promise<Imported> {
  const out = join(folder, 'engines');
  writeFileSync(join(folder, 'config.yaml'), config);
  const result = await runCli(['import', program, join(folder, 'config.yaml'), '--out', out, '--json']);
  const said = result.stdout === '' ? { notes: [] } : (JSON.parse(result.stdout) as { notes?: Note[] });
  const loaded = existsSync(out) ? loadEngineFiles(out) : { ok: true as const, engines: [] };
  if (!loaded.ok) throw new Error(loaded.problems.map(formatEngineFileProblem).join('\n'));
  const texts = existsSync(out) ? readdirSync(out).map((name) => readFileSync(join(out, name), 'utf8')) : [];
  return {
    code: result.code,
    stderr: result.stderr,
    notes: (said.notes ?? []).map(({ model, text }) => `${model ?? '-'}: ${text}`),
    out,
    engines: new Map(loaded.engines.map((engine) => [engine.id, engine])),
    everything: [result.stdout, result.stderr, ...texts].join('\n'),
  };
}
