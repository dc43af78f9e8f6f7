import { basename } from 'node:path';
import { splitWords } from '#base/shell-words.ts';
import { onlyDockerRunWords, parseDockerRun, parseLength } from '#core/catalog/catalog.ts';
import { noConfiguration, readConfiguration } from './configuration.ts';
import { draftContainer } from './draft-container.ts';
import { readVariable, type VariableNotes } from './draft-variables.ts';
import {
  contextLengthUnknown,
  contextNote,
  createNames,
  createNotes,
  type EngineDraft,
  freeNote,
  freePricing,
  type ImportResult,
  keyVariable,
  type Names,
  type Notes,
} from './draft.ts';
import { noteKeys } from './keys.ts';
import {
  environmentMacro,
  llamaSwapConfig,
  type LlamaSwapConfig,
  type LlamaSwapGroup,
  type LlamaSwapModel,
  resolveMacros,
} from './llama-swap-config.ts';
import { overridesOf } from './llama-swap-filters.ts';
import {
  capabilityKeys,
  groupKeys,
  hookKeys,
  modelKeys,
  peerKeys,
  routerKeys,
  routerSettingsKeys,
  routingKeys,
  startupKeys,
  topKeys,
} from './llama-swap-keys.ts';
import { modelFirst, optionValue, repositoryOf, taskOf, withoutGiven } from './program-words.ts';

/** Creates engine files from llama-swap's configuration. @param source the text of its YAML @throws FailedError */
export function importLlamaSwap(source: string): ImportResult {
  const parsed = llamaSwapConfig.safeParse(resolveMacros(readConfiguration(source)));
  if (!parsed.success) throw noConfiguration('llama-swap', parsed.error);
  const config = parsed.data;
  const notes = createNotes();
  const names = createNames();
  const drafts = Object.entries(config.models).flatMap(([id, model]) =>
    draftModel({ config, id, model, notes, names }),
  );
  drafts.push(...draftPeers(config, notes, names));
  noteWhole(config, notes);
  return { drafts, notes: notes.list };
}

/** Notes settings outside models and peers. */
function noteWhole(config: LlamaSwapConfig, notes: Notes): void {
  const at =
    (...path: readonly string[]) =>
    (text: string): void =>
      notes.add(null, path.length === 0 ? text : `${path.join('.')}: ${text}`);
  noteKeys(config, topKeys, at());
  noteKeys(config.hooks, hookKeys, at('hooks'));
  noteKeys(config.hooks?.on_startup, startupKeys, at('hooks', 'on_startup'));
  noteKeys(config.routing, routingKeys, at('routing'));
  noteKeys(config.routing?.router, routerKeys, at('routing', 'router'));
  noteKeys(config.routing?.router?.settings, routerSettingsKeys, at('routing', 'router', 'settings'));
  for (const [name, group] of Object.entries(groupsOf(config))) noteKeys(group, groupKeys, at('groups', name));
  const unknown = (config.hooks?.on_startup?.preload ?? []).filter((id) => !Object.hasOwn(config.models, id));
  if (unknown.length > 0) notes.add(null, `hooks.on_startup.preload: there is no model ${unknown.join(', ')}`);
  noteGroups(config, notes);
}

function noteGroups(config: LlamaSwapConfig, notes: Notes): void {
  const groups = groupsOf(config);
  for (const [name, { members }] of Object.entries(groups)) {
    const unknown = members.filter((id) => !Object.hasOwn(config.models, id));
    if (unknown.length > 0) notes.add(null, `groups.${name}.members: there is no model ${unknown.join(', ')}`);
  }
  const count = groups[restGroup]?.members.length ?? 0;
  if (count === 0) return;
  const hint = 'remove group from the engine files of models that fit at the same time, or set memory_gib instead';
  notes.add(null, `${count} models are in no group: as with llama-swap, only one of them runs at a time; ${hint}`);
}

/** llama-swap's name for the group of models that are in no other group. */
const restGroup = '(default)';

/**
 * Returns the groups of the configuration, and the group that llama-swap forms of the remaining models if there is no
 * matrix.
 */
function groupsOf(config: LlamaSwapConfig): Readonly<Record<string, LlamaSwapGroup>> {
  const { groups, routing, models } = config;
  const own = { ...groups, ...routing?.router?.settings?.groups };
  if ('matrix' in config || routing?.router?.['use'] === 'matrix') return own;
  const members = Object.keys(models).filter((id) => !Object.values(own).some((group) => group.members.includes(id)));
  if (members.length === 0 || (members.length === 1 && Object.keys(own).length === 0)) return own;
  return { ...own, [restGroup]: { swap: true, exclusive: true, persistent: false, members } };
}

interface ModelJob {
  readonly config: LlamaSwapConfig;
  readonly id: string;
  readonly model: LlamaSwapModel;
  readonly notes: Notes;
  readonly names: Names;
}

function draftModel(job: ModelJob): EngineDraft[] {
  const { id, model, notes } = job;
  const words = splitWords(model.cmd ?? '');
  if (words === null || words.length === 0) {
    notes.add(id, 'not imported: its cmd is empty or has an unclosed quote');
    return [];
  }
  const container = onlyDockerRunWords(words);
  const runs = container === null ? runProcess(job, words) : runContainer(job, container);
  noteTheRest(job);
  if (runs === null) return [];
  return [{ source: id, fields: { ...describe(job, runs), ...runs.fields, ...howLong(job, container !== null) } }];
}

interface Runs {
  /** Driver, and the command or container that it runs. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Words of the server's command: model and options. */
  readonly words: readonly string[];
  /** The model that the server's command names. */
  readonly served: string | null;
}

function runContainer({ id, model, notes }: ModelJob, words: readonly string[]): Runs | null {
  const run = parseDockerRun(words);
  if (run === null) {
    notes.add(id, 'not imported: its docker command names no image');
    return null;
  }
  const fields = draftContainer(run, { model: id, notes, env: model.env });
  return fields === null ? null : { fields, words: run.args, served: servedModel(run.args) };
}

/** Returns the model that a command of vLLM or llama.cpp names. */
function servedModel(words: readonly string[]): string | null {
  const named = optionValue(words, '--model', '-m', '--hf-repo', '-hf', '-hfr');
  const [first = null] = words;
  return (named ?? (first?.startsWith('-') === true ? null : first))?.replace(/:[^/]*$/, '') ?? null;
}

function runProcess(job: ModelJob, words: readonly string[]): Runs | null {
  const { id, notes } = job;
  const program = basename(words[0] ?? '');
  const isModule = words.includes('vllm.entrypoints.openai.api_server');
  const isVllm = program === 'vllm' || isModule;
  const missing = [...words.join(' ').matchAll(environmentMacro)].map(([, name]) => name);
  if (missing.length > 0) {
    notes.add(
      id,
      `disabled: its command uses environment variables; replace ${missing.join(', ')} with the value, then set enabled: true`,
    );
  }
  const command = isVllm ? vllmCommand(words, isModule, job) : otherCommand(words, job);
  if (command === null) return null;
  const served = isVllm ? (command[isModule ? 0 : 2] ?? null) : servedModel(words.slice(1));
  const fields = {
    ...(missing.length > 0 && { enabled: false }),
    driver: 'process',
    kind: isVllm ? 'vllm' : 'openai',
    command,
    ...readEnvironment(job),
  };
  return { fields, words, served: isModule ? optionValue(words, '--model') : served };
}

/**
 * Returns vLLM's command without the port, since Headgate uses a private socket. vLLM 0.29 wants `vllm serve X` in
 * place of its old module.
 */
function vllmCommand(words: readonly string[], isModule: boolean, { id, notes }: ModelJob): string[] {
  const start = isModule ? words.indexOf('vllm.entrypoints.openai.api_server') + 1 : words[1] === 'serve' ? 2 : 1;
  if (isModule)
    notes.add(id, 'its command was replaced by "vllm serve": the program vllm must be on the PATH of the gateway');
  const program = isModule ? 'vllm' : (words[0] ?? 'vllm');
  return [program, 'serve', ...modelFirst(withoutGiven(words.slice(start), id, notes))];
}

/** Returns the command of another server, with its port replaced by a port that Headgate chooses. */
function otherCommand(words: readonly string[], { id, model, notes }: ModelJob): string[] | null {
  const filled = words.map((word) => word.replaceAll('${PORT}', '{port}'));
  if (filled.some((word) => word.includes('{port}'))) return filled;
  const port = URL.parse(model.proxy ?? '')?.port ?? '';
  if (port !== '' && words.some((word) => isPort(word, port))) {
    return words.map((word) => (isPort(word, port) ? word.slice(0, -port.length) + '{port}' : word));
  }
  notes.add(id, 'not imported: its cmd has no port; write ${PORT} where the server expects its port, and import again');
  return null;
}

const isPort = (word: string, port: string): boolean =>
  word === port || (/[:=]$/.test(word.slice(0, -port.length)) && word.endsWith(port));

function readEnvironment({ id, model, notes }: ModelJob): { env?: Record<string, string> } {
  const about: VariableNotes = { model: id, notes };
  const entries = model.env.flatMap((entry) => readVariable(entry, about) ?? []);
  return entries.length === 0 ? {} : { env: Object.fromEntries(entries.map(({ name, value }) => [name, value])) };
}

function describe({ id, model, notes, names }: ModelJob, { words, served }: Runs) {
  const engineId = names.takeId(id);
  if (engineId !== id) notes.add(id, `the engine has the id ${engineId}`);
  const name = names.takeName(
    engineId,
    [model.name ?? '', ...model.aliases].filter((text) => text !== ''),
  );
  const aliases = names.takeAliases(engineId, model.aliases);
  const repository = names.takeName(engineId, [repositoryOf(served) ?? engineId]);
  const known = new Set([engineId, name, repository, ...aliases].map((text) => text.toLowerCase()));
  const lost = model.aliases.filter((alias) => !known.has(alias.toLowerCase()));
  if (lost.length > 0)
    notes.add(id, `aliases ${lost.join(', ')}: not imported; another model has this name, or the name is invalid`);
  const length =
    parseLength(optionValue(words, '--max-model-len', '--ctx-size', '-c')) ??
    parseLength(String(model.capabilities?.context ?? 0));
  if (length === null) notes.add(id, contextNote);
  notes.add(id, freeNote);
  return {
    version: 1,
    id: engineId,
    name,
    ...(aliases.length > 0 && { aliases }),
    hugging_face_id: repository,
    task_type: taskFor(model, words),
    context_length: length ?? contextLengthUnknown,
    pricing: freePricing,
    ...overridesOf(model.filters, (text) => notes.add(id, text)),
  };
}

function taskFor({ capabilities }: LlamaSwapModel, words: readonly string[]): string {
  if (capabilities?.reranker === true) return 'rerank';
  return taskOf(words) ?? (capabilities?.in.includes('image') === true ? 'vision' : 'chat');
}

const neverSeconds = 31_536_000;

function howLong(job: ModelJob, isContainer: boolean) {
  const { config, model } = job;
  const ttl = model.ttl < 0 ? config.globalTTL : model.ttl;
  const found = findGroup(job);
  return {
    // llama-swap never stops a model without a ttl; a year is the longest time here.
    idle_seconds: ttl > 0 ? Math.ceil(ttl) : neverSeconds,
    start_timeout_seconds: Math.max(15, Math.ceil(config.healthCheckTimeout)),
    ...(isKept(job, found) && { replicas: { min: 1, max: 1 } }),
    ...(isContainer ? pinnedBy(job, found) : groupFields(found)),
  };
}

interface FoundGroup extends LlamaSwapGroup {
  readonly name: string;
}

function findGroup({ config, id, notes }: ModelJob): FoundGroup | null {
  const found = Object.entries(groupsOf(config)).filter(([, { members }]) => members.includes(id));
  const [first] = found;
  if (first === undefined) return null;
  const [name, group] = first;
  if (found.length > 1)
    notes.add(
      id,
      `it is in ${found.length} groups, and an engine file can have only one: the file has the first, ${name}`,
    );
  return { ...group, name };
}

/**
 * True if the model is kept running, as llama-swap preloads it. In a group, a model that always runs would keep out all
 * others permanently.
 */
function isKept({ config, id, notes }: ModelJob, group: FoundGroup | null): boolean {
  if (config.hooks?.on_startup?.preload.includes(id) !== true) return false;
  if (group === null || !group.swap || group.members.length < 2) return true;
  notes.add(
    id,
    `hooks.on_startup.preload: not imported; only one model of the group ${group.name} runs at a time, so this one starts with its first request`,
  );
  return false;
}

function groupFields(group: FoundGroup | null) {
  if (group === null) return {};
  const { name, swap, exclusive, persistent } = group;
  return { group: { name, swap, exclusive, persistent } };
}

function pinnedBy({ id, notes }: ModelJob, group: FoundGroup | null) {
  if (group === null || group.name === restGroup) return {};
  notes.add(
    id,
    `its group ${group.name}: not imported; only processes can have groups, containers share the GPUs of their hosts`,
  );
  return group.persistent ? { pinned: true } : {};
}

/** Notes settings of the model's entry that an engine file cannot hold. */
function noteTheRest({ id, model, notes }: ModelJob): void {
  const { checkEndpoint, useModelName, proxy, capabilities } = model;
  noteKeys(model, modelKeys, (text) => notes.add(id, text));
  noteKeys(capabilities, capabilityKeys, (text) => notes.add(id, `capabilities.${text}`));
  const others = (capabilities?.in ?? []).filter((kind) => kind !== 'text' && kind !== 'image');
  if (others.length > 0)
    notes.add(
      id,
      `capabilities.in ${others.join(', ')}: not imported; an engine file can declare images only (task_type: vision)`,
    );
  if (checkEndpoint !== undefined && checkEndpoint !== '/health') {
    notes.add(
      id,
      `checkEndpoint ${checkEndpoint}: not imported; Headgate always probes /health, which the model server must have`,
    );
  }
  if (useModelName !== undefined)
    notes.add(id, `useModelName ${useModelName}: not imported; Headgate calls the model by the id of its engine file`);
  const address = URL.parse((proxy ?? '').replaceAll('${PORT}', '80'));
  const isHere = ['localhost', '127.0.0.1', '[::1]', '0.0.0.0'].includes(address?.hostname ?? '');
  if (proxy !== undefined && (!isHere || (address?.pathname ?? '/') !== '/')) {
    notes.add(
      id,
      `proxy ${cleanUrl(address)}: not imported; Headgate starts the model on this machine and calls its routes under /v1`,
    );
  }
}

/** Returns an address without the parts that may contain a secret. */
function cleanUrl(url: URL | null): string {
  return url === null ? '' : `${url.protocol}//${url.hostname}${url.pathname}`;
}

/** Creates engines for external servers, one for each of their models. */
function draftPeers({ peers }: LlamaSwapConfig, notes: Notes, names: Names): EngineDraft[] {
  return Object.entries(peers).flatMap(([peer, settings]) => {
    const { proxy, apiKey, models } = settings;
    noteKeys(settings, peerKeys, (text) => notes.add(peer, text));
    const key = peerKey(peer, apiKey, notes);
    return models.map((model) => {
      const source = `${peer}/${model}`;
      const id = names.takeId(source);
      notes.add(source, freeNote);
      notes.add(source, contextNote);
      return {
        source,
        fields: {
          version: 1,
          id,
          name: names.takeName(id, [model]),
          hugging_face_id: names.takeName(id, [repositoryOf(model) ?? id]),
          task_type: 'chat',
          context_length: contextLengthUnknown,
          pricing: freePricing,
          driver: 'external',
          url: proxy.replace(/\/+$/, '').replace(/\/v1$/, ''),
          upstream_model: model,
          ...(key !== null && { api_key_env: key }),
        },
      };
    });
  });
}

function peerKey(peer: string, apiKey: string | undefined, notes: Notes): string | null {
  if (apiKey === undefined || apiKey === '') return null;
  const [reference] = [...apiKey.matchAll(environmentMacro)];
  if (reference?.[0] === apiKey) return reference[1] ?? null;
  const variable = keyVariable(peer);
  notes.add(peer, `its API key was not written to the file: set ${variable} to the key in the gateway's environment`);
  return variable;
}
