import { type EngineDefinition, findFlag } from '#core/catalog/catalog.ts';

/**
 * Adds the gateway's arguments to vLLM's command line, for every driver. The checks that an engine's file does not
 * repeat them are in container-checks.ts and process-command-checks.ts of core/catalog.
 */

export type VllmArgument = readonly [flag: string, values: readonly string[]];

/** Variables that every vLLM gets; the engine's file may override them. */
export const vllmEnvironment: Readonly<Record<string, string>> = {
  // Otherwise an allowed media host could redirect vLLM to a forbidden one in its own network.
  VLLM_MEDIA_URL_ALLOW_REDIRECTS: '0',
};

/**
 * Returns the served model names (answers use the first), the context length, usage with details in every frame, and
 * the allowed media hosts. `--shutdown-timeout` stays at vLLM's 0: with more, vLLM hangs on an open JSON request, and
 * the gateway has drained before it sends the signal.
 */
export function vllmArguments(engine: EngineDefinition): VllmArgument[] {
  const { id, name, huggingFaceId, mediaDomains, contextLength } = engine;
  const names = [...new Set([id, name, huggingFaceId ?? id])].filter((served) => !served.startsWith('-'));
  return [
    ['--served-model-name', names],
    ['--max-model-len', [String(contextLength)]],
    ['--enable-force-include-usage', []],
    ['--enable-prompt-tokens-details', []],
    ...(mediaDomains.length === 0 ? [] : [['--allowed-media-domains', mediaDomains] as const]),
    ...queueArguments(engine),
    ...loraArguments(engine),
  ];
}

function queueArguments({ queuedRequestsMax, queuedTokensMax }: EngineDefinition): VllmArgument[] {
  return [
    ...(queuedRequestsMax === null ? [] : [['--max-num-queued-reqs', [String(queuedRequestsMax)]] as const]),
    ...(queuedTokensMax === null ? [] : [['--max-num-queued-tokens', [String(queuedTokensMax)]] as const]),
  ];
}

function loraArguments({ lora, lorasMax, loraRankMax }: EngineDefinition): VllmArgument[] {
  const modules = lora.flatMap(({ id, path }) => (path === null ? [] : [`${id}=${path}`]));
  if (modules.length === 0) return [];
  return [
    ['--enable-lora', []],
    ['--lora-modules', modules],
    ...(lorasMax === null ? [] : [['--max-loras', [String(lorasMax)]] as const]),
    ...(loraRankMax === null ? [] : [['--max-lora-rank', [String(loraRankMax)]] as const]),
  ];
}

/** Returns the `additions` that the file's command neither sets nor disables, as command-line arguments. */
export function missingArguments(command: readonly string[], additions: readonly VllmArgument[]): string[] {
  return additions
    .filter(([flag]) => findFlag(command, flag) === null && findFlag(command, flag.replace('--', '--no-')) === null)
    .flatMap(([flag, values]) => [flag, ...values]);
}

/** True if every frame of an engine with this command carries usage. */
export function vllmForcesUsage(kind: EngineDefinition['kind'], command: readonly string[]): boolean {
  return kind === 'vllm' && findFlag(command, '--no-enable-force-include-usage') === null;
}
