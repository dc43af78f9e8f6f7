import { KNOB_NAMES, knobFromText, type Knobs } from './knobs.ts';

/** The release of vLLM that the stand-in imitates. */
export const VERSION = '0.32.0';

export type StartFailure = 'oom' | 'bad-model' | 'error';

export type AbortFault = 'deaf' | 'miscount' | 'missing';

/** Settings from the command line and the environment. */
export interface Options {
  model: string;
  servedNames: string[];
  /** Paths of LoRA adapters by their names. */
  adapters: Map<string, string>;
  host: string;
  port: number;
  uds: string | null;
  apiKeys: string[];
  maxModelLen: number;
  maxNumSeqs: number;
  /** Most requests that run and wait; null for no limit. */
  maxNumQueuedReqs: number | null;
  blockSize: number;
  forceIncludeUsage: boolean;
  promptTokensDetails: boolean;
  requestIdHeaders: boolean;
  serverLoadTracking: boolean;
  reasoningParser: string | null;
  autoToolChoice: boolean;
  toolCallParser: string | null;
  streamInterval: number;
  embedding: boolean;
  scoring: boolean;
  devMode: boolean;
  rootPath: string;
  accessLog: boolean;
  keepAliveTimeoutMs: number;
  shutdownTimeoutMs: number;
  /** Stand-in only, from here on. */
  name: string;
  /** A file that takes a line for each token; null where none is kept. */
  journal: string | null;
  embeddingDimensions: number;
  /** Tokens that the chat template puts before each conversation. */
  preambleTokens: number;
  matryoshka: boolean;
  hideAdapters: boolean;
  startDelayMs: number;
  failStart: StartFailure | null;
  exitAfterMs: number | null;
  exitCode: number;
  ignoreSigterm: boolean;
  /** A long prompt is read in pieces, between which others make tokens. */
  chunkedPrefill: boolean;
  /** The version that GET /version reports. */
  version: string;
  abortFault: AbortFault | null;
  knobs: Knobs;
}

type Parsed = { kind: 'run'; options: Options } | { kind: 'print'; text: string } | { kind: 'refused'; text: string };

type Setter = (options: Options, value: string) => boolean;

function numberSetter(assign: (options: Options, value: number) => void): Setter {
  return (options, value) => {
    const parsed = Number(value);
    if (value.trim() === '' || !Number.isFinite(parsed)) return false;
    assign(options, parsed);
    return true;
  };
}

function textSetter(assign: (options: Options, value: string) => void): Setter {
  return (options, value) => {
    assign(options, value);
    return true;
  };
}

function lengthOf(value: string): number {
  const match = /^(\d+(?:\.\d+)?)([kKmM]?)$/.exec(value);
  if (match === null) return Number.NaN;
  const scale = { k: 1000, K: 1024, m: 1_000_000, M: 1_048_576, '': 1 }[match[2] ?? ''] ?? 1;
  return Math.floor(Number(match[1]) * scale);
}

const WITH_VALUE: Record<string, Setter> = {
  '--model': textSetter((o, v) => (o.model = v)),
  '--host': textSetter((o, v) => (o.host = v)),
  '--port': numberSetter((o, v) => (o.port = v)),
  '--uds': textSetter((o, v) => (o.uds = v)),
  '--max-model-len': (o, v) => {
    o.maxModelLen = lengthOf(v);
    return o.maxModelLen > 0;
  },
  '--max-num-seqs': numberSetter((o, v) => (o.maxNumSeqs = v)),
  '--max-num-queued-reqs': numberSetter((o, v) => (o.maxNumQueuedReqs = v)),
  '--block-size': numberSetter((o, v) => (o.blockSize = v)),
  '--reasoning-parser': textSetter((o, v) => (o.reasoningParser = v)),
  '--tool-call-parser': textSetter((o, v) => (o.toolCallParser = v)),
  '--stream-interval': numberSetter((o, v) => (o.streamInterval = v)),
  '--runner': textSetter((o, v) => (o.embedding = v === 'pooling')),
  '--convert': textSetter((o, v) => {
    o.embedding ||= v === 'embed';
    o.scoring = v === 'classify';
  }),
  '--root-path': textSetter((o, v) => (o.rootPath = v.replace(/\/$/, ''))),
  '--shutdown-timeout': numberSetter((o, v) => (o.shutdownTimeoutMs = v * 1000)),
  '--name': textSetter((o, v) => (o.name = v)),
  '--journal': textSetter((o, v) => (o.journal = v)),
  '--embedding-dimensions': numberSetter((o, v) => (o.embeddingDimensions = v)),
  '--preamble-tokens': numberSetter((o, v) => (o.preambleTokens = v)),
  '--start-delay-ms': numberSetter((o, v) => (o.startDelayMs = v)),
  '--fail-start': (o, v) => {
    if (v !== 'oom' && v !== 'bad-model' && v !== 'error') return false;
    o.failStart = v;
    return true;
  },
  '--exit-after-ms': numberSetter((o, v) => (o.exitAfterMs = v)),
  '--exit-code': numberSetter((o, v) => (o.exitCode = v)),
  '--report-version': textSetter((o, v) => (o.version = v)),
  '--abort-fault': (o, v) => {
    if (v !== 'deaf' && v !== 'miscount' && v !== 'missing') return false;
    o.abortFault = v;
    return true;
  },
};

const SWITCHES: Record<string, (options: Options) => void> = {
  '--enable-force-include-usage': (o) => (o.forceIncludeUsage = true),
  '--enable-prompt-tokens-details': (o) => (o.promptTokensDetails = true),
  '--enable-request-id-headers': (o) => (o.requestIdHeaders = true),
  '--enable-server-load-tracking': (o) => (o.serverLoadTracking = true),
  '--enable-auto-tool-choice': (o) => (o.autoToolChoice = true),
  '--disable-uvicorn-access-log': (o) => (o.accessLog = false),
  '--access-log': (o) => (o.accessLog = true),
  '--dev-mode': (o) => (o.devMode = true),
  '--matryoshka': (o) => (o.matryoshka = true),
  '--hide-adapters': (o) => (o.hideAdapters = true),
  '--ignore-sigterm': (o) => (o.ignoreSigterm = true),
  '--no-enable-chunked-prefill': (o) => (o.chunkedPrefill = false),
};

/** Flags of vLLM that change nothing here but must be accepted. */
const IGNORED_WITH_VALUE = new Set(
  `--dtype --gpu-memory-utilization --tensor-parallel-size -tp --pipeline-parallel-size -pp --data-parallel-size -dp
  --max-num-batched-tokens --max-num-queued-tokens --seed --tokenizer --tokenizer-mode --revision --tokenizer-revision --download-dir
  --load-format --quantization -q --kv-cache-dtype --kv-cache-memory --swap-space --chat-template
  --chat-template-content-format --uvicorn-log-level --hf-overrides --hf-token --generation-config
  --override-generation-config --limit-mm-per-prompt --scheduling-policy --response-role --task --device
  --compilation-config -O --fingerprint-mode --kv-events-config --allowed-media-domains
  --disable-access-log-for-endpoints --attention-backend --distributed-executor-backend --max-logprobs
  --cpu-offload-gb --speculative-config --structured-outputs-config --default-chat-template-kwargs
  --max-loras --max-lora-rank --served-model-id --middleware --allowed-origins --allowed-methods --allowed-headers`.split(
    /\s+/,
  ),
);

const IGNORED_SWITCHES = new Set(
  `--trust-remote-code --enforce-eager --no-enforce-eager --enable-prefix-caching --no-enable-prefix-caching
  --disable-log-stats --disable-log-requests --no-disable-log-requests --enable-log-requests
  --no-enable-log-requests --enable-sleep-mode --enable-chunked-prefill
  --async-scheduling --no-async-scheduling --disable-fastapi-docs --log-error-stack --headless
  --trust-request-chat-template --return-tokens-as-token-ids --enable-lora --enable-log-outputs
  --enable-per-request-metrics --enable-tokenizer-info-endpoint --disable-custom-all-reduce
  --disable-frontend-multiprocessing`.split(/\s+/),
);

const HELP = `usage: node engines/standin/standin.js [serve MODEL] [options]

Stand-in engine: behaves like vLLM on the wire, but there is NO MODEL behind it. Its text is made up.

options of vLLM that it obeys:
  serve MODEL, --model, --served-model-name NAME [NAME ...], --host, --port, --uds, --api-key KEY [KEY ...],
  --max-model-len, --max-num-seqs, --max-num-queued-reqs, --block-size, --enable-force-include-usage, --enable-prompt-tokens-details,
  --enable-request-id-headers, --enable-server-load-tracking, --reasoning-parser, --enable-auto-tool-choice,
  --lora-modules NAME=PATH [NAME=PATH ...], --tool-call-parser, --stream-interval, --runner pooling, --convert embed|classify, --root-path,
  --shutdown-timeout, --no-enable-chunked-prefill
environment: VLLM_API_KEY, VLLM_SERVER_DEV_MODE=1, VLLM_HTTP_TIMEOUT_KEEP_ALIVE (seconds)

options of its own:
  --name TEXT               shown in logs only
  --dev-mode                as VLLM_SERVER_DEV_MODE=1
  --access-log              one line a request
  --journal FILE            one line a token: process, request, prompt tokens, tokens so far; outlives a kill
  --embedding-dimensions N  length of an embedding (384); --matryoshka allows "dimensions"
  --start-delay-ms N        refuses connections until then
  --fail-start KIND         oom | bad-model | error: exits 1 with such a log
  --exit-after-ms N         exits that long after it was ready, with --exit-code N (1)
  --hide-adapters           knows no adapter, whatever a --lora-modules behind it says
  --ignore-sigterm          hangs on SIGTERM
  --report-version VERSION  what GET /version answers
  --abort-fault KIND        deaf | miscount | missing: /abort_requests ends nothing, counts one token too many, or is not there
knobs, as flags for all requests or in a request body's "standin" object (there with underscores):
  ${KNOB_NAMES.map((name) => `--${name.replaceAll('_', '-')}`).join(' ')}
`;

function defaults(env: Record<string, string | undefined>): Options {
  const keepAliveS = Number(env.VLLM_HTTP_TIMEOUT_KEEP_ALIVE ?? '5');
  return {
    model: 'stand-in/not-a-model',
    servedNames: [],
    adapters: new Map(),
    host: '0.0.0.0',
    port: 8000,
    uds: null,
    apiKeys: env.VLLM_API_KEY ? [env.VLLM_API_KEY] : [],
    maxModelLen: 32_768,
    // More than vLLM's own default, so that a test of many streams does not queue unawares.
    maxNumSeqs: 4096,
    maxNumQueuedReqs: null,
    blockSize: 16,
    forceIncludeUsage: false,
    promptTokensDetails: false,
    requestIdHeaders: false,
    serverLoadTracking: false,
    reasoningParser: null,
    autoToolChoice: false,
    toolCallParser: null,
    streamInterval: 1,
    embedding: false,
    scoring: false,
    devMode: env.VLLM_SERVER_DEV_MODE === '1',
    rootPath: '',
    accessLog: false,
    keepAliveTimeoutMs: Number.isFinite(keepAliveS) ? keepAliveS * 1000 : 5000,
    shutdownTimeoutMs: 0,
    name: 'stand-in',
    journal: null,
    embeddingDimensions: 384,
    preambleTokens: 0,
    matryoshka: false,
    hideAdapters: false,
    startDelayMs: 0,
    failStart: null,
    exitAfterMs: null,
    exitCode: 1,
    ignoreSigterm: false,
    chunkedPrefill: true,
    version: VERSION,
    abortFault: null,
    knobs: {},
  };
}

function refuse(message: string): Parsed {
  return { kind: 'refused', text: `usage: vllm serve [model_tag] [options]\nvllm serve: error: ${message}\n` };
}

/** Takes the words after a flag that accepts a list, up to the next flag. */
function takeList(words: string[], first: string | undefined): string[] {
  const list = first === undefined ? [] : [first];
  while (first === undefined && words[0] !== undefined && !words[0].startsWith('--')) list.push(words.shift() ?? '');
  return list;
}

/** Sets what a flag with one value says; gives the problem in argparse's words, or null. */
function applyValue(options: Options, flag: string, value: string | undefined): string | null {
  if (value === undefined) return `argument ${flag}: expected one argument`;
  const setter = WITH_VALUE[flag];
  const invalid = `argument ${flag}: invalid value: '${value}'`;
  if (setter !== undefined) return setter(options, value) ? null : invalid;
  if (IGNORED_WITH_VALUE.has(flag)) return null;
  const knob = knobFromText(knobName(flag), value);
  if (knob === undefined) return invalid;
  Object.assign(options.knobs, knob);
  return null;
}

function knobName(flag: string): string {
  return flag.slice(2).replaceAll('-', '_');
}

/** vLLM's `name=path`; its JSON form is not known here. */
function applyAdapters(options: Options, list: readonly string[]): string | null {
  for (const item of list) {
    const [name = '', path, ...more] = item.split('=');
    if (path === undefined || more.length > 0) return `argument --lora-modules: invalid value: '${item}'`;
    if (!options.hideAdapters) options.adapters.set(name, path);
  }
  return null;
}

function applyFlag(options: Options, flag: string, inline: string | undefined, words: string[]): string | null {
  if (flag === '--served-model-name' || flag === '--api-key' || flag === '--lora-modules') {
    const list = takeList(words, inline);
    if (list.length === 0) return `argument ${flag}: expected at least one argument`;
    if (flag === '--lora-modules') return applyAdapters(options, list);
    if (flag === '--api-key') options.apiKeys = list;
    else options.servedNames = list;
    return null;
  }
  const toggle = SWITCHES[flag];
  if (toggle !== undefined && inline === undefined) {
    toggle(options);
    return null;
  }
  if (IGNORED_SWITCHES.has(flag)) return null;
  const known = WITH_VALUE[flag] !== undefined || IGNORED_WITH_VALUE.has(flag) || KNOB_NAMES.includes(knobName(flag));
  return known ? applyValue(options, flag, inline ?? words.shift()) : `unrecognized arguments: ${flag}`;
}

/** Reads vLLM's command line as far as it matters here; errors have argparse's words and code 2. */
export function parseArgs(argv: readonly string[], env: Record<string, string | undefined>): Parsed {
  const options = defaults(env);
  const words = [...argv];
  if (words[0] === 'serve') {
    words.shift();
    if (words[0] !== undefined && !words[0].startsWith('-')) options.model = words.shift() ?? options.model;
  }
  while (words.length > 0) {
    const word = words.shift() ?? '';
    if (word === '--help' || word === '-h') return { kind: 'print', text: HELP };
    if (word === '--version') return { kind: 'print', text: `${VERSION} (stand-in engine, not a model)\n` };
    if (!word.startsWith('-')) return refuse(`unrecognized arguments: ${word}`);
    const equals = word.indexOf('=');
    const flag = (equals < 0 ? word : word.slice(0, equals)).replaceAll('_', '-');
    const problem = applyFlag(options, flag, equals < 0 ? undefined : word.slice(equals + 1), words);
    if (problem !== null) return refuse(problem);
  }
  if (options.servedNames.length === 0) options.servedNames = [options.model];
  return { kind: 'run', options };
}
