/** The browser module of markdown-it, which the gateway serves from node_modules beside the modules of the playground. */
// oxlint-disable-next-line import/no-default-export -- the module itself has no other
export { default, type Env, type Token } from 'markdown-it/browser';
