/**
 * Which organizations have a booking under way here. A balance that is read meanwhile may hold the booking or not;
 * adding the bookings of `onCredit` to such a balance would count one twice, or not at all.
 */
export interface BookingTracker {
  /** Counts the booking as running until it has ended and its listeners were called. */
  track<T>(organizationId: string, booking: Promise<T>): Promise<T>;
  running(organizationId: string): boolean;
  /** Waits for those that run now; how they end is not its business. */
  settled(organizationId: string): Promise<void>;
}

export function createBookingTracker(): BookingTracker {
  const byOrganization = new Map<string, Set<Promise<unknown>>>();
  return {
    async track(organizationId, booking) {
      const running = byOrganization.get(organizationId) ?? new Set();
      byOrganization.set(organizationId, running.add(booking));
      try {
        return await booking;
      } finally {
        running.delete(booking);
        if (running.size === 0) byOrganization.delete(organizationId);
      }
    },
    running: (organizationId) => byOrganization.has(organizationId),
    async settled(organizationId) {
      const running = byOrganization.get(organizationId);
      if (running !== undefined) await Promise.allSettled(running);
    },
  };
}
