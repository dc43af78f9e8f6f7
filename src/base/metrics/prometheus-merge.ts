import { labelsText } from './prometheus-text.ts';

/**
 * Texts of several targets as one: each sample gets labels that say whose it is, and every family stands there once.
 * A line that is no sample is left out, as a single one would have Prometheus refuse the whole text.
 */
export interface MergedMetrics {
  /**
   * @param labels in order, whose names and values every sample of this text gets; a label of the text's own that has
   *   one of these names is called `exported_…`, as Prometheus calls it
   * @returns false when what it holds has no room, and nothing of it was taken
   */
  add(text: string, labels: Readonly<Record<string, string>>): boolean;
  /** In Prometheus' text format. */
  text(): string;
}

export interface MergeOptions {
  /** Families that are taken. */
  readonly takes: (name: string) => boolean;
  /** Characters of all accepted samples together. */
  readonly charsMax: number;
}

interface MergedFamily {
  readonly help: string | null;
  readonly type: string;
  readonly samples: string[];
}

interface Found {
  readonly family: string;
  readonly sample: string;
}

const samplePattern =
  /^([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\0]|\\[\\"n])*",?)*)\})? ([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf|NaN)$/;
const labelPattern = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const helpPattern = /^(?:[^\\\0]|\\[\\n])*$/;
const endings: ReadonlyMap<string, readonly string[]> = new Map([
  ['histogram', ['_bucket', '_sum', '_count']],
  ['summary', ['', '_sum', '_count']],
  ['counter', ['']],
  ['gauge', ['']],
]);
/** The label that is a number in all samples of a family, and the ending of those that have it. */
const numberLabels: ReadonlyMap<string, { readonly name: string; readonly ending: string }> = new Map([
  ['histogram', { name: 'le', ending: '_bucket' }],
  ['summary', { name: 'quantile', ending: '' }],
]);

export function mergeMetrics({ takes, charsMax }: MergeOptions): MergedMetrics {
  const families = new Map<string, MergedFamily>();
  let chars = 0;

  function read(text: string, labels: Readonly<Record<string, string>>): { types: Declared; found: Found[] } {
    const types: Declared = new Map();
    const found = new Map<string, Found>();
    const own = labelsText(Object.keys(labels), Object.values(labels));
    for (const line of text.split('\n')) {
      const comment = /^# (HELP|TYPE) ([a-zA-Z_:][\w:]*) (.*)$/.exec(line);
      if (comment !== null) declare(types, comment);
      else {
        const [, name = '', given = '', value = ''] = samplePattern.exec(line) ?? [];
        const family = familyOf(name, types);
        if (family === null || !takes(family.name)) continue;
        const others = isInRange(value) ? renamed(given, labels, family.numberLabel) : null;
        if (others === null) continue;
        const series = `${name}{${[own, ...others].join(',')}}`;
        // The first of two values of one series is kept: neither is better.
        if (!found.has(series)) found.set(series, { family: family.name, sample: `${series} ${value}` });
      }
    }
    return { types, found: [...found.values()] };
  }

  /** A family named as the samples of another one, `x_count` beside a histogram `x`, cannot be distinguished from it. */
  function isPartOfOther(name: string): boolean {
    const [, other = '', ending = ''] = /^(.*)(_bucket|_sum|_count)$/.exec(name) ?? [];
    return endings.get(families.get(other)?.type ?? '')?.includes(ending) === true;
  }

  return {
    add(text, labels) {
      const { types, found } = read(text, labels);
      const needed = found.reduce((sum, { sample }) => sum + sample.length + 1, 0);
      if (chars + needed > charsMax) return false;
      chars += needed;
      for (const { family, sample } of found) {
        const { help = null, type = '' } = types.get(family) ?? {};
        const merged = families.get(family) ?? { help, type, samples: [] };
        families.set(family, merged);
        // Targets of another version may mean something else by the name.
        if (merged.type === type) merged.samples.push(sample);
      }
      return true;
    },
    text() {
      const all = [...families]
        .filter(([name]) => !isPartOfOther(name))
        .map(([name, { help, type, samples }]) => {
          const head = [...(help === null ? [] : [`# HELP ${name} ${help}`]), `# TYPE ${name} ${type}`];
          return `${[...head, ...samples].join('\n')}\n`;
        });
      return all.join('');
    },
  };
}

type Declared = Map<string, { help: string | null; type: string }>;

/** Keeps the first HELP and the first TYPE of a family, because its samples are read by them. */
function declare(types: Declared, [, what, name = '', rest = '']: RegExpExecArray): void {
  const known = types.get(name) ?? { help: null, type: '' };
  const help = known.help ?? (what === 'HELP' && helpPattern.test(rest) ? rest : null);
  types.set(name, { help, type: known.type === '' && what === 'TYPE' ? rest : known.type });
}

interface NumberLabel {
  readonly name: string;
  readonly isNeeded: boolean;
}

interface SampleFamily {
  readonly name: string;
  /** The label that is a number, and whether it must be there; null for none. */
  readonly numberLabel: NumberLabel | null;
}

/** The family that a sample is of; null where none of a type that is known was declared. */
function familyOf(sample: string, types: Declared): SampleFamily | null {
  for (const ending of ['', '_bucket', '_sum', '_count']) {
    if (!sample.endsWith(ending)) continue;
    const name = sample.slice(0, sample.length - ending.length);
    const type = types.get(name)?.type ?? '';
    if (endings.get(type)?.includes(ending) !== true) continue;
    const label = numberLabels.get(type) ?? null;
    return { name, numberLabel: label && { name: label.name, isNeeded: label.ending === ending } };
  }
  return null;
}

/** True if Go's ParseFloat accepts a number; ParseFloat rejects numbers too large for a double. */
function isInRange(value: string): boolean {
  return /^(?:[+-]?Inf|NaN)$/.test(value) || Number.isFinite(Number(value));
}

const numberPattern = /^(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf|NaN)$/;

/**
 * The labels of a sample beside ours; null where Prometheus would refuse them: a name that stands there twice, one of
 * its own (`__name__`), or a bucket without its bound.
 */
function renamed(
  given: string,
  labels: Readonly<Record<string, string>>,
  numberLabel: NumberLabel | null,
): string[] | null {
  const all = new Map<string, string>();
  for (const [, name = '', value = ''] of given.matchAll(labelPattern)) {
    const own = Object.hasOwn(labels, name) ? `exported_${name}` : name;
    if (own.startsWith('__') || all.has(own) || Object.hasOwn(labels, own)) return null;
    all.set(own, value);
  }
  const bound = numberLabel === null ? undefined : all.get(numberLabel.name);
  if (bound === undefined && numberLabel?.isNeeded === true) return null;
  if (bound !== undefined && !(numberPattern.test(bound) && isInRange(bound))) return null;
  return [...all].map(([name, value]) => `${name}="${value}"`);
}
