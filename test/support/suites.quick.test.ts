import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { longest } from './sequencer.ts';
import { planSuites } from './suites.ts';

const everySuite = (): boolean => true;
const noSuite = (): boolean => false;
/** A program and a folder that every machine has. */
const vllm = { VLLM_BIN: process.execPath, VLLM_MODEL: '/' };

describe('the plan of the suites', () => {
  it('names a suite that is left out, with the reason', () => {
    expect(planSuites({}, everySuite).notes).toContain('left out: vllm (VLLM_BIN and VLLM_MODEL are not set)');
    expect(planSuites({ ...vllm, VLLM_MODEL: '' }, everySuite).notes).toContain(
      'left out: vllm (VLLM_MODEL is not set)',
    );
    expect(planSuites({ ...vllm, VLLM_BIN: '/nothing' }, everySuite).notes).toContain(
      'left out: vllm (VLLM_BIN names no program: /nothing)',
    );
    expect(planSuites({ ...vllm, VLLM_MODEL: '/nothing' }, everySuite).notes).toContain(
      'left out: vllm (VLLM_MODEL names no folder: /nothing)',
    );
  });

  it('names an older vLLM that is left out, and runs it beside the newer one', () => {
    expect(planSuites(vllm, everySuite).notes).toContain(
      'left out: vllm-older (VLLM_OLDER_BIN is not set: only one version of vLLM is tried)',
    );
    expect(planSuites({ ...vllm, VLLM_OLDER_BIN: process.execPath }, everySuite).run).toEqual(
      expect.arrayContaining(['vllm', 'vllm-older']),
    );
  });

  it('fails for a required suite that is left out', () => {
    expect(planSuites({ TEST_REQUIRE: 'vllm' }, everySuite).problems).toEqual([
      'required suite cannot run: vllm (VLLM_BIN and VLLM_MODEL are not set)',
    ]);
  });

  it('fails for an unknown required suite', () => {
    expect(planSuites({ TEST_REQUIRE: 'vlm' }, noSuite).problems).toEqual([
      expect.stringMatching(/^TEST_REQUIRE names an unknown suite: vlm \(known: .*\bvllm, redis\b.*\)$/),
    ]);
  });

  it('fails for a required suite with tests and without a condition to run them', () => {
    expect(planSuites({ TEST_REQUIRE: 'browser' }, everySuite).problems).toHaveLength(1);
  });

  it('reports that a required suite without tests has nothing to run', () => {
    expect(planSuites({ TEST_REQUIRE: 'browser, docker' }, noSuite)).toEqual({
      run: [],
      notes: [
        'nothing to run: docker (no tests in this version)',
        'nothing to run: browser (no tests in this version)',
      ],
      problems: [],
    });
  });

  it('runs every suite that the machine supports', () => {
    expect(planSuites({ ...vllm, TEST_REQUIRE: 'vllm' }, (name) => name === 'vllm')).toEqual({
      run: ['vllm'],
      notes: [],
      problems: [],
    });
  });
});

it('finds every file of the list of longest tests', () => {
  const root = new URL('../..', import.meta.url).pathname;
  expect(longest.filter((path) => !existsSync(`${root}${path}`))).toEqual([]);
});
