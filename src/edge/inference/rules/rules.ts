export { hasEngineTools, refuseCappedTurns, turnsOf } from './engine-tools.ts';
export { refuseUnsupported } from './refused-fields.ts';
export { generates, supportedParameters } from './supported-parameters.ts';
