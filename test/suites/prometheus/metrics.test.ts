import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { createMetrics } from '#base/metrics.ts';

/** What promtool says of metrics: it ends with 1 where it cannot read them, and with 3 where it would name them otherwise. */
function checkMetrics(text: string): { readonly status: number | null; readonly complaints: string } {
  const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  return { status, complaints: stderr };
}

it('promtool reads whatever labels, help texts and values there are, and finds nothing wrong with what is ours', async () => {
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
