export { commandEngine, confirmPage } from './engine-commands.ts';
export { engineFilePage, showEngineFile } from './engine-file-page.ts';
export { engineCharts } from './engine-charts.ts';
export { engineLog } from './engine-log.ts';
export { enginePage } from './engine-page.ts';
export { engineTroubles, enginesPage, reloadEngines } from './engines-page.ts';
export { modelPage, modelsPage, modelStatus } from './models-page.ts';
export { playgroundCalls, playgroundModels, playgroundPage, serveCall } from './playground.ts';
export { cancelRequest } from './running-requests.ts';
