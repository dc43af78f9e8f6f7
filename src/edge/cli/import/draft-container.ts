import { basename } from 'node:path';
import { type DockerRun, volumeProblem } from '#core/catalog/catalog.ts';
import { readVariable } from './draft-variables.ts';
import type { Notes } from './draft.ts';
import { hasOption, modelFirst, optionValue, withoutGiven } from './program-words.ts';

/** Turns `docker run` into fields of an engine file. */

export interface ContainerOptions {
  readonly model: string;
  readonly notes: Notes;
  /** Variables from the configuration, in addition to those in the command. */
  readonly env: readonly string[];
}

/** The version that replaces a moving tag; these examples and tests were made with it. */
const vllmVersion = 'v0.32.0';

/** Options without effect here, since Headgate names, connects, restarts and removes containers itself. */
const doneItself = new Set(
  'name rm init detach interactive tty network net ipc restart pull log-driver log-opt label'.split(' '),
);
const read = new Set(
  'gpus env env-file volume shm-size memory ulimit cpuset-cpus cpuset-mems entrypoint publish runtime'.split(' '),
);

/** @returns null if the image names no fixed version */
export function draftContainer(run: DockerRun, options: ContainerOptions): Record<string, unknown> | null {
  const image = pinnedImage(run.image, options);
  if (image === null) return null;
  const isVllm = imageName(run.image).startsWith('vllm');
  const words = isVllm ? vllmWords(run.args, options) : run.args.map((word) => word.replaceAll('${PORT}', '8080'));
  noteOptions(run, options);
  const entrypoint = run.options.get('entrypoint')?.[0];
  const count = gpuCount(run, options);
  return {
    driver: 'docker',
    image,
    args: words,
    ...(entrypoint !== undefined && entrypoint !== '' && { entrypoint: [entrypoint] }),
    ...environmentOf(run, options),
    ...(count > 0 && { gpus: { count } }),
    ...sizeOf('shm_size', run.options.get('shm-size')?.[0], options),
    ...sizeOf('memory_limit', run.options.get('memory')?.[0], options),
    ...ulimitsOf(run, options),
    ...cpusetOf(run),
    ...volumesOf(run, options),
    port: portOf(run),
  };
}

/** Reads `--ulimit name=soft[:hard]`: the hard limit applies, because engine files have one number. */
function ulimitsOf({ options }: DockerRun, { model, notes }: ContainerOptions): object {
  const ulimits: Record<string, number> = {};
  for (const text of options.get('ulimit') ?? []) {
    const [, name = '', limit = ''] = /^(memlock|stack)=(?:-?\d+:)?(-1|\d+)$/.exec(text) ?? [];
    if (name !== '') ulimits[name] = Number(limit);
    else notes.add(model, `docker's option --ulimit ${text}: not imported; engine files have memlock and stack`);
  }
  return Object.keys(ulimits).length === 0 ? {} : { ulimits };
}

function cpusetOf({ options }: DockerRun): object {
  const [cpus, mems] = ['cpuset-cpus', 'cpuset-mems'].map((name) => options.get(name)?.[0]);
  return { ...(cpus !== undefined && { cpuset_cpus: cpus }), ...(mems !== undefined && { cpuset_mems: mems }) };
}

function noteOptions({ options }: DockerRun, { model, notes }: ContainerOptions): void {
  const names = [...options.keys()];
  const own = names.filter((name) => doneItself.has(name)).map((name) => `--${name}`);
  if (own.length > 0) notes.add(model, `docker's ${own.join(', ')}: not imported; Headgate sets this itself`);
  for (const name of names) {
    if (!doneItself.has(name) && !read.has(name))
      notes.add(model, `docker's option --${name}: not imported; an engine file has no such field`);
  }
  const runtimes = (options.get('runtime') ?? []).filter((name) => name !== 'nvidia' && name !== 'runc');
  if (runtimes.length > 0)
    notes.add(
      model,
      `docker's option --runtime ${runtimes.join(', ')}: not imported; an engine file has no such field`,
    );
  const single = ['gpus', 'shm-size', 'memory', 'cpuset-cpus', 'cpuset-mems', 'entrypoint', 'publish'] as const;
  for (const name of single.filter((option) => (options.get(option)?.length ?? 0) > 1)) {
    notes.add(model, `docker's option --${name} is given more than once: only the first was imported`);
  }
}

const imageName = (image: string): string => basename(image).split(/[:@]/, 1)[0] ?? '';

function pinnedImage(image: string, { model, notes }: ContainerOptions): string | null {
  const tag = /:([^/:@]+)$/.exec(image)?.[1] ?? null;
  if (image.includes('@sha256:') || (tag !== null && !/^(latest|nightly)(-|$)/.test(tag))) return image;
  const repository = tag === null ? image : image.slice(0, -tag.length - 1);
  if (!imageName(image).startsWith('vllm')) {
    notes.add(model, `not imported: the image ${image} has no fixed version; name one, and import again`);
    return null;
  }
  notes.add(model, `the image ${image} has no fixed version: the engine file uses ${vllmVersion} instead`);
  return `${repository}:${vllmVersion}`;
}

function vllmWords(args: readonly string[], { model, notes }: ContainerOptions): string[] {
  const start = args[0] === 'vllm' ? 2 : args[0] === 'serve' ? 1 : 0;
  return modelFirst(withoutGiven(args.slice(start), model, notes));
}

const parallelOptions = [
  ['--tensor-parallel-size', '-tp'],
  ['--pipeline-parallel-size', '-pp'],
  ['--data-parallel-size', '-dp'],
] as const;

/** Returns the number of devices: by vLLM's options, otherwise the number that the container gets. */
function gpuCount(run: DockerRun, { model, notes, env }: ContainerOptions): number {
  const given = givenDevices(run, env);
  if (given === null) return 0;
  if (typeof given === 'object') {
    const list = given.join(',');
    notes.add(
      model,
      `devices ${list}: not imported; Headgate chooses free GPUs by the fields gpus and hosts of the engine file`,
    );
  }
  const { args } = run;
  if (parallelOptions.some((names) => hasOption(args, ...names))) {
    return parallelOptions.reduce((product, names) => product * (Number(optionValue(args, ...names)) || 1), 1);
  }
  if (given !== 'all') return typeof given === 'object' ? given.length : given;
  notes.add(model, 'the number of GPUs is unknown: set gpus.count in the engine file, now 1');
  return 1;
}

/** Returns the names of the devices, their number, `all`, or null if there are none. */
function givenDevices({ options }: DockerRun, env: readonly string[]): readonly string[] | number | 'all' | null {
  const flag = options.get('gpus')?.[0]?.replaceAll('"', '') ?? '';
  const list = /(?:^|,)device=(.+)$/.exec(flag)?.[1] ?? visibleDevices([...(options.get('env') ?? []), ...env]);
  if (list !== null && list !== 'all') return list.split(',');
  if (/^\d+$/.test(flag)) return Number(flag);
  const hasGpus = flag !== '' || list !== null || options.get('runtime')?.includes('nvidia') === true;
  return hasGpus ? 'all' : null;
}

function visibleDevices(variables: readonly string[]): string | null {
  const lists = variables.map((entry) => /^(?:CUDA|NVIDIA)_VISIBLE_DEVICES=(.+)$/.exec(entry)?.[1] ?? null);
  return lists.find((list) => list !== null) ?? null;
}

function environmentOf({ options }: DockerRun, { model, notes, env }: ContainerOptions): { env?: object } {
  if (options.has('env-file'))
    notes.add(model, "docker's option --env-file: not imported; write its variables under env in the engine file");
  const entries = [...env, ...(options.get('env') ?? [])].flatMap((entry) => {
    const own = /^(?:(?:CUDA|NVIDIA|HIP)_VISIBLE_DEVICES|VLLM_API_KEY|VLLM_SERVER_DEV_MODE)(?==|$)/.exec(entry)?.[0];
    if (own === undefined) return readVariable(entry, { model, notes }) ?? [];
    notes.add(model, `the variable ${own}: not imported; Headgate sets it itself`);
    return [];
  });
  return entries.length === 0 ? {} : { env: Object.fromEntries(entries.map(({ name, value }) => [name, value])) };
}

/** Reads a size in Docker's units: a number without a unit is bytes. */
function sizeOf(field: string, text: string | undefined, { model, notes }: ContainerOptions): Record<string, string> {
  if (text === undefined) return {};
  const match = /^(\d+(?:\.\d{1,3})?) ?([bkmgt]?)(?:i?b)?$/i.exec(text);
  if (match === null) {
    notes.add(model, `${field}: not imported; ${text} is not a valid size`);
    return {};
  }
  const unit = (match[2] ?? '').toLowerCase();
  const size = unit === '' || unit === 'b' ? `${Math.ceil(Number(match[1]) / 1024)}kb` : `${match[1] ?? ''}${unit}b`;
  return { [field]: size };
}

function volumesOf({ options }: DockerRun, { model, notes }: ContainerOptions): { volumes?: string[] } {
  const volumes = (options.get('volume') ?? []).flatMap((volume) => {
    const [source = '', target = '', mode = ''] = volume.split(':');
    if (!/^(\/|[A-Za-z0-9][\w.-]+$)/.test(source) || !target.startsWith('/')) {
      notes.add(
        model,
        `the volume ${volume}: not imported; its source must be the name of a volume or an absolute path`,
      );
      return [];
    }
    const modes = mode.split(',').filter((text) => text !== '');
    const others = modes.filter((text) => text !== 'ro' && text !== 'rw');
    if (others.length > 0) notes.add(model, `the volume ${source}: imported without its options ${others.join(', ')}`);
    const text = `${source}:${target}${modes.includes('ro') ? ':ro' : ''}`;
    const problem = volumeProblem(text);
    if (problem === null) return [text];
    notes.add(model, `the volume ${volume}: not imported; ${problem}`);
    return [];
  });
  return volumes.length === 0 ? {} : { volumes };
}

/** Returns the port inside the container: from `-p HOST:CONTAINER`, otherwise from the server's `--port`. */
function portOf({ args, options }: DockerRun): number {
  const published = options.get('publish')?.[0]?.split('/', 1)[0]?.split(':').at(-1);
  const given = optionValue(args, '--port');
  const port = [published, given]
    .map(Number)
    .find((number) => Number.isInteger(number) && number > 0 && number < 65_536);
  return port ?? (args.some((word) => word.includes('${PORT}')) ? 8080 : 8000);
}
