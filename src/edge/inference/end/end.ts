/** The end of a call: its cost is covered, its record written, and its resources released. */
export { raiseWatermark } from './counter-watermark.ts';
export { coverCost } from './cover-cost.ts';
export { finish } from './settle.ts';
