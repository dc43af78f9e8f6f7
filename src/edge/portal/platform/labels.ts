import { area, badge, html, type Html, type Refusal } from '#edge/portal/ui/ui.ts';

/** Labels of clusters and nodes, as text with one `key=value` on each line. */

type Labels = Readonly<Record<string, string>>;

export const labelsText = (labels: Labels): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join('\n');

export function labelsOf(text: string): Labels {
  const lines = text
    .split(/[\r\n]+/)
    .map((line) => line.trim())
    .filter((line) => line !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const [key = '', ...value] = line.split('=');
      return [key.trim(), value.join('=').trim()];
    }),
  );
}

/** Renders the field. Problems of one label are shown with its key. */
export function labelsField(value: string, hint: string, refusal: Refusal | null): Html {
  return area({ name: 'labels', label: 'Labels', value, hint, refusal, placeholder: 'team=research' });
}

export const labelBadges = (labels: Labels): Html =>
  html`${Object.entries(labels).map(([key, value]) => html`${badge('plain', value === '' ? key : `${key}=${value}`)} `)}`;
