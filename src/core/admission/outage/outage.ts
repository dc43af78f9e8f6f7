export { Outages } from './outages.ts';
