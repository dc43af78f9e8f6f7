import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { basename, join } from 'node:path';
import {
  checkEngineText,
  decodeDefinition,
  encodeDefinition,
  type EngineFileProblem,
  loadDockerHosts,
  loadEngineFiles,
} from '#core/catalog/catalog.ts';
import { parseClientConfig } from '#base/config/read-config.ts';
import { runCli } from '#edge/cli/cli.ts';
import { unsafeDefinition, uselessProblem } from './engine-files-checks.ts';
import type { EngineFilesCase } from './engine-files.ts';
import { secrets } from './engine-file-fields.ts';

/**
 * Reads files as the gateway and the command do, in a process of its own: what hangs or eats memory ends with it.
 * It answers each case with what did not hold, or null.
 */

const environment = { ...secrets, PATH: '/usr/bin', HOME: '/root' };
const warnings: string[] = [];
process.on('warning', ({ message }) => warnings.push(message));

async function tryCase({ what, files }: EngineFilesCase): Promise<string | null> {
  const folder = mkdtempSync(join(tmpdir(), 'hg-fuzz-'));
  try {
    const engines = join(folder, 'engines');
    mkdirSync(engines);
    for (const { name, bytes } of files) writeFileSync(join(engines, name), bytes);
    const wrong = what === 'engines' ? checkFolder(engines, files) : await checkImport(what, engines);
    // A warning is emitted in a later turn.
    await new Promise((resolve) => setImmediate(resolve));
    const [warning] = warnings.splice(0);
    return wrong ?? (warning === undefined ? null : `the process warned: ${warning}`);
  } catch (error) {
    return `it threw ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function checkFolder(folder: string, files: EngineFilesCase['files']): string | null {
  const lines = (file: string): number | null => {
    const bytes = files.find(({ name }) => name === basename(file))?.bytes;
    return bytes === undefined
      ? null
      : Buffer.from(bytes)
          .toString('utf8')
          .split(/\r\n|\n/).length;
  };
  const loaded = loadEngineFiles(folder, { env: environment });
  const hosts = loadDockerHosts(folder, { defaultDocker: 'unix:///var/run/docker.sock' });
  const problems = [...(loaded.ok ? [] : loaded.problems), ...(hosts.ok ? [] : hosts.problems)];
  const wrong = problemsWrong(problems, lines);
  if (wrong !== null) return wrong;
  if (!loaded.ok) return loaded.problems.length === 0 ? 'files were refused without a problem' : null;
  for (const engine of loaded.engines) {
    const unsafe = unsafeDefinition(engine);
    if (unsafe !== null) return `${engine.file} was accepted, but ${unsafe}`;
    const text = encodeDefinition(engine);
    const decoded = decodeDefinition(text);
    if (decoded === null) return `${engine.file} was accepted, stored, and then not read: ${text}`;
    if (!isDeepStrictEqual(decoded, engine) || encodeDefinition(decoded) !== text) {
      return `${engine.file} was accepted and stored, and came back as ${encodeDefinition(decoded)}, not ${text}`;
    }
    if (secretIn(text) !== null) return `${engine.file} was accepted with a secret in it`;
    const again = checkEngineText(readFileSync(join(folder, basename(engine.file)), 'utf8'), engine.file);
    if (again.length > 0) return `${engine.file} was accepted, and checked alone refused: ${JSON.stringify(again)}`;
  }
  return null;
}

function problemsWrong(problems: readonly EngineFileProblem[], lines: (file: string) => number | null): string | null {
  if (problems.length > 10_000) return `${problems.length} problems were told`;
  for (const problem of problems) {
    const useless = uselessProblem(problem, lines);
    if (useless !== null) return `a problem cannot be used: ${useless}`;
  }
  return secretIn(JSON.stringify(problems)) === null ? null : 'a problem tells a secret';
}

const secretIn = (text: string): string | null =>
  Object.values(secrets).find((secret) => text.includes(secret)) ?? null;

async function checkImport(program: 'llama-swap' | 'litellm', folder: string): Promise<string | null> {
  const out = join(folder, 'out');
  let [said, complained] = ['', ''];
  const code = await runCli({
    args: ['import', program, join(folder, 'config.yaml'), '--out', out, '--json'],
    readConfig: () => parseClientConfig({ HEADGATE_URL: 'http://127.0.0.1:9' }),
    out: (text) => void (said += text),
    err: (text) => void (complained += text),
  });
  const written = readdirSync(folder).includes('out') ? readdirSync(out) : [];
  const everything = [said, complained, ...written.map((name) => readFileSync(join(out, name), 'utf8'))].join('\n');
  if (secretIn(everything) !== null) return 'the import wrote a secret';
  if (/undefined|\[object|call stack|TypeError|RangeError|parseAllDocuments|\n\s+at /.test(said + complained)) {
    return `the import said ${JSON.stringify((said + complained).slice(0, 500))}`;
  }
  if (code !== 0) return code === 1 && complained !== '' ? null : `the import ended with ${code} and said nothing`;
  if (written.length === 0) return 'the import was done and wrote nothing';
  const loaded = loadEngineFiles(out);
  if (!loaded.ok) return `the import was done, and its files are refused: ${JSON.stringify(loaded.problems)}`;
  const unsafe = loaded.engines.map(unsafeDefinition).find((wrong) => wrong !== null);
  return unsafe === undefined ? null : `the import wrote an engine of which ${unsafe}`;
}

process.on('message', (given: EngineFilesCase) => {
  void tryCase(given).then((wrong) => process.send?.(wrong));
});
