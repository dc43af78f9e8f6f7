import { expect, it } from 'vitest';
import { injectedNames } from '#core/runs/execute/work-files.ts';
import { reservedInputs } from '#core/stacks/names.ts';

// Runs and stacks do not know each other: a name that one has alone would be asked of users and then overwritten.
it('what runs fill in is what stacks may not ask for', () => {
  expect([...injectedNames].toSorted()).toEqual([...reservedInputs].toSorted());
});
