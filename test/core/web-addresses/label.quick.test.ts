import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { labelsFor, wantedLabel } from '#core/web-addresses/label.ts';
import { isSameSite } from '#core/web-addresses/listing.ts';

/** Names of web addresses. */

const first = (wanted: string, id = 'an-installation'): string => labelsFor(wanted, id).next().value ?? '';
const some = (wanted: string, id: string, count: number): string[] =>
  Array.from(
    { length: count },
    (
      (labels) => () =>
        labels.next().value ?? ''
    )(labelsFor(wanted, id)),
  );

describe('the label of an address', () => {
  it('is <stack>--<cluster> when that fits', () => {
    expect(first(wantedLabel('notebook', 'research'))).toBe('notebook--research');
    const long = wantedLabel('a'.repeat(30), 'b'.repeat(31));
    expect([first(long), long.length]).toEqual([long, 63]);
  });

  it('is shortened with a stable hash when it is too long', () => {
    const label = first(wantedLabel('a'.repeat(40), `${'b'.repeat(30)}-c`));
    expect(label).toMatch(/^a{40}--b{14}-[0-9a-f]{6}$/);
    expect(first(wantedLabel('a'.repeat(40), `${'b'.repeat(30)}-c`), 'another')).toBe(label);
    expect(first(wantedLabel('a'.repeat(40), `${'b'.repeat(30)}-d`))).not.toBe(label);
  });

  it('never begins with xn--, which browsers read as encoded Unicode', () => {
    expect(first(wantedLabel('xn', 'abc'))).toBe('stack-xn--abc');
  });

  it('is a valid and unique DNS label for every stack and cluster', () => {
    const stack = fc.stringMatching(/^[a-z0-9][a-z0-9-]{1,62}$/);
    const cluster = fc.stringMatching(/^[a-z0-9](?:-?[a-z0-9]){0,31}$/);
    fc.assert(
      fc.property(stack, cluster, (stackName, clusterName) => {
        const labels = some(wantedLabel(stackName, clusterName), 'an-installation', 4);
        expect(new Set(labels).size).toBe(4);
        for (const label of labels) expect(label).toMatch(/^(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/);
      }),
    );
  });
});

describe('isSameSite', () => {
  it.each([
    ['example.com', 'example.com', true],
    ['example.com', 'api.example.com', true],
    ['apps.api.example.com', 'api.example.com', true],
    ['apps.example.com', 'api.example.com', false],
    ['example.com', 'badexample.com', false],
  ])('returns whether %s and %s are one site: %s', (domain, host, expected) => {
    expect(isSameSite(domain, host)).toBe(expected);
  });
});
