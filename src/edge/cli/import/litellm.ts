import { type Document, isScalar, visit } from 'yaml';
import { z } from 'zod';
import { noConfiguration, readConfiguration } from './configuration.ts';
import { perMillion } from './decimal.ts';
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
import { withFallbacks } from './litellm-fallbacks.ts';
import { costKeys, entryKeys, infoKeys, parameterKeys, routerKeys, settingsKeys, topKeys } from './litellm-keys.ts';
import { repositoryOf } from './program-words.ts';

/** litellm's config.yaml: https://docs.litellm.ai/docs/proxy/configs. Every model becomes an external engine. */

const decimal = z.union([z.string(), z.number()]).nullish();
const costs = {
  input_cost_per_token: decimal,
  output_cost_per_token: decimal,
  cache_read_input_token_cost: decimal,
};
const entry = z.looseObject({
  model_name: z.string(),
  litellm_params: z.looseObject({
    model: z.string(),
    api_base: z.string().nullish(),
    base_url: z.string().nullish(),
    api_key: z.string().nullish(),
    custom_llm_provider: z.string().nullish(),
    ...costs,
  }),
  model_info: z
    .looseObject({
      mode: z.string().nullish(),
      max_input_tokens: z.number().nullish(),
      max_tokens: z.number().nullish(),
      supports_vision: z.boolean().nullish(),
      ...costs,
    })
    .nullish(),
});
type Entry = z.output<typeof entry>;

/** `hidden` keeps an alias out of litellm's list of models. */
const groupAlias = z.union([z.string(), z.looseObject({ model: z.string() })]);
const config = z.looseObject({
  model_list: z.array(entry).nullish(),
  litellm_settings: z.unknown().optional(),
  router_settings: z.looseObject({ model_group_alias: z.record(z.string(), groupAlias).nullish() }).nullish(),
});
type LitellmConfig = z.output<typeof config>;

/** Providers that speak OpenAI's API: their address if the file names none, and the variable that holds their key. */
const providers: Readonly<Record<string, { readonly url: string | null; readonly keyVariable: string | null }>> = {
  openai: { url: 'https://api.openai.com', keyVariable: 'OPENAI_API_KEY' },
  'text-completion-openai': { url: 'https://api.openai.com', keyVariable: 'OPENAI_API_KEY' },
  hosted_vllm: { url: null, keyVariable: null },
  openai_like: { url: null, keyVariable: null },
  litellm_proxy: { url: null, keyVariable: null },
  lm_studio: { url: null, keyVariable: null },
  llamafile: { url: null, keyVariable: null },
  ollama: { url: 'http://localhost:11434', keyVariable: null },
  ollama_chat: { url: 'http://localhost:11434', keyVariable: null },
  groq: { url: 'https://api.groq.com/openai', keyVariable: 'GROQ_API_KEY' },
  openrouter: { url: 'https://openrouter.ai/api', keyVariable: 'OPENROUTER_API_KEY' },
  together_ai: { url: 'https://api.together.xyz', keyVariable: 'TOGETHERAI_API_KEY' },
  deepseek: { url: 'https://api.deepseek.com', keyVariable: 'DEEPSEEK_API_KEY' },
  mistral: { url: 'https://api.mistral.ai', keyVariable: 'MISTRAL_API_KEY' },
};

/**
 * Creates engine files from litellm's configuration. @param source the text of its YAML, from which prices are read
 * exactly
 */
export function importLitellm(source: string): ImportResult {
  const parsed = config.safeParse(readConfiguration(source, keepDecimals));
  if (!parsed.success) throw noConfiguration('litellm', parsed.error);
  const notes = createNotes();
  const names = createNames();
  const drafts = deploymentsOf(parsed.data.model_list ?? [], notes).flatMap((deployment) => {
    return draftEntry(deployment, notes, names) ?? [];
  });
  noteKeys(parsed.data, topKeys, (text) => notes.add(null, text));
  noteKeys(parsed.data.router_settings, routerKeys, (text) => notes.add(null, `router_settings: ${text}`));
  noteKeys(parsed.data.litellm_settings, settingsKeys, (text) => notes.add(null, `litellm_settings: ${text}`));
  const named = withAliases(drafts, parsed.data, { notes, names });
  // The router's own settings override litellm_settings.
  const settings = [parsed.data.router_settings, parsed.data.litellm_settings];
  return { drafts: withFallbacks(named, settings, notes), notes: notes.list };
}

/** Adds aliases to the first engine of the model that they stand for. */
function withAliases(
  drafts: readonly EngineDraft[],
  { router_settings: settings }: LitellmConfig,
  { notes, names }: { readonly notes: Notes; readonly names: Names },
): EngineDraft[] {
  const wanted = Object.entries(settings?.model_group_alias ?? {}).map(([alias, target]) => {
    const model = typeof target === 'string' ? target : target.model;
    return { alias, draft: drafts.find(({ source }) => source === model) };
  });
  const given = wanted.map(({ alias, draft }) => ({
    alias,
    draft: draft !== undefined && names.takeAliases(String(draft.fields['id']), [alias]).length > 0 ? draft : null,
  }));
  for (const { alias } of given.filter(({ draft }) => draft === null)) {
    notes.add(
      null,
      `model_group_alias ${alias}: not imported; its model does not exist, another model has this name, or the name is invalid`,
    );
  }
  return drafts.map((draft) => {
    const aliases = given.filter((one) => one.draft === draft).map(({ alias }) => alias);
    const { version, id, name, ...rest } = draft.fields;
    return aliases.length === 0 ? draft : { ...draft, fields: { version, id, name, aliases, ...rest } };
  });
}

/** Keeps costs as text: a parsed number may be rounded. */
function keepDecimals(document: Document): void {
  visit(document, {
    Pair(_, { key, value }) {
      if (!isScalar(key) || !String(key.value).includes('cost') || !isScalar(value)) return;
      if (typeof value.value === 'number' && value.source !== undefined) value.value = value.source;
    },
  });
}

/** Entries of one model that differ only in their addresses, in the order of the file. */
type Deployment = readonly [Entry, ...Entry[]];

function deploymentsOf(entries: readonly Entry[], notes: Notes): Deployment[] {
  const found: [Entry, ...Entry[]][] = [];
  for (const entry of entries) {
    const named = found.filter(([first]) => first.model_name === entry.model_name);
    const same = named.find(([first]) => isAlike(first, entry));
    if (same !== undefined) same.push(entry);
    else found.push([entry]);
    if (same !== undefined || named.length === 0) continue;
    notes.add(
      entry.model_name,
      'another entry with this name became a separate engine, because its model, key, mode or prices differ',
    );
  }
  return found;
}

/** True if two entries can share an engine. A setting that only the first entry has applies to both. */
function isAlike(first: Entry, other: Entry): boolean {
  const [a, b] = [providerOf(first), providerOf(other)];
  const [ownParams, params] = [first.litellm_params, other.litellm_params];
  const [ownInfo, info] = [first.model_info ?? {}, other.model_info ?? {}];
  const agree = (one: unknown, two: unknown): boolean => (two ?? null) === null || String(one) === String(two);
  return (
    a.provider === b.provider &&
    a.upstream === b.upstream &&
    (ownParams.api_key ?? null) === (params.api_key ?? null) &&
    [...costKeys].every((key) => agree(ownParams[key] ?? ownInfo[key], params[key] ?? info[key])) &&
    (['mode', 'max_input_tokens', 'max_tokens'] as const).every((key) => agree(ownInfo[key], info[key]))
  );
}

function draftEntry(entries: Deployment, notes: Notes, names: Names): EngineDraft | null {
  const [model] = entries;
  const source = model.model_name;
  for (const entry of entries) noteTheRest(entry, notes);
  const { provider, upstream } = providerOf(model);
  const given = entries.flatMap((entry) => addressOf(entry, provider, notes) ?? []);
  const [address = null, ...others] = new Set(given);
  const task = taskOf(model, provider);
  if (source.includes('*') || upstream.includes('*')) {
    notes.add(source, 'not imported: its name has a wildcard, and an engine file names exactly one model');
    return null;
  }
  if (task === null)
    notes.add(source, `not imported: Headgate does not serve models of mode ${model.model_info?.mode}`);
  if (address === null || task === null) return null;
  const id = names.takeId(source);
  if (id !== source) notes.add(source, `the engine has the id ${id}`);
  const key = keyOf(model, provider, id, notes);
  return {
    source,
    fields: {
      version: 1,
      id,
      name: names.takeName(id, [source]),
      hugging_face_id: names.takeName(id, [repositoryOf(upstream) ?? id]),
      task_type: task,
      context_length: contextLengthOf(model, notes),
      pricing: pricingOf(model, notes),
      driver: 'external',
      ...(provider === 'hosted_vllm' && { kind: 'vllm' }),
      ...(others.length === 0 ? { url: address } : { urls: [address, ...others] }),
      ...(upstream !== id && { upstream_model: upstream }),
      ...(key !== null && { api_key_env: key }),
    },
  };
}

/**
 * Returns the provider and the model: the text before the first slash is the provider, unless the entry names its
 * provider; then the whole text is the model.
 */
function providerOf({ litellm_params: { model, custom_llm_provider: named } }: Entry) {
  if (typeof named === 'string' && !model.startsWith(`${named}/`)) return { provider: named, upstream: model };
  const slash = model.indexOf('/');
  return { provider: slash === -1 ? 'openai' : model.slice(0, slash), upstream: model.slice(slash + 1) };
}

function addressOf({ model_name: name, litellm_params: params }: Entry, provider: string, notes: Notes): string | null {
  const known = providers[provider];
  if (known === undefined) {
    notes.add(name, `not imported: Headgate knows no OpenAI-compatible API of ${provider}`);
    return null;
  }
  const given = params.api_base ?? params.base_url ?? known.url;
  if (given === null || given.startsWith('os.environ/')) {
    notes.add(
      name,
      `not imported: its address is ${given === null ? 'missing' : 'in the environment'}; write the address as api_base, and import again`,
    );
    return null;
  }
  return given.replace(/\/+$/, '').replace(/\/v1$/, '');
}

function taskOf({ model_info: info }: Entry, provider: string): string | null {
  const mode = info?.mode ?? (provider === 'text-completion-openai' ? 'completion' : 'chat');
  if (mode === 'chat' || mode === 'responses') return info?.supports_vision === true ? 'vision' : 'chat';
  return ['completion', 'embedding', 'rerank'].includes(mode) ? mode : null;
}

/** Placeholders for keys of servers that need no key. */
const noKey = /^(none|null|empty|dummy|fake.*|no[-_ ]?key.*|not[-_ ]?needed|anything|x+|n\/?a)$/i;

function keyOf({ model_name: name, litellm_params: params }: Entry, provider: string, id: string, notes: Notes) {
  const given = params.api_key ?? '';
  if (given === '') return (params.api_base ?? null) === null ? (providers[provider]?.keyVariable ?? null) : null;
  const reference = /^os\.environ\/([A-Za-z_][A-Za-z0-9_]*)$/.exec(given)?.[1];
  if (reference !== undefined) return reference;
  if (noKey.test(given)) return null;
  const variable = keyVariable(id);
  notes.add(name, `its API key was not written to the file: set ${variable} to the key in the gateway's environment`);
  return variable;
}

function contextLengthOf({ model_name: name, model_info: info }: Entry, notes: Notes): number {
  const length = info?.max_input_tokens ?? info?.max_tokens ?? null;
  if (length !== null && Number.isInteger(length) && length > 0) return length;
  notes.add(name, contextNote);
  return contextLengthUnknown;
}

function pricingOf({ model_name: name, litellm_params: params, model_info: info }: Entry, notes: Notes): object {
  const read = (key: keyof typeof costs): string | null => {
    const given = params[key] ?? info?.[key];
    if (given === undefined || given === null) return null;
    const price = perMillion(String(given));
    if (price === null) notes.add(name, `${key} is not a decimal: set the price in the engine file`);
    else if (!price.exact) notes.add(name, `${key} was rounded up to ${price.value} USD per million tokens`);
    return price?.value ?? null;
  };
  const input = read('input_cost_per_token');
  const output = read('output_cost_per_token');
  if (input === null && output === null) {
    notes.add(name, freeNote);
    return freePricing;
  }
  return {
    input_per_million: input ?? '0',
    cached_input_per_million: read('cache_read_input_token_cost') ?? input ?? '0',
    output_per_million: output ?? '0',
  };
}

function noteTheRest(model: Entry, notes: Notes): void {
  const { model_name: name, litellm_params: params, model_info: info } = model;
  noteKeys(model, entryKeys, (text) => notes.add(name, text));
  noteKeys(params, parameterKeys, (text) => notes.add(name, text));
  const isSet = (value: unknown): boolean => value !== undefined && value !== null;
  if (isSet(params.api_base) && isSet(params.base_url))
    notes.add(name, 'base_url: not imported; the file has api_base too, which is used instead');
  // With max_input_tokens, max_tokens is the longest answer and not the context.
  const isLength = !isSet(info?.max_input_tokens);
  noteKeys(info, { ...infoKeys, ...(isLength && { max_tokens: null }) }, (text) =>
    notes.add(name, `model_info: ${text}`),
  );
  for (const key of costKeys) {
    if (isSet(params[key]) && isSet(info?.[key]))
      notes.add(name, `model_info: ${key}: not imported; the value in litellm_params is used instead`);
  }
}
