import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';

/**
 * The blocks of shell lines under a heading of a chapter, word for word.
 * @param path of the chapter's file
 * @param heading of the chapter itself, or of a section
 */
export function chapterLines(path: string, heading: string): string[] {
  const [, section = ''] = readFileSync(path, 'utf8').split(new RegExp(`^##? ${heading}\n`, 'm'));
  const blocks = [...(section.split('\n## ')[0] ?? '').matchAll(/```sh\n([\s\S]*?)```/g)];
  if (blocks.length === 0) throw new Error(`${path} has no lines under "${heading}".`);
  return blocks.map(([, lines = '']) => lines);
}

/** The chapter on changing secrets. */
export const rotateChapter = new URL('../../compose/rotate.md', import.meta.url).pathname;

const run = promisify(execFile);

/**
 * Runs lines as they are pasted into a shell.
 * @param cwd the folder of the clone
 * @param typed what is typed where a line reads the terminal
 */
export async function paste(lines: string, cwd: string, typed = ''): Promise<string> {
  const running = run('bash', ['-euo', 'pipefail', '-c', lines], { cwd });
  running.child.stdin?.end(typed);
  return (await running).stdout;
}
