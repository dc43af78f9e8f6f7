import { z } from 'zod';
import { readUnreached, type Unreached } from '#core/runs/runner/runner.ts';
import type { PieceMask } from './mask.ts';

/** A line of a run's log, as stored. */
export interface LogLine {
  /** Milliseconds since the Unix epoch; null if the line has no time. */
  readonly atMs: number | null;
  readonly level: 'info' | 'warn' | 'error';
  /** Terraform's `type`; `text` for lines that Terraform did not write. */
  readonly type: string;
  readonly message: string;
}

/** The parts of a line, and what else it reports. */
export interface LineFacts {
  readonly line: LogLine | null;
  /** From `change_summary`: what a plan would change, or what an apply changed. */
  readonly changes: ChangeSummary | null;
  /** The error, with file and line where Terraform names them, and the first line of the reason. */
  readonly error: string | null;
  /** A port that the run's network could not connect to. */
  readonly unreached: Unreached | null;
}

export interface ChangeSummary {
  readonly operation: 'plan' | 'apply' | 'destroy';
  readonly add: number;
  readonly change: number;
  readonly remove: number;
}

/** Maximum length of a stored message, in characters. */
const messageCharsMax = 8192;
/** Times outside these bounds are invalid for a log, and PostgreSQL rejects some of them. */
const [atMsMin, atMsMax] = [Date.UTC(2000, 0), Date.UTC(2200, 0)];
/** Types as Terraform writes them: any module can print a line that looks like one of Terraform's. */
const typePattern = /^[a-z][a-z_]{0,39}$/;
/** Maximum length of the sentence that says why a run failed. */
const errorCharsMax = 500;

const rangeSchema = z.object({ filename: z.string(), start: z.object({ line: z.int() }) });

const lineSchema = z.object({
  '@level': z.string().default('info'),
  '@message': z.string().default(''),
  '@timestamp': z.string().optional(),
  type: z.string().regex(typePattern).catch('log'),
  diagnostic: z
    .object({
      severity: z.string().default('error'),
      summary: z.string().default(''),
      detail: z.string().default(''),
      range: rangeSchema.optional().catch(undefined),
    })
    .optional()
    .catch(undefined),
  changes: z
    .object({ add: z.int(), change: z.int(), remove: z.int(), operation: z.enum(['plan', 'apply', 'destroy']) })
    .optional()
    .catch(undefined),
  hook: z
    .object({
      output: z.string().optional(),
      resource: z.object({ addr: z.string() }).optional().catch(undefined),
    })
    .optional()
    .catch(undefined),
});

/** Types of lines that help no reader of the log. Outputs are shown separately, and are not masked in these lines. */
const silentTypes: ReadonlySet<string> = new Set(['version', 'outputs', 'state_lock_acquire', 'state_lock_release']);

/** Source of text that is not in one of Terraform's lines. */
const textSource = '';

/**
 * Reads a line of `terraform -json`, or any other line in the log: a panic, a shell's, a module's program's.
 * @param mask applied before anything is cut, so that no half of a secret stays
 */
export function readLogLine(raw: string, mask: PieceMask): LineFacts {
  const parsed = raw.startsWith('{') ? lineSchema.safeParse(parseJson(raw)) : null;
  return parsed?.success === true ? readJsonLine(parsed.data, mask) : readText(raw, mask);
}

function readText(raw: string, mask: PieceMask): LineFacts {
  const message = cut(maskedPiece(raw, textSource, mask));
  const line = message === '' ? null : ({ atMs: null, level: 'info', type: 'text', message } as const);
  return { line, changes: null, error: null, unreached: readUnreached(message) };
}

/** Masks before and after removing control sequences: colors inside a secret do not make it unreadable. */
function maskedPiece(text: string, source: string, { whole, piece }: PieceMask): string {
  return piece(source, printable(whole(text)));
}

function maskedText(entry: z.infer<typeof lineSchema>, mask: PieceMask): string {
  const { '@message': text, diagnostic, hook } = entry;
  if (diagnostic === undefined && hook?.output !== undefined) {
    return maskedPiece(hook.output, hook.resource?.addr ?? textSource, mask);
  }
  const { whole } = mask;
  return whole(printable(whole(diagnostic === undefined ? text : diagnosticText(diagnostic))));
}

function readJsonLine(entry: z.infer<typeof lineSchema>, mask: PieceMask): LineFacts {
  const { '@level': level, '@timestamp': timestamp, type, diagnostic, changes } = entry;
  const at = Date.parse(timestamp ?? '');
  const message = cut(maskedText(entry, mask));
  const line: LogLine = { atMs: at >= atMsMin && at < atMsMax ? at : null, level: levelOf(level), type, message };
  const isError = diagnostic?.severity === 'error';
  return {
    line: silentTypes.has(type) || message === '' ? null : line,
    changes: changes ?? null,
    error: isError ? sentenceOf(message) : null,
    unreached: null,
  };
}

/**
 * Returns the summary with the first line of the detail. The summary only says that a provisioner failed or a
 * value is invalid, not why.
 */
function sentenceOf(message: string): string {
  const [summary = '', ...detail] = message.split('\n');
  const why = detail.find((line) => line.trim() !== '')?.trim() ?? '';
  const sentence = why === '' ? summary : `${summary}: ${why}`;
  return sentence.length <= errorCharsMax ? sentence : `${sentence.slice(0, errorCharsMax)}…`;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function levelOf(level: string): LogLine['level'] {
  return level === 'error' || level === 'warn' ? level : 'info';
}

function diagnosticText({
  summary,
  detail,
  range,
}: {
  readonly summary: string;
  readonly detail: string;
  readonly range?: z.infer<typeof rangeSchema> | undefined;
}): string {
  const place = range === undefined ? '' : ` (${range.filename}:${range.start.line})`;
  return detail === '' ? `${summary}${place}` : `${summary}${place}\n${detail}`;
}

/* oxlint-disable no-control-regex */
/** ECMA-48: sequences that begin with ESC [, titles of terminals, and other sequences of two characters. */
const escapes = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
// Control characters except tab and newline, which have a meaning in a log.
const controls = /[\u0000-\u0008\u000b-\u001f\u007f]/g;
/* oxlint-enable no-control-regex */

/** Removes a terminal's colors and cursor moves. */
function printable(text: string): string {
  return text.toWellFormed().replaceAll(escapes, '').replaceAll(controls, '');
}

/** Cuts a text that is too long after its beginning. */
function cut(text: string): string {
  const trimmed = text.trimEnd();
  return trimmed.length <= messageCharsMax ? trimmed : `${trimmed.slice(0, messageCharsMax)}… (line cut)`;
}
