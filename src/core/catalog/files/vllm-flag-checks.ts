import { parseImage, parseVolume } from './container-file-schema.ts';
import type { EngineFile } from './engine-file-schema.ts';
import { findFlag } from './find-flag.ts';
import type { FileProblem } from './zod-problems.ts';

/** Checks of vLLM options and variables that keep an engine from serving, whoever starts it. From vLLM 0.29. */

type RunFile = Exclude<EngineFile, { driver: 'external' }>;

/** Options with which Headgate could not reach, read or bill the engine, with what to write instead. */
const refusedFlags: Readonly<Record<string, string>> = {
  '--config': 'remove it and put the options of that file here, where Headgate can check them',
  '--tokens-only': 'remove it; such an engine has no route for text',
  '--skip-tokenizer-init': 'remove it; such an engine accepts no text',
  '--middleware': 'remove it; code between Headgate and vLLM could change what is billed',
  '--grpc': 'remove it; Headgate uses HTTP',
  '--headless': 'remove it; Headgate needs the API server',
};

/**
 * Options that would spread a replica over several hosts or addresses, or make it use TLS: by name with their short
 * forms, and all that begin with a prefix except the accepted ones, so that a new option of a family is rejected too.
 */
const refusedFamilies: readonly {
  readonly prefix: string;
  readonly accepted: readonly string[];
  readonly flags: readonly (readonly [string, ...string[]])[];
  readonly why: string;
}[] = [
  {
    prefix: '--master-',
    accepted: [],
    flags: [['--nnodes', '-n'], ['--node-rank', '-r'], ['--master-addr'], ['--master-port']],
    why: 'remove it; a replica runs on one host (raise replicas.max to run more replicas)',
  },
  {
    prefix: '--data-parallel-',
    accepted: ['--data-parallel-size', '--data-parallel-size-local', '--data-parallel-backend'],
    flags: [
      ['--data-parallel-rank', '-dpn'],
      ['--data-parallel-start-rank', '-dpr'],
      ['--data-parallel-address', '-dpa'],
      ['--data-parallel-rpc-port', '-dpp'],
      ['--data-parallel-hybrid-lb', '-dph'],
      ['--data-parallel-external-lb', '-dpe'],
      ['--data-parallel-multi-port-external-lb', '-dpm'],
    ],
    why: 'remove it; a replica runs on one host with one address (--data-parallel-size is allowed)',
  },
  {
    prefix: '--ssl-',
    accepted: ['--ssl-ciphers'],
    flags: [
      ['--ssl-keyfile'],
      ['--ssl-certfile'],
      ['--ssl-ca-certs'],
      ['--ssl-cert-reqs'],
      ['--enable-ssl-refresh'],
      ['--no-enable-ssl-refresh'],
    ],
    why: 'remove it; Headgate uses plain HTTP on a private network',
  },
];

/** Variables that do the same as a rejected option. */
const refusedVariables: Readonly<Record<string, string>> = {
  VLLM_API_KEY: 'remove it; Headgate decides which key the engine requires',
  VLLM_USE_RUST_FRONTEND: 'remove it; this front end does not report the usage that Headgate bills',
};

/** Reports every problem of the words that vLLM gets. @param field of the file that holds them */
export function vllmFlagProblems(engine: RunFile, words: readonly string[], field: 'args' | 'command'): FileProblem[] {
  return [
    ...refusedProblems(words, refusedFlags, field),
    ...familyProblems(words, field),
    ...variableProblems(engine, refusedVariables),
    ...joinedArguments(words, field),
    ...lengthProblems(engine, words, field),
    ...adapterFlagProblems(engine, words, field),
    ...queueFlagProblems(engine, words, field),
  ];
}

export function refusedProblems(
  words: readonly string[],
  refused: Readonly<Record<string, string>>,
  field: 'args' | 'command',
): FileProblem[] {
  return Object.entries(refused).flatMap(([flag, why]) => {
    const found = findFlag(words, flag);
    return found === null ? [] : [{ path: [field, found.index], message: `${flag}: ${why}` }];
  });
}

function familyProblems(words: readonly string[], field: string): FileProblem[] {
  return refusedFamilies.flatMap(({ prefix, accepted, flags, why }) => {
    const named = flags.flatMap((names) => {
      const found = findFlag(words, ...names);
      return found === null ? [] : [{ index: found.index, name: names[0] }];
    });
    const prefixed = words.flatMap((word, index) => {
      const name = (word.split('=', 1)[0] ?? '').replaceAll('_', '-');
      const isRejected = name.startsWith(prefix) && !accepted.some((flag) => flag.startsWith(name));
      return isRejected && !named.some((other) => other.index === index) ? [{ index, name }] : [];
    });
    return [...named, ...prefixed].map(({ index, name }) => ({ path: [field, index], message: `${name}: ${why}` }));
  });
}

export function variableProblems({ env }: RunFile, refused: Readonly<Record<string, string>>): FileProblem[] {
  return Object.entries(refused).flatMap(([name, why]) =>
    env[name] === undefined ? [] : [{ path: ['env', name], message: why }],
  );
}

/**
 * Reports items that hold several words: they reach vLLM as one word, which it does not know. JSON and texts of several
 * words are values, unless one of their words starts like an option.
 */
function joinedArguments(items: readonly string[], field: string): FileProblem[] {
  return items.flatMap((item, index) => {
    const [first = '', ...others] = item.trim().split(/\s+/);
    if (others.length === 0) {
      return item === first ? [] : [{ path: [field, index], message: `remove the white space around ${first}` }];
    }
    const isOption = /^--?[A-Za-z][\w.-]*$/.test(first);
    const [, value = first] = /^--?[A-Za-z][\w.-]*=(.*)$/s.exec(first) ?? [];
    const isJson = /^[[{"']/.test(value);
    // A shell's command line is one item.
    const isShell = field === 'command' && !first.startsWith('-');
    if (!isOption && (isJson || isShell || !others.some((word) => /^--[A-Za-z]/.test(word)))) return [];
    const message =
      others.length === 1
        ? `two words in one item: write ${first} and its value as separate items`
        : `${others.length + 1} words in one item: write each word as a separate item, starting with ${first}`;
    return [{ path: [field, index], message }];
  });
}

/** Parses a token count as vLLM does: `32768`, `32k` is 32,000, `32K` is 32,768. Null for anything else. */
export function parseLength(text: string | null): number | null {
  const match = /^(\d{1,9})(?:\.(\d+))?([kKmMgG]?)$/.exec(text ?? '');
  if (match === null) return null;
  const units: Readonly<Record<string, number>> = { k: 1e3, K: 1024, m: 1e6, M: 1024 ** 2, g: 1e9, G: 1024 ** 3 };
  const length = Math.floor(Number(`${match[1] ?? ''}.${match[2] ?? '0'}`) * (units[match[3] ?? ''] ?? 1));
  return length > 0 ? length : null;
}

/** Checks --max-model-len. If absent, Headgate passes context_length: src/core/fleet/drivers/vllm-arguments.ts. */
function lengthProblems({ context_length: needed }: RunFile, words: readonly string[], field: string): FileProblem[] {
  const found = findFlag(words, '--max-model-len');
  if (found === null) return [];
  const instead = `set ${needed} or more, or remove it and Headgate sets ${needed}`;
  const length = parseLength(found.value);
  if (length !== null && length >= needed) return [];
  const why =
    length === null
      ? `--max-model-len ${found.value} may result in less than context_length`
      : `--max-model-len ${found.value} is below context_length ${needed}: the engine would reject requests that Headgate accepts`;
  return [{ path: [field, found.index], message: `${why}; ${instead}` }];
}

const queueLimits = ['max_num_queued_reqs', 'max_num_queued_tokens'] as const;

/** Reports limits of vLLM's queue that the file has both as a field and as an option. */
function queueFlagProblems(engine: RunFile, words: readonly string[], field: string): FileProblem[] {
  return queueLimits.flatMap((name) => {
    const flag = `--${name.replaceAll('_', '-')}`;
    const found = engine[name] === undefined ? null : findFlag(words, flag);
    return found === null ? [] : [{ path: [field, found.index], message: `${flag}: remove it; ${name} sets it` }];
  });
}

/** Reports limits of vLLM's queue in the file of an engine that is no vLLM, and would not get them. */
export function foreignQueueProblems(engine: RunFile): FileProblem[] {
  return queueLimits.flatMap((name) =>
    engine[name] === undefined
      ? []
      : [{ path: [name], message: 'supported by vLLM only; set kind: vllm if the engine runs vLLM' }],
  );
}

function adapterFlagProblems({ lora }: RunFile, words: readonly string[], field: string): FileProblem[] {
  const found = lora.length === 0 ? findFlag(words, '--lora-modules') : null;
  if (found === null) return [];
  return [{ path: [field, found.index], message: '--lora-modules: remove it and list the adapters under lora' }];
}

type ContainerFile = Extract<EngineFile, { driver: 'docker' | 'swarm' }>;

/**
 * Reports folders of model, tokenizer and adapters outside all volumes. Only for vLLM's own images, which contain no
 * models; other images may.
 */
export function unmountedProblems(engine: ContainerFile): FileProblem[] {
  if (!/(^|\/)vllm\/vllm-[^/]+$/.test(parseImage(engine.image)?.repository ?? '')) return [];
  const targets = engine.volumes.flatMap((volume) => parseVolume(volume)?.target.replace(/\/+$/, '') ?? []);
  const isMounted = (path: string): boolean =>
    targets.some((target) => path === target || path.startsWith(`${target}/`));
  const named = [
    { path: ['args', 0], value: engine.args[0] ?? '' },
    ...['--model', '--tokenizer'].flatMap((flag) => {
      const found = findFlag(engine.args, flag);
      return found === null ? [] : [{ path: ['args', found.index], value: found.value }];
    }),
    ...engine.lora.map(({ path = '' }, index) => ({ path: ['lora', index, 'path'], value: path })),
  ];
  return named
    .filter(({ value }) => value.startsWith('/') && !isMounted(value))
    .map(({ path, value }) => ({
      path,
      message: `${value} is not in a volume of this engine: add the host's folder to volumes, such as /srv/models:${value}:ro`,
    }));
}
