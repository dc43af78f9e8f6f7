import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import fc from 'fast-check';
import { engineFile, hostsFile, litellmFile, llamaSwapFile } from './engine-file-fields.ts';
import { knownEngineFiles } from './engine-files-known.ts';
import { BrokenPromise, type Target } from './target.ts';
import { yamlFiles } from './yaml-texts.ts';

/** Files of a folder of engines, or one configuration that is imported. */
export interface EngineFilesCase {
  readonly what: 'engines' | 'llama-swap' | 'litellm';
  readonly files: readonly { readonly name: string; readonly bytes: Uint8Array }[];
}

const engines: fc.Arbitrary<EngineFilesCase> = fc
  .record({
    engines: fc.array(yamlFiles(engineFile), { minLength: 1, maxLength: 2 }),
    hosts: yamlFiles(hostsFile),
    withHosts: fc.nat(4),
  })
  .map((made) => ({
    what: 'engines',
    files: [
      ...made.engines.map((bytes, index) => ({ name: `${'ab'[index]}.yaml`, bytes })),
      ...(made.withHosts === 4 ? [{ name: 'hosts.yaml', bytes: made.hosts }] : []),
    ],
  }));

function imported(what: 'llama-swap' | 'litellm', file: fc.Arbitrary<unknown>): fc.Arbitrary<EngineFilesCase> {
  return yamlFiles(file).map((bytes) => ({ what, files: [{ name: 'config.yaml', bytes }] }));
}

const cases = fc.oneof(
  { weight: 4, arbitrary: engines },
  { weight: 1, arbitrary: imported('llama-swap', llamaSwapFile) },
  { weight: 1, arbitrary: imported('litellm', litellmFile) },
);

/** Far from what any file takes; what takes longer hangs. */
const hangsMs = 30_000;

interface Reader {
  read(given: EngineFilesCase): Promise<string | null>;
  close(): Promise<void>;
}

/** A process with the memory that a small machine has for it, replaced by another one when it has ended. */
function startReader(): Reader {
  let child: ChildProcess | null = null;
  const start = (): ChildProcess =>
    fork(new URL('engine-files-child.ts', import.meta.url), {
      execArgv: ['--max-old-space-size=256'],
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'] },
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
  const end = async (): Promise<void> => {
    const ending = child;
    child = null;
    if (ending === null || ending.exitCode !== null || ending.signalCode !== null) return;
    ending.kill('SIGKILL');
    await once(ending, 'exit');
  };
  return {
    async read(given) {
      child ??= start();
      const running = child;
      const answered = Promise.withResolvers<string | null>();
      const ended = Promise.withResolvers<string>();
      const hangs = setTimeout(() => ended.resolve(`it was not read within ${hangsMs / 1000} seconds`), hangsMs);
      const onExit = (code: number | null, signal: string | null): void =>
        ended.resolve(`the process that read it ended with ${signal ?? code}`);
      running.once('message', answered.resolve).once('exit', onExit);
      running.send(given);
      const wrong = await Promise.race([answered.promise, ended.promise.then((why) => end().then(() => why))]);
      clearTimeout(hangs);
      running.off('message', answered.resolve).off('exit', onExit);
      return wrong;
    },
    close: end,
  };
}

function textOf(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString('utf8');
  const isText = Buffer.from(text).equals(bytes);
  return isText
    ? `Buffer.from(${JSON.stringify(text)})`
    : `Buffer.from('${Buffer.from(bytes).toString('base64')}', 'base64')`;
}

/** Every text is read: as a definition that keeps to the rules, or as problems that say file, line and what to do. */
export const engineFilesTarget: Target<EngineFilesCase> = {
  name: 'engine-files',
  roundCases: 400,
  open() {
    const reader = startReader();
    return Promise.resolve({
      cases,
      known: knownEngineFiles,
      async try(given) {
        const wrong = await reader.read(given);
        if (wrong !== null) throw new BrokenPromise(wrong);
      },
      settle: () => Promise.resolve(),
      show: ({ what, files }) => [what, ...files.map(({ name, bytes }) => `${name}: ${textOf(bytes)}`)].join('\n'),
      close: () => reader.close(),
    });
  },
};
