/**
 * Which line of what a program wrote says best why it ended. Frames of stacks, the frames' own words, notices about
 * what was cleaned up, and answered probes say nothing; an exception says more than a line that has a word for trouble.
 */

/** @param lines without line breaks, oldest first; @returns '' when none says anything */
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

/** The last of those lines that are wanted which says something, and what belongs to it; '' when none does. */
export function lastCauseOf(lines: readonly string[], isWanted: (line: string) => boolean): string {
  return lastOf(lines, (line) => isWanted(line) && saysSomething(line)) ?? '';
}

/** What a line says, without colours and without who said it and when: vLLM's, uvicorn's and torch's ways to begin. */
export function wordsOf(line: string): string {
  return beginnings.reduce((words, beginning) => words.replace(beginning, ''), plain(line)).trimEnd();
}

function plain(line: string): string {
  const words = line.replaceAll(ansi, '').replace(/\r$/, '');
  // Of what was written over itself, as progress is, the last stays to be seen.
  return words.slice(words.lastIndexOf('\r') + 1);
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
  // Frames of Python, Node and Java, what they point at, and where Node says that it stood.
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
  // The cause stands above, elsewhere.
  /See (?:root cause|stack trace|above)|^Engine core initialization failed/i,
  // What is said of the end itself.
  /resource_tracker|leaked \w+ objects|destroy_process_group|UserWarning|DeprecationWarning|FutureWarning/,
  /^task: non-zero exit|^failed: task: non-zero exit/,
  /^(?:INFO:\s+)?(?:Shutting down|Waiting for application shutdown|Application shutdown complete|Finished server process)/,
];

/** Lines of access logs in which a probe was answered well: uvicorn's and llama.cpp's. Headgate asks all the time. */
export function isProbe(line: string): boolean {
  return probePattern.test(line);
}

const probePattern = /"GET \/(?:health|metrics) HTTP\/\d(?:\.\d)?" 200\b|\bGET \/(?:health|metrics) \S+ 200\b/;

/** Written by a logger as something that does not end a program. */
export function isCalm(line: string): boolean {
  return calmPattern.test(plain(line));
}

function saysSomething(line: string): boolean {
  const words = wordsOf(line);
  return !isProbe(words) && !silentPatterns.some((pattern) => pattern.test(words));
}

function isException(line: string): boolean {
  return exceptionPattern.test(wordsOf(line)) && !isCalm(line) && saysSomething(line);
}

function namesTrouble(line: string): boolean {
  return troublePattern.test(wordsOf(line)) && !isCalm(line) && saysSomething(line);
}

function lastOf(lines: readonly string[], isWanted: (line: string) => boolean): string | null {
  const at = lines.findLastIndex((line) => isWanted(line));
  return at === -1 ? null : withReasons(lines, at);
}

/** Pydantic says on the first line how many mistakes there are, and on the next ones which. */
function withReasons(lines: readonly string[], at: number): string {
  const line = wordsOf(lines[at] ?? '').trim();
  if (!/\d+ validation errors?\b/.test(line)) return line;
  const reasons = lines.slice(at + 1, at + 3).map((reason) => wordsOf(reason).trim());
  return [line, ...reasons.filter((reason) => !/^(?:For further information|$)/.test(reason))].join(' ');
}
