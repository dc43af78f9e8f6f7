import { type EngineDefinition, findFlag } from '#core/catalog/catalog.ts';

/**
 * What the gateway adds to vLLM's command line, whoever starts it. That an engine's file must not say it again is
 * checked in container-checks.ts and process-command-checks.ts of core/catalog.
 */

export type VllmArgument = readonly [flag: string, values: readonly string[]];

/** Variables that every vLLM gets; the engine's file may set others in their place. */
export const vllmEnvironment: Readonly<Record<string, string>> = {
  // A host that may be fetched from could otherwise send vLLM on to one that may not, within its own network.
  VLLM_MEDIA_URL_ALLOW_REDIRECTS: '0',
};

/**
 * The names under which the model is served (the first is what answers call it), its context, usage with details in every frame,
 * and the hosts from which media may be fetched. `--shutdown-timeout` stays at vLLM's 0: with more, vLLM hangs on an
 * open JSON request, and the gateway has drained before it sends the signal.
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
    ...loraArguments(engine),
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

/** Those of `additions` that the file's own command neither gives nor switches off, as words of a command line. */
export function missingArguments(command: readonly string[], additions: readonly VllmArgument[]): string[] {
  return additions
    .filter(([flag]) => findFlag(command, flag) === null && findFlag(command, flag.replace('--', '--no-')) === null)
    .flatMap(([flag, values]) => [flag, ...values]);
}

/** Every frame of an engine with this command will carry usage. */
export function vllmForcesUsage(kind: EngineDefinition['kind'], command: readonly string[]): boolean {
  return kind === 'vllm' && findFlag(command, '--no-enable-force-include-usage') === null;
}
