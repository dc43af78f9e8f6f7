import { availableParallelism } from 'node:os';
import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import { tags } from '#test/needs.ts';
import { createReporter } from '#test/reporter.ts';
import { ByProject } from '#test/sequencer.ts';
import { planSuites, suiteHasTests } from '#test/suites.ts';

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const root = new URL('..', import.meta.url).pathname;
const quickTests = ['test/tidy/**/*.test.ts', 'test/**/*.quick.test.ts'];
const plan = planSuites(process.env, suiteHasTests);

const cores = availableParallelism();
/**
 * Most files wait most of their time: for an engine to start, for a lease to end. Two for each core keep a small machine
 * busy, and leave a slow one enough for the engines that files start; a large one has its cores for the rest.
 */
const filesAtOnce = Math.max(cores, Math.min(2 * cores, 12));

/** Starts PostgreSQL once for all projects that name it. */
const globalSetup = ['test/support/global-setup.ts'];
/** And one Docker engine. */
const dockerSetup = [...globalSetup, 'test/support/docker-setup.ts'];

/** And a model whose tokens cost little. */
const vllmSetup = [...globalSetup, 'test/suites/vllm/setup.ts'];

const setups: Readonly<Record<string, string[]>> = {
  compose: [...globalSetup, 'test/suites/compose/setup.ts'],
  docker: dockerSetup,
  vllm: vllmSetup,
  'vllm-older': vllmSetup,
  'docker-vllm': [...dockerSetup, 'test/suites/vllm/setup.ts'],
  'docker-terraform': dockerSetup,
};

/** Node loads TypeScript itself: Vite would transform each file of `src` once more for each project. */
const asNodeRunsIt = {
  execArgv: [`--import=${root}test/support/prepare-node.ts`],
  experimental: { viteModuleRunner: false, nodeLoader: false },
};

function project(name: string, options: ProjectOptions): TestProjectInlineConfiguration {
  // A wait ends when what is waited for is there; how long a busy machine takes for it is not what is tested. These
  // bounds end what hangs, the wait before its test, so that it says what it waited for. What is waited for needs the
  // processor itself: nobody asks for it more than ten times a second.
  const bounds = { expect: { poll: { timeout: 300_000, interval: 100 } }, testTimeout: 900_000, hookTimeout: 900_000 };
  // Files of a worker share what they import, which costs more than most of them do.
  const common = { ...bounds, isolate: false, tags, ...asNodeRunsIt };
  return { root, test: { name, ...common, ...options } };
}

/** The same tests with another release of vLLM. */
const environments: Readonly<Record<string, Record<string, string>>> = {
  'vllm-older': { VLLM_BIN: process.env['VLLM_OLDER_BIN'] ?? '' },
};

/** Tests of a suite that lie beside what they run. */
const besides: Readonly<Record<string, string>> = { redis: 'test/chaos/*.test.ts' };

/** Files of all these projects run side by side. */
function waiting(name: string, options: ProjectOptions): TestProjectInlineConfiguration {
  return project(name, { globalSetup, maxWorkers: filesAtOnce, sequence: { groupOrder: 1 }, ...options });
}

/**
 * `quick` needs no service and belongs to verify; `house` needs PostgreSQL and processes, which every machine has;
 * then one project for each suite of test/suites/ that this machine can run.
 */
export default defineConfig({
  root,
  test: {
    tags,
    reporters: ['default', createReporter(plan)],
    // As long as gateways, engines and browsers of a file take to end on a slow machine.
    teardownTimeout: 120_000,
    sequence: { sequencer: ByProject },
    projects: [
      project('quick', { include: quickTests, maxWorkers: cores }),
      waiting('house', {
        include: ['test/**/*.test.ts'],
        exclude: [...quickTests, 'test/suites/**', ...Object.values(besides)],
      }),
      ...plan.run.map((name) => {
        const include = [`test/suites/${name}/**/*.test.ts`, besides[name] ?? []].flat();
        const setupFiles = name.includes('vllm') ? ['test/support/patient-fetch.ts'] : [];
        const options = {
          include,
          setupFiles,
          globalSetup: setups[name] ?? globalSetup,
          env: environments[name] ?? {},
        };
        return waiting(name, options);
      }),
    ],
  },
});
