import type { Notes } from './draft.ts';

/** Reads the words of a command for the model that the command serves. */

/** Options of vLLM that Headgate sets itself. */
const givenByHeadgate = new Set([
  '--host',
  '--port',
  '--uds',
  '--api-key',
  '--served-model-name',
  '--enable-force-include-usage',
  '--enable-prompt-tokens-details',
  '--shutdown-timeout',
]);
const switches = new Set(['--enable-force-include-usage', '--enable-prompt-tokens-details']);

const nameOf = (word: string): string => (word.split('=', 1)[0] ?? '').replaceAll('_', '-');

/** Returns the value of the last of these options, written `--a 1` or `--a=1`; null if none is present. */
export function optionValue(words: readonly string[], ...names: readonly string[]): string | null {
  const index = words.findLastIndex((word) => names.includes(nameOf(word)));
  const word = words[index];
  if (word === undefined) return null;
  const equals = word.indexOf('=');
  return equals === -1 ? (words[index + 1] ?? null) : word.slice(equals + 1);
}

export function hasOption(words: readonly string[], ...names: readonly string[]): boolean {
  return words.some((word) => names.includes(nameOf(word)));
}

/** Returns vLLM's options without those that Headgate sets itself, which are noted. */
export function withoutGiven(words: readonly string[], model: string, notes: Notes): string[] {
  const kept: string[] = [];
  const given = new Set<string>();
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index] ?? '';
    const name = nameOf(word);
    if (!word.startsWith('--') || !givenByHeadgate.has(name)) {
      kept.push(word);
      continue;
    }
    if (name === '--api-key')
      notes.add(model, '--api-key: not imported; the engine needs no key, because only Headgate can reach it');
    else given.add(name);
    if (switches.has(name) || word.includes('=')) continue;
    // --served-model-name and --api-key accept any number of values.
    const many = name === '--served-model-name' || name === '--api-key';
    do index += 1;
    while (many && index + 1 < words.length && !(words[index + 1] ?? '').startsWith('-'));
  }
  if (given.size > 0) notes.add(model, `${[...given].join(', ')}: not imported; Headgate sets this itself`);
  return kept;
}

/** Moves the model to the front: `--model X` is the older form of `vllm serve X`. The last one applies. */
export function modelFirst(words: readonly string[]): string[] {
  const model = optionValue(words, '--model');
  if (model === null) return [...words];
  const isModel = (word = ''): boolean => nameOf(word) === '--model';
  const isValue = (before = ''): boolean => isModel(before) && !before.includes('=');
  return [model, ...words.filter((word, index) => !isModel(word) && !isValue(words[index - 1]))];
}

/** Returns the task of a server by its options; null if no option determines it. */
export function taskOf(words: readonly string[]): 'embedding' | 'rerank' | null {
  const task = optionValue(words, '--task', '--convert');
  if (hasOption(words, '--reranking', '--rerank') || task === 'score' || task === 'classify') return 'rerank';
  if (hasOption(words, '--embedding', '--embeddings') || task === 'embed' || task === 'embedding') return 'embedding';
  return optionValue(words, '--runner') === 'pooling' ? 'embedding' : null;
}

/** Returns the name if it is a repository on Hugging Face; null for a path or none. */
export function repositoryOf(model: string | null): string | null {
  return model !== null && /^[A-Za-z0-9][\w.-]*\/[\w.-]+$/.test(model) ? model : null;
}
