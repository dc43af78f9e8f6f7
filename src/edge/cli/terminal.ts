import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { Writable } from 'node:stream';
import { styleText } from 'node:util';
import { FailedError } from './errors.ts';
import { wrap } from './table.ts';

type Style = Parameters<typeof styleText>[0];

/** Where people type and read. Colours are for terminals alone, and for none under NO_COLOR. */
export interface Terminal {
  /** Whether somebody can be asked. */
  readonly isInteractive: boolean;
  /** Whether standard output is read by somebody as it comes. */
  readonly isWatched: boolean;
  /** The lines of a sentence for standard error, broken between words where somebody reads them. */
  sentence(text: string): string;
  /** How wide standard output is, in columns; null where nobody reads it as it comes. */
  readonly columns: number | null;
  /** The same of standard error. */
  readonly errorColumns: number | null;
  /** Colours for standard output. */
  paint(style: Style, text: string): string;
  /** Colours for standard error. */
  paintError(style: Style, text: string): string;
  /** A line that is typed. @throws FailedError where it is broken off by Ctrl-C or Ctrl-D */
  ask(prompt: string): Promise<string>;
  /** The same without showing what is typed. */
  askSecret(prompt: string): Promise<string>;
  /** All of standard input. */
  readInput(): Promise<string>;
  /** Shows that something takes its time, on a terminal; nothing elsewhere. */
  progress(words: string): Progress;
}

/** One line on standard error that changes. */
export interface Progress {
  say(words: string): void;
  /** Removes it; may be called again. */
  end(): void;
}

export function createTerminal(): Terminal {
  const { stdin, stdout, stderr } = process;
  return {
    isInteractive: stdin.isTTY && stderr.isTTY,
    isWatched: stdout.isTTY,
    sentence: (words) =>
      stderr.isTTY && stderr.columns > 0
        ? words
            .split('\n')
            .flatMap((line) => wrap(line, stderr.columns))
            .join('\n')
        : words,
    columns: widthOf(stdout),
    errorColumns: widthOf(stderr),
    paint: (style, words) => styleText(style, words, { stream: stdout }),
    paintError: (style, words) => styleText(style, words, { stream: stderr }),
    ask: (prompt) => askLine(prompt, stderr),
    async askSecret(prompt) {
      stderr.write(prompt);
      // What the line editor would show goes nowhere.
      const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
      try {
        return await askLine('', nowhere);
      } finally {
        stderr.write('\n');
      }
    },
    readInput: () => text(stdin),
    progress: (words) => (stderr.isTTY ? showProgress(words) : { say: () => {}, end: () => {} }),
  };
}

const widthOf = ({ isTTY, columns }: NodeJS.WriteStream): number | null => (isTTY && columns > 0 ? columns : null);

function askLine(prompt: string, output: NodeJS.WritableStream): Promise<string> {
  return new Promise((resolve, reject) => {
    const lines = createInterface({ input: process.stdin, output, terminal: true, historySize: 0 });
    let answer: string | null = null;
    let isInterrupted = false;
    lines.on('SIGINT', () => {
      isInterrupted = true;
      output.write('\n');
      lines.close();
    });
    lines.on('close', () => {
      if (answer === null) reject(new FailedError('broken off', { isInterrupted }));
      else resolve(answer);
    });
    lines.question(prompt, (line) => {
      answer = line;
      lines.close();
    });
  });
}

const beatMs = 120;
const shownAfterMs = 400;
const pictures = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/** Quick work shows nothing. */
function showProgress(first: string): Progress {
  const startedMs = performance.now();
  let words = first;
  let beats = 0;
  const draw = (): void => {
    const seconds = Math.floor((performance.now() - startedMs) / 1000);
    const time = seconds < 2 ? '' : ` ${seconds} s`;
    const width = Math.max(20, process.stderr.columns - 1);
    const line = `${pictures[beats % pictures.length] ?? ''} ${words}${time}`.slice(0, width);
    beats += 1;
    process.stderr.write(`\r\u001b[2K${styleText('dim', line, { stream: process.stderr })}`);
  };
  let timer = setTimeout(() => {
    draw();
    timer = setInterval(draw, beatMs);
    timer.unref();
  }, shownAfterMs);
  timer.unref();
  return {
    say(next) {
      words = next;
    },
    end() {
      clearTimeout(timer);
      if (beats > 0) process.stderr.write('\r\u001b[2K');
      beats = 0;
    },
  };
}
