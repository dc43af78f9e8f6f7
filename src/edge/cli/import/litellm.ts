import { type Document, isScalar, visit } from 'yaml';
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
  type Names,
  type Notes,
} from './draft.ts';
import { noteKeys } from './keys.ts';
import { type Cost, type Entry, type LitellmConfig, litellmConfig } from './litellm-config.ts';
import { providerOf, serverFields, serversOf } from './litellm-deployments.ts';
import { withFallbacks } from './litellm-fallbacks.ts';
import { costKeys, entryKeys, infoKeys, parameterKeys, routerKeys, settingsKeys, topKeys } from './litellm-keys.ts';
import { repositoryOf } from './program-words.ts';

/** litellm's config.yaml: https://docs.litellm.ai/docs/proxy/configs. Every model becomes an external engine. */

/**
 * Creates engine files from litellm's configuration. @param source the text of its YAML, from which prices are read
 * exactly
 */
export function importLitellm(source: string): ImportResult {
  const parsed = litellmConfig.safeParse(readConfiguration(source, keepDecimals));
  if (!parsed.success) throw noConfiguration('litellm', parsed.error);
  const notes = createNotes();
  const names = createNames();
  const drafts = groupsOf(parsed.data.model_list ?? [], notes).flatMap((group) => {
    return draftGroup(group, notes, names) ?? [];
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

/** Entries of one model, in the order of the file. */
type Group = readonly [Entry, ...Entry[]];

/** Returns the entries that become one engine: those with one name, except entries of another kind of model. */
function groupsOf(entries: readonly Entry[], notes: Notes): Group[] {
  const found: [Entry, ...Entry[]][] = [];
  for (const entry of entries) {
    const named = found.filter(([first]) => first.model_name === entry.model_name);
    const same = named.find(([first]) => taskOf(first) === taskOf(entry));
    if (same !== undefined) same.push(entry);
    else found.push([entry]);
    if (same !== undefined || named.length === 0) continue;
    notes.add(entry.model_name, 'another entry with this name became a separate engine, because its mode differs');
  }
  return found;
}

function draftGroup(group: Group, notes: Notes, names: Names): EngineDraft | null {
  const [first] = group;
  const source = first.model_name;
  for (const entry of group) noteTheRest(entry, notes);
  const task = taskOf(first);
  if (task === null)
    notes.add(source, `not imported: Headgate does not serve models of mode ${first.model_info?.mode}`);
  const servers = serversOf(group, notes);
  const [server] = servers;
  if (server === undefined || task === null) return null;
  const id = names.takeId(source);
  if (id !== source) notes.add(source, `the engine has the id ${id}`);
  const entries = servers.map(({ entry }) => entry);
  return {
    source,
    fields: {
      version: 1,
      id,
      name: names.takeName(id, [source]),
      hugging_face_id: names.takeName(id, [repositoryOf(server.upstream) ?? id]),
      task_type: task,
      context_length: contextLengthOf(source, entries, notes),
      pricing: pricingOf(source, entries, notes),
      driver: 'external',
      ...(servers.every(({ provider }) => provider === 'hosted_vllm') && { kind: 'vllm' }),
      ...serverFields(servers, id, notes),
    },
  };
}

function taskOf(entry: Entry): string | null {
  const { model_info: info } = entry;
  const { provider } = providerOf(entry);
  const mode = info?.mode ?? (provider === 'text-completion-openai' ? 'completion' : 'chat');
  if (mode === 'chat' || mode === 'responses') return info?.supports_vision === true ? 'vision' : 'chat';
  return ['completion', 'embedding', 'rerank'].includes(mode) ? mode : null;
}

/** Returns the smallest context of the deployments: any of them may get a request. */
function contextLengthOf(source: string, entries: readonly Entry[], notes: Notes): number {
  const lengths = entries.flatMap(({ model_info: info }) => {
    const length = info?.max_input_tokens ?? info?.max_tokens ?? 0;
    return Number.isInteger(length) && length > 0 ? [length] : [];
  });
  if (lengths.length > 0) return Math.min(...lengths);
  notes.add(source, contextNote);
  return contextLengthUnknown;
}

const costOf = ({ litellm_params: params, model_info: info }: Entry, key: Cost) => params[key] ?? info?.[key] ?? null;

/** Returns the prices of the first deployment that has any: an engine has one price, whoever answers. */
function pricingOf(source: string, entries: readonly Entry[], notes: Notes): object {
  const priced = entries.filter((entry) => costKeys.some((key) => costOf(entry, key) !== null));
  const [first] = priced;
  const isOther = (entry: Entry, key: Cost): boolean =>
    first !== undefined && String(costOf(entry, key)) !== String(costOf(first, key));
  if (priced.some((entry) => costKeys.some((key) => isOther(entry, key))))
    notes.add(source, 'its deployments have different prices: the engine file has the prices of the first one');
  const read = (key: Cost): string | null => {
    const given = first === undefined ? null : costOf(first, key);
    if (given === null) return null;
    const price = perMillion(String(given));
    if (price === null) notes.add(source, `${key} is not a decimal: set the price in the engine file`);
    else if (!price.exact) notes.add(source, `${key} was rounded up to ${price.value} USD per million tokens`);
    return price?.value ?? null;
  };
  const input = read('input_cost_per_token');
  const output = read('output_cost_per_token');
  if (input === null && output === null) {
    notes.add(source, freeNote);
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
