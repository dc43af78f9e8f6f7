import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createRoster, type Rostered } from '#core/proxy/slot-list.ts';

describe('a roster', () => {
  it('holds exactly who was added and not removed, whatever the order', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 20 })), (turns) => {
        const people: Rostered[] = Array.from({ length: 21 }, () => ({ rosterSlot: -1 }));
        const roster = createRoster();
        const expected = new Set<Rostered>();
        for (const turn of turns) {
          const person = people[turn];
          if (person === undefined) continue;
          if (expected.delete(person)) roster.remove(person);
          else {
            expected.add(person);
            roster.add(person);
          }
        }
        const seen: Rostered[] = [];
        roster.forEach((person) => seen.push(person));
        expect(seen).toHaveLength(expected.size);
        expect(new Set(seen)).toEqual(expected);
        expect(roster.size).toBe(expected.size);
      }),
    );
  });

  it('visits everybody who stays, while visits remove others and add new ones', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.nat({ max: 9 }), { maxLength: 4 }), { minLength: 10, maxLength: 10 }),
        (plans) => {
          const people = plans.map((plan) => ({ rosterSlot: -1, plan }));
          const roster = createRoster<(typeof people)[number]>();
          for (const person of people) roster.add(person);
          const seen = new Set<object>();
          const removed = new Set<object>();
          roster.forEach((person) => {
            seen.add(person);
            roster.add({ rosterSlot: -1, plan: [] });
            for (const place of person.plan) {
              const other = people[place];
              if (other === undefined) continue;
              removed.add(other);
              roster.remove(other);
            }
          });
          expect(people.filter((person) => !removed.has(person) && !seen.has(person))).toEqual([]);
        },
      ),
    );
  });
});
