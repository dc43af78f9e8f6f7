import { setTimeout as sleep } from 'node:timers/promises';
import { ProcessTree } from './process-tree.ts';

/**
 * `node guardian-process.ts PID RUN`: remembers what the process and its descendants start. When its standard input
 * ends without the word "done", that process has ended in the middle of something, and what it left is ended as well.
 */
const [pid = '', run = ''] = process.argv.slice(2);
const tree = new ProcessTree(Number(pid), run);
const pollMs = 1000;

let said = '';
let isOver = false;
process.stdin.setEncoding('utf8').on('data', (text: string) => (said += text));
process.stdin.on('close', () => (isOver = true));
// The process that started it may have ended, and with it the reader of its output.
process.stdout.on('error', () => undefined);

tree.look();
process.stdout.write('ready\n');
while (!isOver) {
  await sleep(pollMs);
  tree.look();
}
if (!said.includes('done')) await tree.endAll();
process.exit(0);
