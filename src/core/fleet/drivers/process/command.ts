import { createHash } from 'node:crypto';
import { type EngineDefinition, fillReferences, type ProcessDriverSettings } from '#core/catalog/catalog.ts';
import {
  missingArguments,
  type VllmArgument,
  vllmArguments,
  vllmEnvironment,
  vllmForcesUsage,
} from '#core/fleet/drivers/vllm-arguments.ts';

/** Builds the command and the environment of a child process from the engine's file and the gateway's additions. */

export type Environment = Readonly<Record<string, string | undefined>>;
export type ListenTarget = { readonly socketPath: string } | { readonly port: number };

/** Environment variable that names the owner of the data folder in every child, to recognize orphaned processes. */
export const ownerVariable = 'HEADGATE_ENGINE_OWNER';

/** Variables that a child may inherit: those that programs need to run at all, and those that engines read. */
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
/** With the gateway's own key, an engine would require a key that the gateway does not send. */
const neverInherited = new Set(['VLLM_API_KEY']);

export function processSettings(definition: EngineDefinition): ProcessDriverSettings {
  if (definition.driver.type !== 'process') throw new Error('The process driver was given another driver’s engine.');
  return definition.driver;
}

/**
 * True if the engine listens on a socket, which only the gateway reaches. vLLM does, unless its file insists on a port.
 */
export function listensOnSocket(definition: EngineDefinition): boolean {
  const { command } = processSettings(definition);
  if (command.some((argument) => argument.includes('{socket}'))) return true;
  return definition.kind === 'vllm' && !command.some((argument) => argument.includes('{port}'));
}

/** True if every frame of the engine carries usage. */
export function forcesUsage(definition: EngineDefinition): boolean {
  return vllmForcesUsage(definition.kind, processSettings(definition).command);
}

/** Returns the program and all its arguments. */
export function launchCommand(definition: EngineDefinition, target: ListenTarget): string[] {
  const { command } = processSettings(definition);
  const filled = [...command, ...addedArguments(definition)].map((argument) =>
    'port' in target
      ? argument.replaceAll('{port}', String(target.port))
      : argument.replaceAll('{socket}', target.socketPath),
  );
  // Uses the gateway's own Node: the one on PATH may be missing, or too old to run TypeScript.
  return filled[0] === 'node' ? [process.execPath, ...filled.slice(1)] : filled;
}

/** Returns vLLM's arguments that the file does not set, including a private socket. */
function addedArguments(definition: EngineDefinition): string[] {
  if (definition.kind !== 'vllm') return [];
  const listen: VllmArgument = listensOnSocket(definition) ? ['--uds', ['{socket}']] : ['--host', ['127.0.0.1']];
  return missingArguments(processSettings(definition).command, [...vllmArguments(definition), listen]);
}

export interface LaunchContext {
  readonly gatewayEnv: Environment;
  /** Marks the child as belonging to this gateway's data folder. */
  readonly owner: string;
  /** Devices of the child; none: the child sees the gateway's devices. */
  readonly gpuIds: readonly string[];
}

/** Returns the child's whole environment, or the variable of the engine's file that refers to an unset one. */
export function launchEnvironment(
  definition: EngineDefinition,
  { gatewayEnv, owner, gpuIds }: LaunchContext,
): { ok: true; env: Record<string, string> } | { ok: false; missing: string } {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(gatewayEnv)) {
    if (value === undefined || neverInherited.has(name)) continue;
    if (inheritedNames.has(name) || inheritedPrefixes.test(name)) env[name] = value;
  }
  // Keeps Python's output in order: buffered output would appear in the log after the error.
  env['PYTHONUNBUFFERED'] = '1';
  if (definition.kind === 'vllm') Object.assign(env, vllmEnvironment);
  // The development routes can abort requests by id and do worse: enabled only if nobody but the gateway can connect.
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

/** Returns a hash that changes with every part of the engine's file that a running child cannot adopt. */
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
