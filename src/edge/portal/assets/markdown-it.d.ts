/** The browser module of markdown-it, which the gateway serves from node_modules beside the modules of the playground. */
export { default, type Env, type Token } from 'markdown-it/browser';
