import { UsageError } from '#edge/cli/shell/shell.ts';

/** True for an argument that sets or removes a label: `team=research`, `team-`. Names of nodes have neither form. */
export const isLabelChange = (word: string): boolean => word.includes('=') || word.endsWith('-');

/** Reads `KEY=VALUE`, and `KEY-` where labels can be removed, into the form of the API. @throws UsageError */
export function readLabels(words: readonly string[], mayRemove: boolean): Readonly<Record<string, string | null>> {
  return Object.fromEntries(
    words.map((word) => {
      const at = word.indexOf('=');
      if (at > 0) return [word.slice(0, at), word.slice(at + 1)];
      if (mayRemove && at === -1 && word.length > 1 && word.endsWith('-')) return [word.slice(0, -1), null];
      throw new UsageError(`${word} is no label: write KEY=VALUE${mayRemove ? ', or KEY- to remove a label' : ''}`);
    }),
  );
}

/** Formats labels as `team=research,env=prod`; `-` for none. */
export function labelsText(labels: Readonly<Record<string, string>>): string {
  const texts = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return texts.length === 0 ? '-' : texts.join(',');
}
