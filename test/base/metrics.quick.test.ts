import { describe, expect, it } from 'vitest';
import { createMetrics, type Metrics } from '#base/metrics/metrics.ts';

/** The families that are ours, without those of the process and of Node. */
async function readOwn(metrics: Metrics, first: string): Promise<string> {
  const text = await metrics.text();
  return text.slice(text.indexOf(`# HELP ${first} `));
}

describe('the text of metrics', () => {
  it('escapes characters that would end a label or a line early', async () => {
    const metrics = createMetrics();
    const things = metrics.counter({ name: 'things_total', help: 'a "b"\\\nc', labelNames: ['name', 'kind'] });
    things.of('"\\\n}', 'ä').add(2);
    const lines = [
      String.raw`# HELP things_total a "b"\\\nc`,
      '# TYPE things_total counter',
      String.raw`things_total{name="\"\\\n}",kind="ä"} 2`,
      '',
    ];
    expect(await readOwn(metrics, 'things_total')).toBe(lines.join('\n'));
  });

  it('has a series without labels from the start, and one with labels from its first use', async () => {
    const metrics = createMetrics();
    metrics.counter({ name: 'plain_total', help: 'p' });
    const labelled = metrics.counter({ name: 'labelled_total', help: 'l', labelNames: ['a'] });
    const before = '# HELP plain_total p\n# TYPE plain_total counter\nplain_total 0\n\n';
    const heads = '# HELP labelled_total l\n# TYPE labelled_total counter\n';
    expect(await readOwn(metrics, 'plain_total')).toBe(`${before}${heads}`);
    labelled.of('x').add(0.5);
    labelled.of('y');
    labelled.of('x').add(1);
    const series = 'labelled_total{a="x"} 1.5\nlabelled_total{a="y"} 0\n';
    expect(await readOwn(metrics, 'plain_total')).toBe(`${before}${heads}${series}`);
  });

  it('counts a value in every bucket from its own upwards', async () => {
    const metrics = createMetrics();
    const sizes = metrics.histogram({ name: 'sizes', help: 's', labelNames: ['a'] }, [0.5, 1]);
    for (const size of [0.5, 0.75, 3]) sizes.of('x').observe(size);
    const lines = [
      '# HELP sizes s',
      '# TYPE sizes histogram',
      'sizes_bucket{a="x",le="0.5"} 1',
      'sizes_bucket{a="x",le="1"} 2',
      'sizes_bucket{a="x",le="+Inf"} 3',
      'sizes_sum{a="x"} 4.25',
      'sizes_count{a="x"} 3',
      '',
    ];
    expect(await readOwn(metrics, 'sizes')).toBe(lines.join('\n'));
  });

  it('reads a gauge each time: drops removed series, and keeps the last of two values', async () => {
    const metrics = createMetrics();
    let now = new Map([
      ['a', Infinity],
      ['b', -Infinity],
      ['c', NaN],
    ]);
    metrics.gauge({ name: 'level', help: 'l', labelNames: ['of'] }, (set) => {
      set(-1, 'a');
      now.forEach((value, of) => set(value, of));
    });
    const heads = '# HELP level l\n# TYPE level gauge\n';
    const first = 'level{of="a"} +Inf\nlevel{of="b"} -Inf\nlevel{of="c"} NaN\n';
    expect(await readOwn(metrics, 'level')).toBe(`${heads}${first}`);
    now = new Map([['a', 1e21]]);
    expect(await readOwn(metrics, 'level')).toBe(`${heads}level{of="a"} 1e+21\n`);
  });

  it('starts with the metrics of the process and of Node.js', async () => {
    const metrics = createMetrics();
    metrics.counter({ name: 'ours_total', help: 'o' });
    const families = [...(await metrics.text()).matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
    expect(families[0]).toBe('process_cpu_user_seconds_total');
    expect(families).toContain('nodejs_gc_duration_seconds');
    expect(families.at(-1)).toBe('ours_total');
  });
});
