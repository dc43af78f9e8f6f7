import { Agent, setGlobalDispatcher } from 'undici';

/**
 * A cold vLLM on a busy machine takes longer than the five minutes for which `fetch` waits for headers: how long it takes
 * is not what is tested.
 */
setGlobalDispatcher(new Agent({ headersTimeout: 0, bodyTimeout: 0 }));
