import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createMetrics } from '#base/metrics/metrics.ts';
import { mergeMetrics } from '#base/metrics/prometheus-merge.ts';

/** Runs promtool on metrics: it ends with 1 where it cannot read them, and with 3 where it suggests other names. */
function checkMetrics(text: string): { readonly status: number | null; readonly complaints: string } {
  const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  return { status, complaints: stderr };
}

it('writes metrics that promtool accepts, for any labels, help texts and values', async () => {
  const metrics = createMetrics();
  const odd = ['"', '\\', '\n', '\\n', '}', '{a="b"}', ' ', '', 'ä', '\u{1f600}', '\t', '#'];
  const things = metrics.counter({ name: 'hg_things_total', help: odd.join(''), labelNames: ['one', 'two'] });
  const sizes = metrics.histogram({ name: 'hg_size_seconds', help: 'Sizes', labelNames: ['one'] }, [0.001, 1e9]);
  for (const one of odd) {
    for (const two of odd) things.of(one, two).add(0.1);
    sizes.of(one).observe(1e-7);
  }
  metrics.gauge({ name: 'hg_level_ratio', help: 'Levels', labelNames: ['one'] }, (set) => {
    [NaN, Infinity, -Infinity, -0, 1e300, 5e-324].forEach((value, index) => set(value, odd[index] ?? ''));
  });
  const { status, complaints } = checkMetrics(await metrics.text());
  expect([0, 3]).toContain(status);
  expect(complaints).not.toContain('hg_');
  expect(checkMetrics('hg_things_total{one="a} 1\n').status).toBe(1);
});

const name = fc.constantFrom(
  'hg_a',
  'hg_a_bucket',
  'hg_a_sum',
  'hg_a_count',
  'hg_b',
  'hg_c',
  'hg_c_count',
  '1',
  'hg-a',
);
const label = fc.constantFrom('le', 'quantile', 'model', 'exported_model', '__name__', 'b', 'constructor', 'b:c', '');
const piece = fc.constantFrom(
  'a',
  '1',
  '+Inf',
  '\\',
  '\\\\',
  '\\"',
  '"',
  '\\n',
  '\\x',
  '\0',
  '\r',
  ' ',
  '\u2028',
  'ä',
  '}',
  ',',
);
const value = fc.oneof(
  fc.constantFrom('1', '1e999', '-1e999', '1e-999', 'NaN', 'Inf', '-Inf', '0x1p3', '1_0', '.5', '5.', '1 2', '', 'nan'),
  fc.array(piece, { maxLength: 3 }).map((pieces) => pieces.join('')),
);
const bound = fc.constantFrom('1', '0.5', '+Inf', 'a');
const pair = fc.tuple(label, fc.oneof({ weight: 4, arbitrary: bound }, value)).map(([key, text]) => `${key}="${text}"`);
const labels = fc.array(pair, { maxLength: 4 }).map((pairs) => (pairs.length === 0 ? '' : `{${pairs.join(',')}}`));
const type = fc.constantFrom('gauge', 'counter', 'histogram', 'summary', 'untyped', 'constructor', '', 'gauge ');
const line = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .tuple(name, labels, fc.oneof({ weight: 3, arbitrary: fc.constant('1') }, value))
      .map(([own, given, text]) => `${own}${given} ${text}`),
  },
  fc.tuple(name, type).map((said) => `# TYPE ${said.join(' ')}`),
  fc.tuple(name, value).map((said) => `# HELP ${said.join(' ')}`),
);
const known = fc.constantFrom('gauge', 'counter', 'histogram', 'summary');
const said = fc.tuple(known, known, type).map((types) => types.map((one, index) => `# TYPE hg_${'abc'[index]} ${one}`));
const target = fc.tuple(said, fc.array(line, { minLength: 20, maxLength: 60 })).map((parts) => parts.flat().join('\n'));

it('merges the metrics of several engines into output that promtool accepts, for any input', () => {
  let samples = 0;
  const check = fc.property(fc.array(target, { minLength: 1, maxLength: 8 }), (targets) => {
    const merged = mergeMetrics({ takes: (family) => family.startsWith('hg_'), charsMax: 1e6 });
    for (const [index, text] of targets.entries()) merged.add(text, { model: 'chat', replica: `r${index}` });
    const text = merged.text();
    samples += text.split('\n').filter((one) => one.startsWith('hg_')).length;
    const { status, complaints } = checkMetrics(text);
    expect([0, 3], `${complaints}\n${text}`).toContain(status);
  });
  fc.assert(check, { numRuns: 60 });
  expect(samples).toBeGreaterThan(200);
  for (const wrong of ['hg_a{b="c",b="d"} 1', 'hg_a{b="c\\x"} 1', 'hg_a 1e999']) {
    expect(checkMetrics(`# TYPE hg_a gauge\n${wrong}\n`).status, wrong).toBe(1);
  }
});
