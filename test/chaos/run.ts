import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Figures } from './parts/checker.ts';
import type { Seen } from './parts/client.ts';
import { makeTemplate, type PostgresTemplate } from './parts/postgres.ts';
import { openScene } from './parts/scene.ts';
import { createTidy } from './parts/tidy.ts';
import { inTime, secondsSince } from './parts/wait.ts';
import type { Row, Stage } from './row.ts';

export interface RunOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly kills: number;
  readonly requests: number;
  readonly slack: number;
  /** A folder that takes what clients saw and what gateways printed; null keeps nothing. */
  readonly out: string | null;
}

export interface Outcome {
  readonly row: string;
  readonly verdict: 'holds' | 'fails' | 'left out';
  /** Requirements that did not hold, or why it was left out. */
  readonly why: readonly string[];
  readonly seen: readonly Seen[];
  readonly figures: Figures | null;
  readonly recoveredSeconds: number | null;
  readonly notes: readonly string[];
  readonly seconds: number;
}

/** Where rows work: one PostgreSQL cluster that they copy, one folder for all of them. */
export interface Place {
  readonly dir: string;
  readonly template: PostgresTemplate;
  close(): void;
}

/** As root PostgreSQL runs as nobody, which must be able to reach the folder. */
const parentDir = process.geteuid?.() === 0 ? '/var/tmp' : tmpdir();

export async function openPlace(): Promise<Place> {
  const dir = mkdtempSync(join(parentDir, 'hg-chaos-'));
  const close = (): void => rmSync(dir, { recursive: true, force: true });
  process.on('exit', close);
  chmodSync(dir, 0o711);
  const templateDir = join(dir, 'template');
  mkdirSync(templateDir);
  chmodSync(templateDir, 0o711);
  const template = await makeTemplate(templateDir);
  return {
    dir,
    template,
    close() {
      process.off('exit', close);
      close();
    },
  };
}

/** Runs one row and cleans up after it. Never throws: what it did not expect is why it fails. */
export async function runRow(place: Place, row: Row, options: RunOptions): Promise<Outcome> {
  const beganMs = performance.now();
  const missing = row.missing?.() ?? null;
  const outcome = {
    row: row.name,
    why: [] as string[],
    seen: [] as Seen[],
    figures: null as Figures | null,
    recoveredSeconds: null as number | null,
    notes: [] as string[],
  };
  if (missing !== null) return { ...outcome, verdict: 'left out', why: [missing], seconds: 0 };
  const tidy = createTidy();
  const dir = mkdtempSync(join(place.dir, 'row-'));
  chmodSync(dir, 0o711);
  tidy.add(() => rmSync(dir, { recursive: true, force: true }));
  const keep = (name: string, text: string): void => {
    if (options.out === null) return;
    mkdirSync(join(options.out, row.name), { recursive: true });
    writeFileSync(join(options.out, row.name, name), text);
  };
  const stage: Stage = {
    ...options,
    dir,
    open: (scene = {}) => openScene({ dir, seed: options.seed, template: place.template, tidy, onOutput: keep }, scene),
    must(holds, why) {
      if (!holds) outcome.why.push(why);
    },
    get broken() {
      return outcome.why.length;
    },
    note: (text) => void outcome.notes.push(text),
    saw: (seen) => void outcome.seen.push(...seen),
    recovered: (seconds) => (outcome.recoveredSeconds = Math.max(outcome.recoveredSeconds ?? 0, seconds)),
    counted: (figures) => (outcome.figures = figures),
    later: (undo) => tidy.add(undo),
  };
  const limitSeconds = options.slack * ((row.limitSeconds ?? 150) + 2 * options.seconds + 8 * options.kills);
  try {
    const over = await inTime(
      limitSeconds * 1000,
      row.run(stage).then(() => true),
    );
    if (over === null) outcome.why.push(`it was not over after ${limitSeconds} s`);
  } catch (error) {
    outcome.why.push(error instanceof Error ? error.message : String(error));
  }
  try {
    await tidy.all();
  } catch (error) {
    outcome.why.push(String(error));
  }
  keep('seen.ndjson', outcome.seen.map((seen) => `${JSON.stringify(seen)}\n`).join(''));
  keep('why.txt', `${outcome.why.join('\n')}\n`);
  return { ...outcome, verdict: outcome.why.length === 0 ? 'holds' : 'fails', seconds: secondsSince(beganMs) };
}
