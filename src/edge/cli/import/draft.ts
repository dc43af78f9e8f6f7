import { Document, isMap, isSeq } from 'yaml';
import { looksSecret } from '#core/catalog/catalog.ts';

/** The import of one model from another program's configuration, before it is written as an engine file. */

export interface EngineDraft {
  /** The model's name in the other program, to which notes refer. */
  readonly source: string;
  /** Fields of the engine file, in the order in which they are written. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A setting that could not be carried over, or that the user has to check. */
export interface ImportNote {
  /** null: about the configuration as a whole. */
  readonly model: string | null;
  readonly text: string;
}

export interface ImportResult {
  readonly drafts: readonly EngineDraft[];
  readonly notes: readonly ImportNote[];
}

/** Collects notes; repeated notes about the same model are kept once. */
export interface Notes {
  readonly list: readonly ImportNote[];
  add(model: string | null, text: string): void;
}

export function createNotes(): Notes {
  const list: ImportNote[] = [];
  return {
    list,
    add(model, given) {
      const text = withoutSecrets(given);
      if (!list.some((note) => note.model === model && note.text === text)) list.push({ model, text });
    },
  };
}

/** Masks words that look like secrets: a malformed command may contain secrets anywhere. */
function withoutSecrets(text: string): string {
  return text.replace(/\S+/g, (word) => (looksSecret(word) ? '…' : word));
}

/** Assigns ids, names and repositories, which share one name space over all engines, so that none is given twice. */
export interface Names {
  /** Returns an unused id for a model: its own name if that is a valid id. */
  takeId(wanted: string): string;
  /** Returns the first of these names that is free for the engine with this id. */
  takeName(id: string, wanted: readonly string[]): string;
  /** Returns the names that are free for the engine with this id, and are not its id or name. */
  takeAliases(id: string, wanted: readonly string[]): readonly string[];
}

export function createNames(): Names {
  const owners = new Map<string, string>();
  const isFree = (name: string, id: string): boolean => (owners.get(name.toLowerCase()) ?? id) === id;
  const take = (name: string, id: string): string => {
    owners.set(name.toLowerCase(), id);
    return name;
  };
  return {
    takeId(wanted) {
      const base = toId(wanted);
      let id = base;
      for (let count = 2; owners.has(id.toLowerCase()); count += 1) id = `${base}-${count}`;
      return take(id, id);
    },
    takeName(id, wanted) {
      const name = wanted.find((candidate) => isName(candidate) && isFree(candidate, id)) ?? id;
      return take(name, id);
    },
    takeAliases(id, wanted) {
      return wanted.flatMap((alias) => (isName(alias) && !owners.has(alias.toLowerCase()) ? take(alias, id) : []));
    },
  };
}

const isName = (text: string): boolean => text.length > 0 && text.length <= 128 && /^[^\p{Cc}\p{Cs}]+$/u.test(text);

function toId(text: string): string {
  const id = text.replace(/[^A-Za-z0-9._:/-]+/g, '-').replace(/^[^A-Za-z0-9_]+/, '');
  return id.slice(0, 100) || 'model';
}

/** Returns the file name for an id: `org/Model:q4` → `org-model-q4.yaml` */
export function fileNameOf(id: string): string {
  return `${id.toLowerCase().replace(/[^a-z0-9._-]+/g, '-')}.yaml`;
}

/** Returns the name of the variable for a key: `my-model` → `MY_MODEL_API_KEY` */
export function keyVariable(name: string): string {
  const stem = name
    .toUpperCase()
    .replace(/[^A-Z0-9]+/g, '_')
    .replace(/^_+|_+$/g, '');
  return `${/^\d/.test(stem) ? 'MODEL_' : ''}${stem}_API_KEY`;
}

/** Returns the text of an engine file. */
export function renderDraft({ fields }: EngineDraft, comments: readonly string[], schemaPath: string | null): string {
  const document = new Document(fields);
  const { contents } = document;
  for (const pair of isMap(contents) ? contents.items : []) {
    // Writes empty lists on one line; other lists have one item per line.
    if (isSeq(pair.value) && pair.value.items.length === 0) pair.value.flow = true;
  }
  const head = [
    ...(schemaPath === null ? [] : [` yaml-language-server: $schema=${schemaPath}`]),
    ...comments.flatMap((comment) => wrap(comment, 116).map((line) => ` ${line}`)),
  ];
  const comment = head.map((line) => `#${line}\n`).join('');
  return comment + document.toString({ lineWidth: 0 });
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/)) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** Prices of a model without known prices: requests to a model without a price are rejected. */
export const freePricing = { input_per_million: '0', cached_input_per_million: '0', output_per_million: '0' };

export const freeNote = 'its price is unknown: requests are free until you set pricing in the engine file';

export const contextLengthUnknown = 8192;

export const contextNote = `its context length is unknown: set context_length in the engine file, now ${contextLengthUnknown}`;
