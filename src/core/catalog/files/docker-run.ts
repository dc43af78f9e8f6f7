import { basename } from 'node:path';

/** A parsed command line of `docker run`: https://docs.docker.com/reference/cli/docker/container/run/ */

export interface DockerRun {
  readonly image: string;
  readonly args: readonly string[];
  /** Values by long option name without dashes; an option given twice has two values. A switch has the value `true`. */
  readonly options: ReadonlyMap<string, readonly string[]>;
}

const shortNames: Readonly<Record<string, string>> = {
  e: 'env',
  v: 'volume',
  p: 'publish',
  m: 'memory',
  u: 'user',
  w: 'workdir',
  l: 'label',
  h: 'hostname',
  a: 'attach',
  c: 'cpu-shares',
  d: 'detach',
  i: 'interactive',
  t: 'tty',
  P: 'publish-all',
  q: 'quiet',
};

const switches = new Set(
  'detach interactive tty publish-all quiet rm init privileged read-only no-healthcheck oom-kill-disable replace disable-content-trust use-api-socket sig-proxy'.split(
    ' ',
  ),
);

/** @param words after `docker run`; the result is null if they name no image */
export function parseDockerRun(words: readonly string[]): DockerRun | null {
  const options = new Map<string, string[]>();
  const add = (name: string, value: string): void => void options.set(name, [...(options.get(name) ?? []), value]);
  let index = 0;
  while (index < words.length) {
    const word = words[index] ?? '';
    if (!word.startsWith('-')) {
      return { image: word, args: words.slice(index + 1), options };
    }
    const { names, value } = readOption(word);
    for (const name of names.slice(0, -1)) add(name, 'true');
    const last = names[names.length - 1] ?? '';
    if (value !== null || switches.has(last)) {
      add(last, value ?? 'true');
      index += 1;
    } else {
      add(last, words[index + 1] ?? '');
      index += 2;
    }
  }
  return null;
}

/** Parses `--env=A`, `-e`, `-it`, `-p8000:8000`. */
function readOption(word: string): { names: string[]; value: string | null } {
  if (word.startsWith('--')) {
    const equals = word.indexOf('=');
    return equals === -1
      ? { names: [word.slice(2)], value: null }
      : { names: [word.slice(2, equals)], value: word.slice(equals + 1) };
  }
  const names: string[] = [];
  for (let index = 1; index < word.length; index += 1) {
    const name = shortNames[word.charAt(index)] ?? word.charAt(index);
    names.push(name);
    if (switches.has(name)) continue;
    const rest = word.slice(index + 1).replace(/^=/, '');
    return { names, value: rest === '' ? null : rest };
  }
  return { names, value: null };
}

const programs = ['docker', 'podman', 'nerdctl'];
/** Options of the program itself that take no value. */
const programSwitches = new Set(['-D', '--debug', '--tls', '--tlsverify', '--remote', '-r']);

/**
 * Returns the words after `docker run`, also if another program such as `env` starts it.
 * @param words of a command
 * @returns null if the command does not contain it
 */
export function dockerRunWords(words: readonly string[]): readonly string[] | null {
  for (const [index, word] of words.entries()) {
    const found = programs.includes(basename(word)) ? runAt(words, index) : null;
    if (found !== null) return found;
  }
  return null;
}

/** Returns the words after `docker run` if only `sudo` comes before; otherwise null. */
export function onlyDockerRunWords(words: readonly string[]): readonly string[] | null {
  const start = words[0] === 'sudo' ? words.findIndex((word, index) => index > 0 && !word.startsWith('-')) : 0;
  return programs.includes(basename(words[start] ?? '')) ? runAt(words, start) : null;
}

/** @param index of the program */
function runAt(words: readonly string[], index: number): readonly string[] | null {
  let next = index + 1;
  for (let word = words[next]; word?.startsWith('-') === true; word = words[next]) {
    next += word.includes('=') || programSwitches.has(word) ? 1 : 2;
  }
  if (words[next] === 'container') next += 1;
  return words[next] === 'run' || words[next] === 'create' ? words.slice(next + 1) : null;
}
