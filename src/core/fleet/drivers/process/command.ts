import { createHash } from 'node:crypto';
import { type EngineDefinition, fillReferences, type ProcessDriverSettings } from '#core/catalog/catalog.ts';
import {
  missingArguments,
  type VllmArgument,
  vllmArguments,
  vllmEnvironment,
  vllmForcesUsage,
} from '#core/fleet/drivers/vllm-arguments.ts';

/** How a child process is started; what goes into it from the engine's file, and what the gateway adds. */

export type Environment = Readonly<Record<string, string | undefined>>;
export type ListenTarget = { readonly socketPath: string } | { readonly port: number };

/** Names the data folder's owner in every child's environment, by which leftovers are recognised. */
export const ownerVariable = 'HEADGATE_ENGINE_OWNER';

/** What a child may inherit: what programs need to run at all, and what engines read. Nothing else is passed on. */
const inheritedNames = new Set(
  [
    'PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP',
    'LD_LIBRARY_PATH DYLD_LIBRARY_PATH LIBRARY_PATH CPATH VIRTUAL_ENV CONDA_PREFIX',
    'HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy',
    'SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE HUGGING_FACE_HUB_TOKEN',
  ].flatMap((names) => names.split(' ')),
);
const inheritedPrefixes =
  /^(LC|CUDA|NVIDIA|HF|VLLM|TORCH|PYTORCH|TRITON|NCCL|GLOO|OMP|MKL|KMP|XDG|ROCR|HIP|HSA|TRANSFORMERS)_/;
/** An engine that found this one would ask the gateway for a key that nobody gave it. */
const neverInherited = new Set(['VLLM_API_KEY']);

export function processSettings(definition: EngineDefinition): ProcessDriverSettings {
  if (definition.driver.type !== 'process') throw new Error('The process driver was given another driver’s engine.');
  return definition.driver;
}

/** On a socket wherever the engine can: nobody else reaches it there. vLLM can unless its file insists on a port. */
export function listensOnSocket(definition: EngineDefinition): boolean {
  const { command } = processSettings(definition);
  if (command.some((argument) => argument.includes('{socket}'))) return true;
  return definition.kind === 'vllm' && !command.some((argument) => argument.includes('{port}'));
}

/** Every frame of the engine will carry usage. */
export function forcesUsage(definition: EngineDefinition): boolean {
  return vllmForcesUsage(definition.kind, processSettings(definition).command);
}

/** Program and arguments, complete. */
export function launchCommand(definition: EngineDefinition, target: ListenTarget): string[] {
  const { command } = processSettings(definition);
  const filled = [...command, ...addedArguments(definition)].map((argument) =>
    'port' in target
      ? argument.replaceAll('{port}', String(target.port))
      : argument.replaceAll('{socket}', target.socketPath),
  );
  // The gateway's own Node: the one on PATH may be too old to run TypeScript, or not be there.
  return filled[0] === 'node' ? [process.execPath, ...filled.slice(1)] : filled;
}

/** vLLM's own arguments, where the file does not give them, and a private socket. */
function addedArguments(definition: EngineDefinition): string[] {
  if (definition.kind !== 'vllm') return [];
  const listen: VllmArgument = listensOnSocket(definition) ? ['--uds', ['{socket}']] : ['--host', ['127.0.0.1']];
  return missingArguments(processSettings(definition).command, [...vllmArguments(definition), listen]);
}

export interface LaunchContext {
  readonly gatewayEnv: Environment;
  /** Marks the child as belonging to this gateway's data folder. */
  readonly owner: string;
  /** The child's own; none: it sees what the gateway does. */
  readonly gpuIds: readonly string[];
}

/** The child's whole environment, or the variable of the engine's file that refers to something that is not set. */
export function launchEnvironment(
  definition: EngineDefinition,
  { gatewayEnv, owner, gpuIds }: LaunchContext,
): { ok: true; env: Record<string, string> } | { ok: false; missing: string } {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(gatewayEnv)) {
    if (value === undefined || neverInherited.has(name)) continue;
    if (inheritedNames.has(name) || inheritedPrefixes.test(name)) env[name] = value;
  }
  // What Python has printed stands in the log before what it fails with, and not after it.
  env['PYTHONUNBUFFERED'] = '1';
  if (definition.kind === 'vllm') Object.assign(env, vllmEnvironment);
  // Its routes abort requests by id and do worse: only where nobody but the gateway can connect.
  if (definition.kind === 'vllm' && listensOnSocket(definition)) env['VLLM_SERVER_DEV_MODE'] = '1';
  for (const [name, text] of Object.entries(processSettings(definition).env)) {
    const value = fillReferences(text, gatewayEnv);
    if (value === null) return { ok: false, missing: name };
    env[name] = value;
  }
  if (gpuIds.length > 0) env['CUDA_VISIBLE_DEVICES'] = gpuIds.join(',');
  env[ownerVariable] = owner;
  return { ok: true, env };
}

/** Changes with everything of the engine's file that a running child cannot take over. */
export function processSpecHash(definition: EngineDefinition, gatewayEnv: Environment): string {
  const { env, gpus } = processSettings(definition);
  const values = Object.keys(env)
    .toSorted()
    .map((name) => [name, fillReferences(env[name] ?? '', gatewayEnv)]);
  const command = launchCommand(definition, { socketPath: '{socket}' }).slice(1);
  const [program] = processSettings(definition).command;
  const parts = [definition.kind, program, command, values, ...(gpus === null ? [] : [gpus])];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
