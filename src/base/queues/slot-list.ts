/** A member of a list; each belongs to one list at most. */
export interface Slotted {
  /** Index in the list, -1 outside of any list; only the list changes it. */
  slot: number;
}

/**
 * An unordered set. The tables of an old Set keep all former members alive until the next full collection; here a freed
 * slot is overwritten.
 */
export interface SlotList<T extends Slotted> {
  readonly size: number;
  add(member: T): void;
  remove(member: T): void;
  /** Visits every member that is present from beginning to end; members may be added and removed meanwhile. */
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

    // Iterates from the end: a removal moves the last member, which has been visited.
    forEach(visit) {
      for (let slot = members.length - 1; slot >= 0; slot -= 1) {
        const member = members[slot];
        if (member !== undefined) visit(member);
      }
    },
  };
}
