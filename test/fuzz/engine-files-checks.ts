import { posix } from 'node:path';
import type {
  ContainerDriverSettings,
  EngineDefinition,
  EngineFileProblem,
  ProcessDriverSettings,
} from '#core/catalog/catalog.ts';

/** Rules for engine files' definitions and problems, whatever the files say. In its own words, not the loader's. */

const closed = ['/boot', '/dev', '/proc', '/run', '/sys', '/var/run', '/var/lib/docker', '/var/lib/containerd'];
const opened = ['/dev/shm', '/run/media'];
const system = ['/bin', '/etc', '/lib', '/lib64', '/sbin', '/usr'];
const homes = ['/', '/home', '/root'];
const lies = (path: string, folder: string): boolean =>
  path === folder || path.startsWith(folder === '/' ? '/' : `${folder}/`);

function unsafeFolder(source: string, readOnly: boolean): boolean {
  const path = posix.normalize(source).replace(/(?<=.)\/+$/, '');
  if (homes.includes(path) || system.includes(path) || path.endsWith('.sock')) return true;
  const isClosed = closed.some((folder) => lies(path, folder) || lies(folder, path));
  if (isClosed && !opened.some((folder) => lies(path, folder))) return true;
  return !readOnly && system.some((folder) => lies(path, folder));
}

const rights = /^--(?:privileged|cap-add|security-opt|volumes-from|device-cgroup-rule|use-api-socket)(?:=|$)/;

function isPlainUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return false;
  return [url.username, url.password, url.search, url.hash].every((part) => part === '');
}

/** Why a definition must not have been accepted; null where it is safe. */
export function unsafeDefinition(engine: EngineDefinition): string | null {
  const { driver } = engine;
  if (!/^[A-Za-z0-9_][A-Za-z0-9._:/-]{0,127}$/.test(engine.id)) return `its id is ${JSON.stringify(engine.id)}`;
  const wrongNumber = numbersOf(engine).find((value) => !Number.isFinite(value) || value < 0);
  if (wrongNumber !== undefined) return `it holds the number ${wrongNumber}`;
  if (driver.type === 'external') {
    const wrong = driver.deployments.map(({ url }) => url).find((text) => !isPlainUrl(text));
    if (driver.deployments.length === 0) return 'it has no address';
    return wrong === undefined ? null : `its url is ${JSON.stringify(wrong)}`;
  }
  if (driver.replicas.min > driver.replicas.max) return 'it has more replicas at least than at most';
  const wrong = unsafeVariable(driver.env) ?? unsafeWords(driver);
  if (wrong !== null) return wrong;
  return driver.type === 'process' ? unsafeCommand(driver.command) : unsafeContainer(driver);
}

function unsafeVariable(env: Readonly<Record<string, string>>): string | null {
  const secret = Object.entries(env).find(([name, value]) => /TOKEN|SECRET/.test(name) && /^\w+$/.test(value));
  if (secret !== undefined) return `it holds the value of ${secret[0]}`;
  const wrong = Object.keys(env).find((name) => !/^[A-Za-z_]\w*$/.test(name));
  return wrong === undefined ? null : `it sets the variable ${JSON.stringify(wrong)}`;
}

/** Programs cannot be given a NUL. */
function unsafeWords(driver: ProcessDriverSettings | ContainerDriverSettings): string | null {
  const own = driver.type === 'process' ? driver.command : [...driver.args, ...(driver.entrypoint ?? []), driver.image];
  const wrong = [...own, ...Object.values(driver.env)].find((text) => text.includes('\0'));
  return wrong === undefined ? null : `it has a NUL in ${JSON.stringify(wrong)}`;
}

function unsafeContainer({ volumes, args }: ContainerDriverSettings): string | null {
  const volume = volumes.find(({ source, readOnly }) => source.startsWith('/') && unsafeFolder(source, readOnly));
  if (volume !== undefined) return `it mounts ${volume.source}`;
  const target = volumes.find((one) => !one.target.startsWith('/') || one.target.includes('\0'));
  if (target !== undefined) return `it mounts at ${JSON.stringify(target.target)}`;
  const right = args.find((word) => rights.test(word));
  return right === undefined ? null : `it has the argument ${right}`;
}

function unsafeCommand(command: readonly string[]): string | null {
  if ((command[0] ?? '').trim() === '') return 'it has no program';
  const words = command.flatMap((word) => word.split(/\s+/));
  const start = words.findIndex((word) => posix.basename(word) === 'docker');
  const [verb, ...rest] = start === -1 ? [] : words.slice(start + 1);
  if (verb !== 'run') return null;
  const image = rest.findIndex((word) => /^[a-z].*:/.test(word));
  const options = image === -1 ? rest : rest.slice(0, image);
  const wrong = options.find((word) => rights.test(word) || /docker\.sock|^-v\/:/.test(word));
  return wrong === undefined ? null : `it runs docker with ${wrong}`;
}

function numbersOf(value: unknown): number[] {
  if (typeof value === 'number') return [value];
  if (typeof value === 'bigint') return [Number(value)];
  if (typeof value !== 'object' || value === null) return [];
  // The engine judges the body of a canary.
  return Object.entries(value).flatMap(([key, member]) => (key === 'body' ? [] : numbersOf(member)));
}

/** Words of a library or of JavaScript, which say nothing to an operator. */
const foreignWords =
  /undefined|\[object|call stack|regular expression|Invalid input|Too big|Too small|Unrecognized key|parseAllDocuments|mapAsMap|TypeError|RangeError|is not a function|node_modules|\bat \S+:\d+:\d+/;

/** The defect of a problem's message; null where an operator can act on it. */
export function uselessProblem(problem: EngineFileProblem, lines: (file: string) => number | null): string | null {
  const { file, line, field, message } = problem;
  const said = JSON.stringify(problem);
  const count = lines(file);
  if (count === null) return `it names a file that there is not: ${said}`;
  if (message.trim() === '') return `it says nothing: ${said}`;
  if (foreignWords.test(message)) return `it says what is no operator's: ${said}`;
  if (message.length > 2000) return `it says ${message.length} characters of one problem`;
  if (line !== null && (!Number.isInteger(line) || line < 1 || line > count)) return `it names no line: ${said}`;
  if (line === null && field !== null) return `it names a field and no line: ${said}`;
  return null;
}
