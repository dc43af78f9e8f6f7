import { globSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { describe, expect, it } from 'vitest';
import { alertTypes } from '#core/alerts/alerts.ts';

const root = new URL('../..', import.meta.url).pathname;
const page = readFileSync(`${root}compose/runbooks.md`, 'utf8');

interface Rule {
  readonly alert: string;
  readonly annotations: Readonly<Record<string, string>>;
}

const rules = globSync('compose/prometheus/rules/*.yml', { cwd: root }).flatMap((path) => {
  const { groups } = parse(readFileSync(`${root}${path}`, 'utf8')) as { groups: { rules: Rule[] }[] };
  return groups.flatMap((group) => group.rules);
});

/** Sections by heading, with what stands below each. */
const sections = new Map(
  page
    .split(/^### /m)
    .slice(1)
    .map((text): [string, string] => {
      const [heading = '', ...lines] = text.split('\n');
      const below = lines.join('\n').split(/^## /m)[0] ?? '';
      return [heading, below.trim()];
    }),
);

describe('the runbooks', () => {
  it('have a section for each Prometheus alert and each event type, and no other', () => {
    expect(rules.length).toBeGreaterThan(20);
    const wanted = [...rules.map(({ alert }) => alert), ...alertTypes];
    expect([...sections.keys()].toSorted()).toEqual(wanted.toSorted());
  });

  it('have text in each section', () => {
    for (const [heading, text] of sections) expect(text.length, heading).toBeGreaterThan(30);
  });

  it('are linked from each Prometheus alert', () => {
    for (const { alert, annotations } of rules) {
      expect(annotations['runbook'], alert).toBe(`compose/runbooks.md#${alert.toLowerCase()}`);
    }
  });
});
