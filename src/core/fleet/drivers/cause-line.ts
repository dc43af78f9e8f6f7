/**
 * Finds the line of a program's output that best explains its end. Stack frames, lines that introduce them, notices
 * about cleanup, and answered probes explain nothing. An exception explains more than a line with a word for trouble.
 */

/** @param lines without line breaks, oldest first; @returns '' if no line explains the end */
export function causeLine(lines: readonly string[], errorLines: readonly string[] = []): string {
  return (
    lastOf(errorLines, isException) ??
    lastOf(errorLines, namesTrouble) ??
    lastOf(lines, isException) ??
    lastOf(errorLines, saysSomething) ??
    lastOf(lines, namesTrouble) ??
    lastOf(lines, saysSomething) ??
    ''
  );
}

/** Returns the last wanted line that explains something, with the lines that belong to it; '' if there is none. */
export function lastCauseOf(lines: readonly string[], isWanted: (line: string) => boolean): string {
  return lastOf(lines, (line) => isWanted(line) && saysSomething(line)) ?? '';
}

/**
 * Returns a line's message without colors and without the prefix that names its writer and time, as vLLM, uvicorn and
 * torch write it.
 */
export function messageOf(line: string): string {
  return beginnings.reduce((text, beginning) => text.replace(beginning, ''), plain(line)).trimEnd();
}

function plain(line: string): string {
  const text = line.replaceAll(ansi, '').replace(/\r$/, '');
  // Keeps the last version of a line that was overwritten, as progress bars are.
  return text.slice(text.lastIndexOf('\r') + 1);
}

// oxlint-disable-next-line no-control-regex
const ansi = /\u001b\[[0-9;]*[A-Za-z]/g;

const beginnings = [
  // (EngineCore pid=12) ERROR 08-22 09:29:57 [core.py:1210] …
  /^\((?:\w|[ _:-])+ pid=\d+\) ?/,
  /^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?/,
  /^\[?rank\d+\]?: ?/,
];

const calmPattern = /^(?:\((?:\w|[ _:-])+ pid=\d+\) ?)?(?:DEBUG|INFO|WARNING)\b/;

/** `ValueError: …`, `torch.OutOfMemoryError: …`, `TypeError [ERR_X]: …`, `Error: …`. */
const exceptionPattern =
  /^(?:Uncaught )?(?:\w+\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Failure|NotFound)(?: \[\w+\])?: \S/;
const troublePattern =
  /\b(?:errors?|fatal|panic(?:ked)?|fail(?:ed|ure)?|cannot|can't|could ?n['o]t|unable|denied|refused|not found|no such|missing|invalid|unknown|unsupported|unrecognized|not supported|not allowed|too (?:small|large|long|many|few)|abort(?:ed)?)\b/i;

const silentPatterns = [
  /^\s*$/,
  // Stack frames of Python, Node and Java, their markers, and the place that Node prints.
  /^\s+at \S/,
  /^\s*File ".*", line \d+/,
  /^\s+\S/,
  /^\s*[~^]+\s*$/,
  /^node:internal\//,
  /^\/\S+:\d+$/,
  /^[{}\][]+[,;]?$/,
  /^Node\.js v\d/,
  /^Traceback \(most recent call last\):/,
  /^During handling of the above exception|^The above exception was the direct cause/,
  // The cause stands in an earlier line.
  /See (?:root cause|stack trace|above)|^Engine core initialization failed/i,
  // Notices about the end itself.
  /resource_tracker|leaked \w+ objects|destroy_process_group|UserWarning|DeprecationWarning|FutureWarning/,
  /^task: non-zero exit|^failed: task: non-zero exit/,
  /^(?:INFO:\s+)?(?:Shutting down|Waiting for application shutdown|Application shutdown complete|Finished server process)/,
];

/** True for access log lines of uvicorn and llama.cpp that show an answered probe. Headgate probes constantly. */
export function isProbe(line: string): boolean {
  return probePattern.test(line);
}

const probePattern = /"GET \/(?:health|metrics) HTTP\/\d(?:\.\d)?" 200\b|\bGET \/(?:health|metrics) \S+ 200\b/;

/** True if a logger wrote the line at a level that does not end a program. */
export function isCalm(line: string): boolean {
  return calmPattern.test(plain(line));
}

function saysSomething(line: string): boolean {
  const text = messageOf(line);
  return !isProbe(text) && !silentPatterns.some((pattern) => pattern.test(text));
}

function isException(line: string): boolean {
  return exceptionPattern.test(messageOf(line)) && !isCalm(line) && saysSomething(line);
}

function namesTrouble(line: string): boolean {
  return troublePattern.test(messageOf(line)) && !isCalm(line) && saysSomething(line);
}

function lastOf(lines: readonly string[], isWanted: (line: string) => boolean): string | null {
  const at = lines.findLastIndex((line) => isWanted(line));
  return at === -1 ? null : withReasons(lines, at);
}

/** Pydantic's first line counts the mistakes, and the next lines name them. */
function withReasons(lines: readonly string[], at: number): string {
  const line = messageOf(lines[at] ?? '').trim();
  if (!/\d+ validation errors?\b/.test(line)) return line;
  const reasons = lines.slice(at + 1, at + 3).map((reason) => messageOf(reason).trim());
  return [line, ...reasons.filter((reason) => !/^(?:For further information|$)/.test(reason))].join(' ');
}
