/** A time as people read it: `2026-11-24 18:30 UTC`. @param ms since the Unix epoch */
export const utcText = (ms: number): string => `${new Date(ms).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
