export { hasEngineTools, refuseCappedTurns, turnsOf } from './engine-tools.ts';
export { refuseUnsupported } from './refused-fields.ts';
export { dropUnserved } from './unserved-tools.ts';
export { generates, supportedParameters } from './supported-parameters.ts';
