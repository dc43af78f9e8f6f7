/** The module of uPlot, which the gateway serves from node_modules beside the script of charts. */
export { default } from 'uplot';
