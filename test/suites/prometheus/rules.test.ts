import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const compose = new URL('../../../compose/', import.meta.url).pathname;

function check(...args: readonly string[]): string {
  return execFileSync('promtool', ['check', ...args], { encoding: 'utf8' });
}

describe('promtool', () => {
  it('accepts the alert rules', () => {
    const rules = globSync('prometheus/rules/*.yml', { cwd: compose });
    expect(rules).not.toEqual([]);
    for (const rule of rules) expect(check('rules', `${compose}${rule}`)).toContain('SUCCESS');
  });

  it('accepts the configuration', () => {
    expect(check('config', '--syntax-only', `${compose}prometheus/prometheus.yml`)).toContain('SUCCESS');
  });
});

/** What two copies of an engine report for 20 minutes: both have a request, and only one makes tokens. */
const stuckTest = `
rule_files: ['${compose}prometheus/rules/headgate.yml']
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - { series: 'vllm:num_requests_running{model="chat",replica="stuck",host="a"}', values: '1x20' }
      - { series: 'vllm:num_requests_waiting{model="chat",replica="stuck",host="a"}', values: '2x20' }
      - { series: 'vllm:prompt_tokens_total{model="chat",replica="stuck",host="a"}', values: '900x20' }
      - { series: 'vllm:generation_tokens_total{model="chat",replica="stuck",host="a"}', values: '500x20' }
      - { series: 'vllm:num_requests_running{model="chat",replica="busy",host="a"}', values: '1x20' }
      - { series: 'vllm:num_requests_waiting{model="chat",replica="busy",host="a"}', values: '0x20' }
      - { series: 'vllm:prompt_tokens_total{model="chat",replica="busy",host="a"}', values: '900x20' }
      - { series: 'vllm:generation_tokens_total{model="chat",replica="busy",host="a"}', values: '500+60x20' }
      - { series: 'vllm:num_requests_running{model="chat",replica="idle",host="a"}', values: '0x20' }
      - { series: 'vllm:num_requests_waiting{model="chat",replica="idle",host="a"}', values: '0x20' }
      - { series: 'vllm:prompt_tokens_total{model="chat",replica="idle",host="a"}', values: '900x20' }
      - { series: 'vllm:generation_tokens_total{model="chat",replica="idle",host="a"}', values: '500x20' }
    alert_rule_test:
      - eval_time: 20m
        alertname: HeadgateEngineStuck
        exp_alerts:
          - exp_labels: { severity: critical, model: chat, replica: stuck, host: a }
            exp_annotations:
              summary: Replica stuck of chat has requests but has produced no token for 10 minutes
              runbook: compose/runbooks.md#headgateenginestuck
              description: The replica answers its probes, so the gateway does not restart it.
`;

describe('the alert for a stuck engine', () => {
  it('fires for a replica with requests and without new tokens, and for no other', () => {
    const folder = mkdtempSync(join(tmpdir(), 'hg-rules-'));
    try {
      writeFileSync(join(folder, 'stuck.yml'), stuckTest);
      const text = execFileSync('promtool', ['test', 'rules', join(folder, 'stuck.yml')], { encoding: 'utf8' });
      expect(text).toContain('SUCCESS');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
