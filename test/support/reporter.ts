import { writeFileSync } from 'node:fs';
import type { SerializedError } from 'vitest';
import type { Reporter, TestCase, TestModule, Vitest } from 'vitest/node';
import { whyLeftOut } from './needs.ts';
import type { SuitePlan } from './suites.ts';

/**
 * Says before and after a run which suites it leaves out, and behind it which tests this machine cannot run; ends it
 * with the line "N passed, N failed". What is not a test's own failure counts as one too: a file that cannot be loaded, a
 * required suite that cannot run, an error outside of every test, a test that is switched off.
 *
 * Where all failures are those of test files, it writes them to the file that TEST_FAILED_FILE names, a line for each
 * test: path, tab, name. The run then ends with status 3, unless something else fails behind it, such as a global
 * teardown: Vitest makes the status 1.
 */
export function createReporter(plan: SuitePlan): Reporter {
  let whole = false;
  let filteredByName = false;
  let passed = 0;
  let failed = 0;
  return {
    onInit(vitest: Vitest) {
      // The last word of the process: behind what other reporters and the teardown print.
      process.once('exit', (code) => write(`${passed} passed, ${code !== 0 && failed === 0 ? 1 : failed} failed`));
      whole = [vitest.config.project].flat().every((name) => name === undefined || name === '*');
      filteredByName = vitest.config.testNamePattern !== undefined;
      if (whole) for (const line of [...plan.notes, ...plan.problems]) write(line);
    },
    onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]) {
      const results = countResults(modules);
      const off = filteredByName ? { leftOut: [], switchedOff: [] } : findOff(modules);
      const problems = [
        ...(whole ? plan.problems : []),
        ...off.switchedOff,
        ...(results.passed + results.failed === 0 ? ['no test has run'] : []),
      ];
      passed = results.passed;
      failed = results.failed + problems.length + errors.length;
      // Behind all the details, which a log that is cut loses first.
      const lost = findFailed(modules);
      for (const line of [...(whole ? plan.notes : []), ...off.leftOut, ...problems]) write(line);
      for (const { path, name, why } of lost) write(`failed: ${path} > ${name}: ${why}`);
      if (failed > 0) process.exitCode = 1;
      const path = process.env['TEST_FAILED_FILE'];
      if (path === undefined || lost.length === 0 || problems.length + errors.length > 0) return;
      writeFileSync(path, lost.map((each) => `${each.path}\t${each.name}\n`).join(''));
      process.exitCode = onlyTestsFailed;
    },
  };
}

/** Exit status of a run in which nothing failed but tests; .ci/run runs their files again. */
const onlyTestsFailed = 3;

function write(line: string): void {
  process.stdout.write(`${line}\n`);
}

function countResults(modules: readonly TestModule[]): { passed: number; failed: number } {
  let passed = 0;
  let failed = 0;
  for (const module of modules) {
    const tests = [...module.children.allTests()];
    const failedTests = tests.filter((test) => test.result().state === 'failed').length;
    passed += tests.filter((test) => test.result().state === 'passed').length;
    failed += failedTests;
    // A file that failed with no failed test in it: it could not be loaded, or one of its hooks threw.
    if (failedTests === 0 && module.state() === 'failed') failed += 1;
  }
  return { passed, failed };
}

interface Failed {
  readonly path: string;
  readonly name: string;
  /** First line of the error, at most 200 characters. */
  readonly why: string;
}

/** Lists the tests that failed, and files that failed outside of their tests. */
function findFailed(modules: readonly TestModule[]): Failed[] {
  return modules.flatMap((module) => {
    const tests = [...module.children.allTests('failed')];
    if (tests.length === 0 && module.state() === 'failed') return [failedOf(module, '(the file)', module.errors())];
    return tests.map((test) => failedOf(module, test.fullName, test.result().errors));
  });
}

function failedOf(module: TestModule, name: string, errors: readonly { message: string }[] = []): Failed {
  return { path: module.relativeModuleId, name, why: errors[0]?.message.split('\n')[0]?.slice(0, 200) ?? '' };
}

/** A line for each test that has not run: for what this machine lacks, or for no reason that a user would accept. */
function findOff(modules: readonly TestModule[]): { leftOut: string[]; switchedOff: string[] } {
  const leftOut: string[] = [];
  const switchedOff: string[] = [];
  for (const module of modules) {
    for (const test of module.children.allTests()) {
      if (!isSwitchedOff(test, module.state() === 'failed')) continue;
      const name = `${module.relativeModuleId} > ${test.fullName}`;
      const why = whyLeftOut(test.tags);
      if (why === null) switchedOff.push(`switched off: ${name}`);
      else leftOut.push(`left out: ${name} (${why})`);
    }
  }
  return { leftOut, switchedOff };
}

/** Where a hook failed, which is counted, its tests are skipped without having been switched off. */
function isSwitchedOff(test: TestCase, isInFailedFile: boolean): boolean {
  if (test.options.mode === 'skip' || test.options.mode === 'todo') return true;
  return !isInFailedFile && ['skipped', 'pending'].includes(test.result().state);
}
