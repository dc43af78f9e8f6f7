import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import { createReporter } from './support/reporter.ts';
import { planSuites, suiteHasTests } from './support/suites.ts';

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const root = new URL('..', import.meta.url).pathname;
const quickTests = ['test/tidy/**/*.test.ts', 'test/unit/**/*.test.ts'];
const plan = planSuites(process.env, suiteHasTests);

/** Starts PostgreSQL once for the files of a project. */
const globalSetup = ['test/support/global-setup.ts'];

function project(name: string, options: ProjectOptions): TestProjectInlineConfiguration {
  // A wait ends when what is waited for is there; how long a busy machine takes for it is not what is tested.
  const expect = { poll: { timeout: 30_000 } };
  return { root, test: { name, testTimeout: 60_000, hookTimeout: 60_000, expect, ...options } };
}

/**
 * `quick` needs no service and belongs to verify; `house` needs PostgreSQL and processes, which every machine has;
 * then one project for each suite of test/suites/ that this machine can run.
 */
export default defineConfig({
  root,
  test: {
    reporters: ['default', createReporter(plan)],
    projects: [
      project('quick', { include: quickTests }),
      project('house', { include: ['test/**/*.test.ts'], exclude: [...quickTests, 'test/suites/**'], globalSetup }),
      ...plan.run.map((name, index) => {
        const include = [`test/suites/${name}/**/*.test.ts`];
        // A group of its own never runs beside others: what they do would starve a real engine, which is held to times.
        return project(name, { include, globalSetup, testTimeout: 300_000, sequence: { groupOrder: index + 1 } });
      }),
    ],
  },
});
