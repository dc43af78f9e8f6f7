import { expect, it } from 'vitest';
import { injectedNames } from '#core/runs/execute/work-files.ts';
import { reservedInputs } from '#core/stacks/names.ts';

// Runs and stacks do not know each other: a name that only one reserves would be asked of users and then overwritten.
it('the inputs that runs fill in are the reserved inputs of stacks', () => {
  expect([...injectedNames].toSorted()).toEqual([...reservedInputs].toSorted());
});
