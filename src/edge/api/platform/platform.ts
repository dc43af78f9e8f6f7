export { registerClusterRoutes } from './clusters.ts';
export { registerRunRoutes } from './runs.ts';
export { registerStackRoutes } from './stacks.ts';
