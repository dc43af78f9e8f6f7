import { readFileSync } from 'node:fs';
import { defaultLimits } from './engine-model.ts';
import { simulate, type Policy } from './simulate.ts';
import { makeTrace, parseTrace, type TraceRequest } from './trace.ts';

/**
 * Prints what routing is worth: `node test/core/routing/simulation/routing.ts [trace.jsonl]`. With a file in the format of the
 * Mooncake traces that is played; else an hour of the same shape is made up.
 */

const policies: readonly Policy[] = ['round robin', 'least load', 'prefix affinity'];

interface Scenario {
  readonly name: string;
  readonly trace: readonly TraceRequest[];
  readonly replicas: number;
  readonly gateways: number;
}

function scenarios(path: string | undefined): Scenario[] {
  const seconds = 3600;
  const trace = path === undefined ? makeTrace({ seconds, seed: 1 }) : parseTrace(readFileSync(path, 'utf8'));
  const name = path === undefined ? 'conversations' : 'the trace';
  const all = [
    { name, trace, replicas: 8, gateways: 1 },
    { name, trace, replicas: 8, gateways: 3 },
  ];
  if (path !== undefined) return all;
  const small = makeTrace({ seconds, seed: 1, rate: 0.35 });
  const apps = makeTrace({ seconds, seed: 1, systemPrompts: 6, systemPages: 6 });
  return [
    ...all,
    { name: 'conversations', trace: small, replicas: 3, gateways: 1 },
    { name: '6 system prompts', trace: apps, replicas: 8, gateways: 1 },
  ];
}

const cells = (values: readonly (string | number)[]): string =>
  values.map((value, at) => (at === 0 ? String(value).padEnd(34) : String(value).padStart(12))).join('');

const lines = [cells(['', 'requests', 'cached', 'TTFT p50', 'TTFT p99', 'work', 'load'])];
for (const { name, trace, replicas, gateways } of scenarios(process.argv[2])) {
  lines.push(`${name}, ${replicas} replicas, ${gateways} gateway${gateways === 1 ? '' : 's'}`);
  for (const policy of policies) {
    const result = simulate(trace, { policy, replicas, gateways, limits: defaultLimits, seed: 7, blocksMax: 8192 });
    lines.push(
      cells([
        `  ${policy}`,
        result.requests,
        `${(result.cachedShare * 100).toFixed(1)} %`,
        `${result.firstTokenMsP50.toFixed(0)} ms`,
        `${result.firstTokenMsP99.toFixed(0)} ms`,
        result.workImbalance.toFixed(2),
        result.loadImbalance.toFixed(2),
      ]),
    );
  }
}
process.stdout.write(`${lines.join('\n')}\n`);
