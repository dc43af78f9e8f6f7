import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterEach } from 'vitest';
import { repository } from '#test/cli/run-cli.ts';

const run = promisify(execFile);

/** A screen that somebody types on, with a shell in it. */
export interface Typed {
  type(text: string): Promise<void>;
  /** A key by its name in tmux, such as `C-c`. */
  key(name: string): Promise<void>;
  /** Waits until the screen holds a text. @returns the screen */
  shows(text: string | RegExp): Promise<string>;
  /** The screen with the sequences of its colours. */
  colours(): Promise<string>;
}

export interface Terminals {
  /** A shell in which `headgate` is this repository's. */
  open(env?: Readonly<Record<string, string>>): Promise<Typed>;
}

const lookMs = 50;

/** Real terminals, by a tmux of each test's own; their programs end with the test. */
export function useTerminals(): () => Terminals {
  const undo: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const step of undo.splice(0)) await step();
  });
  return () => ({
    async open(env = {}) {
      const folder = mkdtempSync(join(tmpdir(), 'hg-tty-'));
      const tmux = (...args: string[]) => run('tmux', ['-S', join(folder, 'socket'), '-f', '/dev/null', ...args]);
      undo.push(async () => {
        await tmux('kill-server').catch(() => null);
        // A program that was just ended may still write to its home.
        rmSync(folder, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 });
      });
      symlinkSync(join(repository, 'src/programs/headgate.js'), join(folder, 'headgate'));
      symlinkSync(process.execPath, join(folder, 'node'));
      const all = { HOME: folder, PATH: `${folder}:${process.env['PATH'] ?? ''}`, PS1: '$ ', ...env };
      const words = Object.entries(all).map(([name, value]) => `${name}=${value}`);
      await tmux(
        'new-session',
        '-d',
        '-x',
        '200',
        '-y',
        '50',
        'env',
        '-u',
        'HEADGATE_URL',
        '-u',
        'HEADGATE_API_KEY',
        ...words,
        'bash',
        '--norc',
      );
      const screen = async (): Promise<string> => (await tmux('capture-pane', '-p', '-J')).stdout;
      const typed: Typed = {
        async type(text) {
          for (const [index, line] of text.split('\n').entries()) {
            if (index > 0) await tmux('send-keys', 'Enter');
            if (line !== '') await tmux('send-keys', '-l', line);
          }
        },
        key: async (name) => void (await tmux('send-keys', name)),
        async shows(text) {
          for (;;) {
            const seen = await screen();
            if (typeof text === 'string' ? seen.includes(text) : text.test(seen)) return seen;
            await sleep(lookMs);
          }
        },
        colours: async () => (await tmux('capture-pane', '-p', '-J', '-e')).stdout,
      };
      await typed.shows('$ ');
      return typed;
    },
  });
}
