import { hostFolderProblem } from '#base/host-folder.ts';
import { splitWords } from '#base/shell-words.ts';
import { parseVolume } from './container-file-schema.ts';
import { type DockerRun, dockerRunWords, parseDockerRun } from './docker-run.ts';
import type { EngineDefinition } from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/** Reports settings of an engine's file that would give the engine access to its machine. */
export function machineProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver === 'external') return [];
  if (engine.driver === 'process') return commandProblem(engine.command);
  return [...volumeProblems(engine.volumes), ...argumentProblems(engine.args)];
}

/** Checks like `machineProblems`, for a stored definition from a version that accepted such settings. */
export function handsOverMachine({ driver }: EngineDefinition): boolean {
  if (driver.type === 'external') return false;
  if (driver.type === 'process') return commandProblem(driver.command).length > 0;
  const folders = driver.volumes.filter(({ source }) => source.startsWith('/'));
  const isOne = folders.some(({ source, readOnly }) => hostFolderProblem(source, readOnly) !== null);
  return isOne || argumentProblems(driver.args).length > 0;
}

function volumeProblems(volumes: readonly string[]): FileProblem[] {
  return volumes.flatMap((text, index) => {
    const message = volumeProblem(text);
    return message === null ? [] : [{ path: ['volumes', index], message }];
  });
}

/** Returns why a volume, `/path:/target:ro` or `name:/target`, gives access to the machine; null if it does not. */
export function volumeProblem(text: string): string | null {
  const volume = parseVolume(text);
  return volume?.source.startsWith('/') === true ? hostFolderProblem(volume.source, volume.readOnly) : null;
}

/** Options of docker run that grant rights. After the image they reach the engine, which does not know them. */
const rightsOptions =
  /^--(?:privileged|cap-add|security-opt|volumes-from|device-cgroup-rule|use-api-socket|(?:pid|ipc|uts|userns|cgroupns|net|network)=?host)$/;

function argumentProblems(args: readonly string[]): FileProblem[] {
  return args.flatMap((argument, index) => {
    const [name = '', value] = argument.split('=', 2);
    const joined = value === undefined && args[index + 1] === 'host' ? `${name}=host` : argument;
    if (!rightsOptions.test(name) && !rightsOptions.test(joined)) return [];
    const message = `${name} is an option of docker run and gives rights on the machine: remove it, because args go to the engine only`;
    return [{ path: ['args', index], message }];
  });
}

/** Checks the docker driver's rules for a container that a process starts. */
function commandProblem(command: readonly string[]): FileProblem[] {
  for (const [index, argument] of command.entries()) {
    // A shell's command line is one argument.
    const inner = /\s/.test(argument) ? dockerRunWords(splitWords(argument) ?? []) : null;
    const message = runProblem(inner);
    if (message !== null) return [{ path: ['command', index], message }];
  }
  const message = runProblem(dockerRunWords(command));
  return message === null ? [] : [{ path: ['command'], message }];
}

function runProblem(words: readonly string[] | null): string | null {
  const run = words === null ? null : parseDockerRun(words);
  if (run === null) return null;
  for (const [name, values] of run.options) {
    const wrong = values.find((value) => !isHarmless(name, value));
    if (wrong !== undefined) {
      const shownValue = wrong === 'true' || !shownOptions.has(name) ? '' : ` ${wrong}`;
      return `docker option --${name}${shownValue} gives rights on the machine or is unknown: remove it, or use driver: docker and its fields`;
    }
  }
  return mountProblem(run);
}

/**
 * Options whose values are fixed words of Docker or names on the machine. Values of other options may be secrets and
 * are not repeated.
 */
const shownOptions = new Set(
  'privileged network net ipc pid uts userns cgroupns runtime security-opt cap-add device group-add'.split(' '),
);

/** Options that give a container no access to the machine, whatever their value. */
const harmless = new Set(
  [
    'name rm init detach interactive tty publish publish-all attach sig-proxy quiet pull platform restart label',
    'label-file log-driver log-opt gpus env env-file shm-size memory memory-swap memory-reservation cpus cpu-shares',
    'cpu-period cpu-quota cpuset-cpus cpuset-mems pids-limit ulimit entrypoint user workdir hostname read-only tmpfs',
    'cap-drop stop-signal stop-timeout no-healthcheck health-cmd health-interval health-retries health-start-period',
    'health-start-interval health-timeout dns dns-option dns-search add-host network-alias expose volume mount replace',
  ].flatMap((names) => names.split(' ')),
);
const gpuDevice = /^(?:[a-z0-9.-]+\/gpu=[\w.:-]+|\/dev\/(?:nvidia[\w-]*|kfd|dri(?:\/[\w-]+)?)(?::.*)?)$/;

function isHarmless(name: string, value: string): boolean {
  if (harmless.has(name)) return true;
  switch (name) {
    case 'network':
    case 'net':
      return !/^(?:host|container:|ns:)/.test(value);
    case 'ipc':
      return ['private', 'shareable', 'none'].includes(value);
    case 'runtime':
      return ['nvidia', 'runc', 'crun'].includes(value);
    case 'security-opt':
      return /^no-new-privileges(?:[:=]true)?$/.test(value);
    case 'device':
      return gpuDevice.test(value);
    case 'group-add':
      return ['video', 'render'].includes(value);
    default:
      return false;
  }
}

function mountProblem({ options }: DockerRun): string | null {
  for (const volume of options.get('volume') ?? []) {
    const [source = '', , mode = ''] = volume.split(':');
    const problem = folderProblem(source, mode.split(',').includes('ro'));
    if (problem !== null) return problem;
  }
  for (const mount of options.get('mount') ?? []) {
    const parts = new Map(mount.split(',').map((part): [string, string] => readMember(part)));
    const isReadOnly = ['readonly', 'ro'].some((name) => ['', 'true', '1'].includes(parts.get(name) ?? 'false'));
    const problem = folderProblem(parts.get('source') ?? parts.get('src') ?? '', isReadOnly);
    if (problem !== null) return problem;
    if ([...parts.keys()].some((name) => name.startsWith('volume-')))
      return 'volume options are not allowed, because they can mount any path of the machine';
  }
  return null;
}

function readMember(text: string): [string, string] {
  const equals = text.indexOf('=');
  return equals === -1 ? [text, ''] : [text.slice(0, equals), text.slice(equals + 1)];
}

function folderProblem(source: string, isReadOnly: boolean): string | null {
  return source.startsWith('/') ? hostFolderProblem(source, isReadOnly) : null;
}
