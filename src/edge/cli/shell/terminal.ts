import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { Writable } from 'node:stream';
import { styleText } from 'node:util';
import { FailedError } from './errors.ts';
import { wrap } from './table.ts';

type Style = Parameters<typeof styleText>[0];

/** Standard input, output and error. Colors are used on terminals only, and never under NO_COLOR. */
export interface Terminal {
  /** True if the user can be asked. */
  readonly isInteractive: boolean;
  /** True if standard output is a terminal. */
  readonly isWatched: boolean;
  /** Wraps a sentence for standard error between words, if standard error is a terminal. */
  sentence(text: string): string;
  /** Width of standard output in columns; null if standard output is not a terminal. */
  readonly columns: number | null;
  /** Width of standard error in columns; null if standard error is not a terminal. */
  readonly errorColumns: number | null;
  /** Colors text for standard output. */
  paint(style: Style, text: string): string;
  /** Colors text for standard error. */
  paintError(style: Style, text: string): string;
  /** Asks for a line. @throws FailedError if the user presses Ctrl-C or Ctrl-D */
  ask(prompt: string): Promise<string>;
  /** Asks for a line without showing what is typed. */
  askSecret(prompt: string): Promise<string>;
  /** Reads all of standard input. */
  readInput(): Promise<string>;
  /** Shows progress of slow work, only on a terminal. */
  progress(words: string): Progress;
}

/** One line on standard error that changes. */
export interface Progress {
  say(words: string): void;
  /** Removes the line; may be called again. */
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
      // Discards the line editor's output.
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
      if (answer === null) reject(new FailedError('interrupted', { isInterrupted }));
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

/** Shows progress after a short delay, so that quick work shows nothing. */
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
