/** Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */

export const contentType = 'text/plain; version=0.0.4; charset=utf-8';

export type FamilyType = 'counter' | 'gauge' | 'histogram';

/** @returns `route="/v1/models",model="chat"`; empty without names. A value that is missing is an empty text. */
export function labelsText(names: readonly string[], values: readonly string[]): string {
  return names.map((name, index) => `${name}="${escape(values[index] ?? '').replaceAll('"', '\\"')}"`).join(',');
}

/** One line, without its end. @param labels as `labelsText` writes them */
export function sampleText(name: string, labels: string, value: number): string {
  return labels === '' ? `${name} ${numberText(value)}` : `${name}{${labels}} ${numberText(value)}`;
}

/** A family with all its samples; every line ends. */
export function familyText(name: string, help: string, type: FamilyType, samples: readonly string[]): string {
  return `${[`# HELP ${name} ${escape(help)}`, `# TYPE ${name} ${type}`, ...samples].join('\n')}\n`;
}

function escape(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

/** Formats a number as Go's ParseFloat reads it. */
function numberText(value: number): string {
  if (Number.isFinite(value) || Number.isNaN(value)) return String(value);
  return value > 0 ? '+Inf' : '-Inf';
}
