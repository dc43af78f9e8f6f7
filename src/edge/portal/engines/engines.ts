export { commandEngine, confirmPage, engineLog, enginePage } from './engine-page.ts';
export { engineTroubles, enginesPage, reloadEngines } from './engines-page.ts';
export { modelPage, modelsPage, modelStatus } from './models-page.ts';
export { playgroundModels, playgroundPage, serveChat } from './playground.ts';
