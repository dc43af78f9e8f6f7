import { isDeepStrictEqual } from 'node:util';
import { keyVariable, type Notes } from './draft.ts';
import type { Entry } from './litellm-config.ts';

/** The servers of one model in litellm's configuration, and the fields of an external engine for them. */

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
 * Returns the provider and the model: the text before the first slash is the provider, unless the entry names its
 * provider; then the whole text is the model.
 */
export function providerOf({ litellm_params: { model, custom_llm_provider: named } }: Entry) {
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

/** One server of a model. */
export interface LitellmServer {
  readonly entry: Entry;
  readonly provider: string;
  /** Name of the model at the server. */
  readonly upstream: string;
  readonly url: string;
}

/** Returns the servers of a model that can be imported; notes why others cannot. */
export function serversOf(entries: readonly Entry[], notes: Notes): LitellmServer[] {
  return entries.flatMap((entry) => {
    const { provider, upstream } = providerOf(entry);
    const url = addressOf(entry, provider, notes);
    if (!entry.model_name.includes('*') && !upstream.includes('*'))
      return url === null ? [] : [{ entry, provider, upstream, url }];
    notes.add(entry.model_name, 'not imported: its name has a wildcard, and an engine file names exactly one model');
    return [];
  });
}

interface Settings {
  readonly url: string;
  readonly weight: number;
  /** Fields for the name of the model and the key, if the server needs them. */
  readonly own: { readonly upstream_model?: string; readonly api_key_env?: string };
}

/**
 * Returns `url` or `urls` for servers that differ only in their addresses, else `deployments`, with the names of models
 * and keys.
 */
export function serverFields(servers: readonly LitellmServer[], id: string, notes: Notes): object {
  const variables = new Map<string, string>();
  const all = servers.map((server): Settings => {
    const key = keyOf(server, id, { notes, variables });
    const model = server.upstream === id ? {} : { upstream_model: server.upstream };
    const own = { ...model, ...(key !== null && { api_key_env: key }) };
    return { url: server.url, weight: weightOf(server.entry, notes), own };
  });
  const isSame = (one: Settings, other: Settings): boolean =>
    one.url === other.url && isDeepStrictEqual(one.own, other.own);
  const distinct = all.filter((one, index) => all.findIndex((other) => isSame(one, other)) === index);
  const [first, ...others] = distinct;
  if (first === undefined) return {};
  const isAlike = others.every(({ own, weight }) => weight === first.weight && isDeepStrictEqual(own, first.own));
  if (!isAlike) return { deployments: distinct.map((one, index) => deploymentFields(one, distinct.slice(0, index))) };
  const address = others.length === 0 ? { url: first.url } : { urls: distinct.map(({ url }) => url) };
  return { ...address, ...first.own };
}

/** @param before earlier deployments; another one of the same host needs a name, which else is the host */
function deploymentFields({ url, weight, own }: Settings, before: readonly Settings[]): object {
  const host = hostOf(url);
  const sameHost = before.filter((one) => hostOf(one.url) === host).length;
  const name = sameHost === 0 ? {} : { name: `${host} ${sameHost + 1}` };
  return { ...name, url, ...own, ...(weight !== 1 && { weight }) };
}

const hostOf = (url: string): string => URL.parse(url)?.host ?? url;

const weightMax = 1000;

function weightOf({ model_name: name, litellm_params: { weight: given } }: Entry, notes: Notes): number {
  if (given === undefined || given === null) return 1;
  const weight = Number(given);
  if (weight > 0 && weight <= weightMax) return weight;
  notes.add(name, `weight ${weight}: not imported; expected more than 0 and at most ${weightMax}, now 1`);
  return 1;
}

/** Placeholders for keys of servers that need no key. */
const noKey = /^(none|null|empty|dummy|fake.*|no[-_ ]?key.*|not[-_ ]?needed|anything|x+|n\/?a)$/i;

interface KeyContext {
  readonly notes: Notes;
  /** Variables of keys that the file contains, by key: different keys need different variables. */
  readonly variables: Map<string, string>;
}

/** Returns the name of the variable with a server's key; null without a key. */
function keyOf({ entry, provider }: LitellmServer, id: string, { notes, variables }: KeyContext): string | null {
  const { model_name: name, litellm_params: params } = entry;
  const given = params.api_key ?? '';
  if (given === '') return (params.api_base ?? null) === null ? (providers[provider]?.keyVariable ?? null) : null;
  const reference = /^os\.environ\/([A-Za-z_][A-Za-z0-9_]*)$/.exec(given)?.[1];
  if (reference !== undefined) return reference;
  if (noKey.test(given)) return null;
  const known = variables.get(given);
  if (known !== undefined) return known;
  const variable = keyVariable(variables.size === 0 ? id : `${id}-${variables.size + 1}`);
  variables.set(given, variable);
  notes.add(name, `its API key was not written to the file: set ${variable} to the key in the gateway's environment`);
  return variable;
}
