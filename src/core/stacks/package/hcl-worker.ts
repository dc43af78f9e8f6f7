import { parentPort } from 'node:worker_threads';
import { parse } from '@cdktn/hcl2json';

/** Worker thread that parses the Terraform files of packages, one after another; see parse-hcl.ts. */

export interface HclFile {
  readonly path: string;
  readonly text: string;
}

/** Content of a file, or the reason why the file cannot be read. */
export interface HclParsed {
  readonly path: string;
  readonly content: unknown;
  readonly problem: string | null;
}

async function parseFile({ path, text }: HclFile): Promise<HclParsed> {
  try {
    const content: unknown = path.endsWith('.json') ? JSON.parse(text) : await parse('file', text);
    return { path, content, problem: null };
  } catch (error) {
    return { path, content: null, problem: error instanceof Error ? problemText(error) : 'cannot be parsed' };
  }
}

/** Converts the parser's error, `parse config: [file:3,1-2: Unclosed block; There is no …]` and a stack trace. */
function problemText({ name, message }: Error): string {
  if (name === 'RangeError') return 'is nested too deeply';
  const [first = ''] = message.split('\n', 1);
  const inner = /^parse config: \[(.*)\]$/.exec(first)?.[1] ?? first;
  return `cannot be parsed: ${inner.replaceAll(/\bfile:(\d+),(\d+)(-[\d,]+)?: /g, 'line $1, column $2: ')}`;
}

async function answer(files: readonly HclFile[]): Promise<void> {
  const parsed: HclParsed[] = [];
  for (const file of files) parsed.push(await parseFile(file));
  parentPort?.postMessage(parsed);
}

// The first parse loads the parser.
await parse('file', '');
parentPort?.on('message', (files: readonly HclFile[]) => void answer(files));
parentPort?.postMessage('ready');
