import { describe, expect, it } from 'vitest';
import { mergeMetrics } from '#base/metrics/prometheus-merge.ts';

const merge = (charsMax = 10_000) => mergeMetrics({ takes: (name) => name.startsWith('vllm:'), charsMax });
const family = (name: string, type: string, ...samples: string[]): string =>
  `# HELP ${name} Help of ${name}.\n# TYPE ${name} ${type}\n${samples.join('\n')}\n`;
const labels = (replica: string) => ({ model: 'chat', replica, host: 'local' });

describe('merged metrics of several targets', () => {
  it('omit lines that would make the whole text invalid', () => {
    const merged = merge();
    const wrong = [
      'vllm:a{',
      'vllm:a{b="c} 1',
      'vllm:a 1 2 3',
      'vllm:a{b="\n"} 1',
      'vllm:a one',
      'vllm:a{b=c} 1',
      '<html>',
      'vllm:a{b="c",b="d"} 1',
      'vllm:a{model="c",exported_model="d"} 1',
      'vllm:a{__name__="vllm:b"} 1',
      'vllm:a{b="c\\x"} 1',
      'vllm:a{b="\0"} 1',
      'vllm:a 1e999',
      'vllm:a -1e999',
    ];
    expect(merged.add(family('vllm:a', 'gauge', ...wrong, 'vllm:a{b="c"} 2'), labels('r1'))).toBe(true);
    expect(merged.text()).toBe(
      '# HELP vllm:a Help of vllm:a.\n# TYPE vllm:a gauge\nvllm:a{model="chat",replica="r1",host="local",b="c"} 2\n',
    );
  });

  it('omit families that are not requested, undeclared, or of another type elsewhere', () => {
    const merged = merge();
    merged.add(`${family('process_x', 'gauge', 'process_x 1')}vllm:undeclared 1\n`, labels('r1'));
    merged.add(family('vllm:a', 'gauge', 'vllm:a 1'), labels('r1'));
    merged.add(family('vllm:a', 'counter', 'vllm:a 7'), labels('r2'));
    expect(merged.text()).not.toMatch(/process_x|undeclared|r2/);
  });

  it('omit buckets without a bound, and a second declaration of a family', () => {
    const merged = merge();
    const buckets = ['vllm:t_bucket 1', 'vllm:t_bucket{le="x"} 1', 'vllm:t_bucket{le="1e999"} 1', 'vllm:t_sum 1'];
    const text = family('vllm:t', 'histogram', ...buckets, '# TYPE vllm:t constructor', '# HELP vllm:t Other');
    merged.add(`${text}${family('vllm:b', 'constructor', 'vllm:b 1')}`, labels('r1'));
    expect(merged.text()).toBe(
      '# HELP vllm:t Help of vllm:t.\n# TYPE vllm:t histogram\nvllm:t_sum{model="chat",replica="r1",host="local"} 1\n',
    );
  });

  it('include a target completely or not at all', () => {
    const merged = merge(150);
    expect(merged.add(family('vllm:a', 'gauge', 'vllm:a 1'), labels('r1'))).toBe(true);
    const large = family('vllm:a', 'gauge', ...Array.from({ length: 9 }, (_, index) => `vllm:a{n="${index}"} 1`));
    expect(merged.add(large, labels('r2'))).toBe(false);
    expect(merged.text()).not.toContain('r2');
    expect(merged.add(family('vllm:a', 'gauge', 'vllm:a 1'), labels('r3'))).toBe(true);
  });

  it("have each family once, with the target's labels on each sample", () => {
    const merged = merge();
    const histogram = ['vllm:t_bucket{le="+Inf"} 2', 'vllm:t_sum 0.5', 'vllm:t_count 2'];
    for (const replica of ['r1', 'r2']) merged.add(family('vllm:t', 'histogram', ...histogram), labels(replica));
    const text = merged.text();
    expect(text.match(/# TYPE/g)).toHaveLength(1);
    expect(text.match(/^vllm:t_(bucket|sum|count)\{/gm)).toHaveLength(6);
    expect(text).toContain('vllm:t_bucket{model="chat",replica="r2",host="local",le="+Inf"} 2\n');
  });

  it('rename a label that has a reserved name, and keep odd characters', () => {
    const merged = merge();
    const odd = String.raw`vllm:a{model="o\"d\\d\n}",b="{x} 1"} NaN`;
    merged.add(family('vllm:a', 'gauge', odd, odd), { model: 'a"b', replica: 'r1' });
    expect(merged.text().split('\n').slice(2)).toEqual([
      String.raw`vllm:a{model="a\"b",replica="r1",exported_model="o\"d\\d\n}",b="{x} 1"} NaN`,
      '',
    ]);
  });
});
