import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSlotList, type Slotted } from '#base/queues/queues.ts';

describe('a slot list', () => {
  it('holds exactly the items that were added and not removed, in any order of calls', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 20 })), (turns) => {
        const people: Slotted[] = Array.from({ length: 21 }, () => ({ slot: -1 }));
        const list = createSlotList();
        const expected = new Set<Slotted>();
        for (const turn of turns) {
          const person = people[turn];
          if (person === undefined) continue;
          if (expected.delete(person)) list.remove(person);
          else {
            expected.add(person);
            list.add(person);
          }
        }
        const seen: Slotted[] = [];
        list.forEach((person) => seen.push(person));
        expect(seen).toHaveLength(expected.size);
        expect(new Set(seen)).toEqual(expected);
        expect(list.size).toBe(expected.size);
      }),
    );
  });

  it('visits every remaining item while visits remove others and add new ones', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.nat({ max: 9 }), { maxLength: 4 }), { minLength: 10, maxLength: 10 }),
        (plans) => {
          const people = plans.map((plan) => ({ slot: -1, plan }));
          const list = createSlotList<(typeof people)[number]>();
          for (const person of people) list.add(person);
          const seen = new Set<object>();
          const removed = new Set<object>();
          list.forEach((person) => {
            seen.add(person);
            list.add({ slot: -1, plan: [] });
            for (const place of person.plan) {
              const other = people[place];
              if (other === undefined) continue;
              removed.add(other);
              list.remove(other);
            }
          });
          expect(people.filter((person) => !removed.has(person) && !seen.has(person))).toEqual([]);
        },
      ),
    );
  });
});
