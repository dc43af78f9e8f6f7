import { describe, expect, it } from 'vitest';
import { externalFile, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { readEngineMetrics, readMetrics, seriesValue } from './read-metrics.ts';

/** An engine that is well, and whose metrics are what these lines do with `answer`. */
function oddFile(id: string, metrics: string): string {
  const script = `
    require('node:http').createServer((request, answer) => {
      if (request.url !== '/metrics') return answer.end('{}');
      ${metrics}
    }).listen(process.argv[1]);`;
  const lines = ['replicas: { min: 1, max: 1 }'];
  const file = standinFile(id, { lines });
  const command = ['node', '-e', script, '{socket}'];
  return `${file.slice(0, file.indexOf('driver:'))}driver: process\nkind: openai\ncommand: ${JSON.stringify(command)}\n`;
}

const one = (model: string): string => `vllm:num_requests_running{model_name="${model}"} 1`;
const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    silent: oddFile('silent', ''),
    endless: oddFile('endless', `setInterval(() => answer.write('x'.repeat(1e6)), 1);`),
    away: oddFile('away', `answer.writeHead(500).end();`),
    odd: oddFile(
      'odd',
      `answer.end(${JSON.stringify(`# TYPE vllm:num_requests_running gauge\n<html>\n${one('"} 5')}\n${one('odd')}\n`)});`,
    ),
    elsewhere: externalFile('elsewhere', 'http://127.0.0.1:1'),
  },
  env: { HEADGATE_METRICS_PORT: '0' },
}));

const all = ['chat', 'silent', 'endless', 'away', 'odd'];
const up = (text: string, model: string): string | undefined =>
  new RegExp(`^headgate_replica_metrics_up\\{model="${model}",replica="[\\w-]+",host="local"\\} (\\d)$`, 'm').exec(
    text,
  )?.[1];

describe('the metrics of engines', () => {
  it('omit and count replicas that do not answer, answer endlessly, or return an error', async () => {
    await (await bench.chat({})).text();
    const ready = async (): Promise<string[]> => {
      const text = await readEngineMetrics(bench.gateway.metricsUrl);
      return all.filter((model) => up(text, model) !== undefined);
    };
    await expect.poll(ready).toEqual(all);
    const text = await readEngineMetrics(bench.gateway.metricsUrl);
    expect(all.map((model) => up(text, model))).toEqual(['1', '0', '0', '0', '1']);
    const counted = await readMetrics(bench.gateway.metricsUrl);
    for (const engine of ['silent', 'endless', 'away']) {
      expect(seriesValue(counted, `headgate_engine_metrics_failures_total{engine="${engine}"}`)).toBeGreaterThan(0);
    }
    expect(counted).not.toContain('metrics_failures_total{engine="odd"}');
  });

  it("contain only vLLM's metrics, with model, replica and host, without an engine's additions", async () => {
    const text = await readEngineMetrics(bench.gateway.metricsUrl);
    const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    expect(lines.filter((line) => !/^(vllm:|headgate_replica_metrics_up\{)/.test(line))).toEqual([]);
    expect(lines.filter((line) => !/^[^{]+\{model="(\w+)",replica="[\w-]+",host="local"/.test(line))).toEqual([]);
    expect(lines.filter((line) => line.includes('model="odd"'))).toHaveLength(2);
    expect(text).toMatch(/^vllm:prompt_tokens_total\{model="chat",[^}]*\} [1-9]/m);
    expect(text).not.toContain('elsewhere');
  });

  it('are read once for simultaneous requests', async () => {
    const asked = await Promise.all(Array.from({ length: 20 }, () => readEngineMetrics(bench.gateway.metricsUrl)));
    expect(new Set(asked).size).toBe(1);
  });
});
