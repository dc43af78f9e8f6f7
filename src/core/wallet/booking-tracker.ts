/**
 * Tracks the organizations that have a booking in progress in this process. A balance read during a booking may or may
 * not include the booking; adding the bookings of `onCredit` to this balance would count one twice, or not at all.
 */
export interface BookingTracker {
  /** Counts the booking as running until the booking has ended and its listeners were called. */
  track<T>(organizationId: string, booking: Promise<T>): Promise<T>;
  running(organizationId: string): boolean;
  /** Waits until all bookings that run now have ended, whether they succeed or fail. */
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
