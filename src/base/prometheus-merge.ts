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
  /** Of all samples that are taken, in characters. */
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
  /^([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*)\})? ([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf|NaN)$/;
const labelPattern = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const endings: Readonly<Record<string, readonly string[]>> = {
  histogram: ['_bucket', '_sum', '_count'],
  summary: ['', '_sum', '_count'],
  counter: [''],
  gauge: [''],
};

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
        if (family === null || !takes(family)) continue;
        const series = `${name}{${own}${renamed(given, labels)}}`;
        // Of two values of one series the first is as good as the second.
        if (!found.has(series)) found.set(series, { family, sample: `${series} ${value}` });
      }
    }
    return { types, found: [...found.values()] };
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
      const all = [...families].map(([name, { help, type, samples }]) => {
        const head = [...(help === null ? [] : [`# HELP ${name} ${help}`]), `# TYPE ${name} ${type}`];
        return `${[...head, ...samples].join('\n')}\n`;
      });
      return all.join('');
    },
  };
}

type Declared = Map<string, { help: string | null; type: string }>;

function declare(types: Declared, [, what, name = '', rest = '']: RegExpExecArray): void {
  const known = types.get(name) ?? { help: null, type: '' };
  types.set(name, what === 'HELP' ? { ...known, help: rest } : { ...known, type: rest });
}

/** The family that a sample is of; null where none of a type that is known was declared. */
function familyOf(sample: string, types: Declared): string | null {
  for (const ending of ['', '_bucket', '_sum', '_count']) {
    if (!sample.endsWith(ending)) continue;
    const family = sample.slice(0, sample.length - ending.length);
    const type = types.get(family)?.type ?? '';
    if (endings[type]?.includes(ending) === true) return family;
  }
  return null;
}

/** The labels of a sample, behind a comma where there are any. */
function renamed(given: string, labels: Readonly<Record<string, string>>): string {
  const all = [...given.matchAll(labelPattern)].map(([, name = '', value]) => {
    return `,${name in labels ? `exported_${name}` : name}="${value}"`;
  });
  return all.join('');
}
