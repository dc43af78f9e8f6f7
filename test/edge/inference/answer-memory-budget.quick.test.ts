import { describe, expect, it } from 'vitest';
import { type AnswerPlace, createAnswerMemoryBudget } from '#edge/inference/answer/answer-memory-budget.ts';

const mib = 1_048_576;

/** A memory budget, and who has a turn in it in the order in which they got it. */
function open(bytesMax = 400 * mib) {
  const budget = createAnswerMemoryBudget({ bytesMax });
  const turns: string[] = [];
  const enter = (organization: string, name = organization): AnswerPlace =>
    budget.enter(organization, 8 * mib, () => turns.push(name));
  return { turns, enter };
}

describe('the memory for large answers', () => {
  it('collects one answer per organization at a time, in order, and skips answers whose client left', () => {
    const { turns, enter } = open();
    const [first, second, third] = [enter('a', '1'), enter('a', '2'), enter('a', '3')];
    expect(turns).toEqual(['1']);
    second?.end();
    expect(third?.waits).toBe(true);
    first?.end();
    first?.end();
    expect(turns).toEqual(['1', '3']);
    expect(third?.waits).toBe(false);
  });

  it('collects four answers at a time, then the next one of the organization with the fewest bytes', () => {
    const { turns, enter } = open();
    const first = enter('a');
    for (const other of ['b', 'c', 'd']) enter(other);
    enter('a', 'a again');
    enter('e');
    expect(turns).toEqual(['a', 'b', 'c', 'd']);
    first.add(50 * mib);
    first.end();
    expect(turns).toEqual(['a', 'b', 'c', 'd', 'e']);
  });

  it('collects one answer at a time while half of the memory is in use', () => {
    const { turns, enter } = open(100 * mib);
    const first = enter('a');
    first.add(50 * mib);
    first.collected();
    const second = enter('b');
    enter('c');
    expect(turns).toEqual(['a', 'b']);
    second.end();
    expect(turns).toEqual(['a', 'b', 'c']);
  });

  it('makes an organization wait while its unread answers use more than a quarter of the memory', () => {
    const { turns, enter } = open();
    const first = enter('a', '1');
    first.add(50 * mib);
    first.collected();
    const second = enter('a', '2');
    second.add(50 * mib);
    second.collected();
    enter('a', '3');
    expect(turns).toEqual(['1', '2']);
    first.end();
    expect(turns).toEqual(['1', '2', '3']);
  });

  it('frees all memory and places when answers end, in any order', () => {
    const { turns, enter } = open(64 * mib);
    for (let round = 0; round < 50; round += 1) {
      const places = ['a', 'b', 'a', 'c', 'd', 'e', 'f', 'a'].map((organization) => enter(organization));
      places.forEach((place, index) => {
        if (!place.waits) place.add(20 * mib);
        if (index % 3 === 0) place.collected();
      });
      for (const place of round % 2 === 0 ? places : places.toReversed()) place.end();
    }
    const before = turns.length;
    for (const organization of ['a', 'b', 'c', 'd']) enter(organization);
    expect(turns.length - before).toBe(4);
  });
});
