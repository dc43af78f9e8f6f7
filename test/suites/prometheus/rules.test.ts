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

/** Reports of two copies of an engine for 20 minutes: both have a request, and only one makes tokens. */
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
              description: The replica answers its probes. The gateway restarts it unless its file has wedged_seconds 0.
`;

/** The first gateway stays, the second one stops after 30 minutes, and the third one takes its place after 35. */
function missingTest(hasThird: boolean): string {
  const third = `
      - { series: 'up{job="headgate",instance="c"}', values: '_x35 1x60' }`;
  const alert = `
          - exp_labels: { severity: warning }
            exp_annotations:
              summary: "Fewer gateways run than within the last hour: 1"
              runbook: compose/runbooks.md#headgatemissing
              description: Docker's DNS no longer lists a stopped container, so HeadgateDown cannot name it.`;
  return `
rule_files: ['${compose}prometheus/rules/headgate.yml']
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - { series: 'up{job="headgate",instance="a"}', values: '1x120' }
      - { series: 'up{job="headgate",instance="b"}', values: '1x30 stale' }${hasThird ? third : ''}
    alert_rule_test:
      - { eval_time: 30m, alertname: HeadgateMissing, exp_alerts: [] }
      - { eval_time: 34m, alertname: HeadgateMissing, exp_alerts: [] }
      - eval_time: 45m
        alertname: HeadgateMissing
        exp_alerts:${hasThird ? ' []' : alert}
`;
}

/** Runs the rules over the series of a test. @throws with the alerts that differ from the expected alerts */
function runRules(test: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'hg-rules-'));
  try {
    writeFileSync(join(folder, 'test.yml'), test);
    return execFileSync('promtool', ['test', 'rules', join(folder, 'test.yml')], { encoding: 'utf8' });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('the alert for a stuck engine', () => {
  it('fires for a replica with requests and without new tokens, and for no other', () => {
    expect(runRules(stuckTest)).toContain('SUCCESS');
  });
});

describe('the alert for a missing gateway', () => {
  it('fires when one of several gateways stopped and its series ended', () => {
    expect(runRules(missingTest(false))).toContain('SUCCESS');
  });

  it('does not fire when another gateway takes its place within ten minutes', () => {
    expect(runRules(missingTest(true))).toContain('SUCCESS');
  });
});
