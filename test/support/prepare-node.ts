import { prepareRuntime } from '../../src/programs/runtime.js';

/** Loads the product in test processes as a gateway loads it: with its compile cache, and CommonJS for drizzle-orm. */
prepareRuntime();
