/** Something that a list can hold; it belongs to one list at most. */
export interface Slotted {
  /** Its index in the list, -1 when it is in none; only the list changes it. */
  slot: number;
}

/**
 * A set without an order. The tables of a Set, once old, keep everything alive that went through it until the next full
 * collection; here a slot that was left is written over.
 */
export interface SlotList<T extends Slotted> {
  readonly size: number;
  add(member: T): void;
  remove(member: T): void;
  /** Visits every member that is there from beginning to end; members may be added and removed meanwhile. */
  forEach(visit: (member: T) => void): void;
}

export function createSlotList<T extends Slotted>(): SlotList<T> {
  const members: T[] = [];
  return {
    get size() {
      return members.length;
    },

    add(member) {
      member.slot = members.length;
      members.push(member);
    },

    remove(member) {
      const slot = member.slot;
      if (slot === -1) return;
      member.slot = -1;
      const last = members.pop();
      if (last === undefined || last === member) return;
      members[slot] = last;
      last.slot = slot;
    },

    // From the end: what a removal moves comes from behind and has been visited.
    forEach(visit) {
      for (let slot = members.length - 1; slot >= 0; slot -= 1) {
        const member = members[slot];
        if (member !== undefined) visit(member);
      }
    },
  };
}
