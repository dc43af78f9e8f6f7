import type { Config } from '#base/config/config.ts';
import { isTriedVllm } from '#core/catalog/catalog.ts';
import { inspectExternal } from '#core/fleet/fleet.ts';
import { type ApiClient, type CommandContext, createApiClient, FailedError, UsageError } from '#edge/cli/cli.ts';
import { type EngineListAnswer, engineListSchema } from '#edge/contract/engines.ts';
import { type Finding, note, ok, readEngines } from './doctor-checks.ts';
import { findGateway } from './doctor-gateways.ts';

/**
 * Reports the versions of engines, and where their files do not fit them: of all engines from the running gateway, or
 * without its answer only of external engines, which are asked directly.
 */
export async function checkVersions(context: CommandContext, config: Config): Promise<readonly Finding[]> {
  const gateway = await findGateway(config);
  const list = await askList(gateway === null ? context.api : clientOf(context, gateway.url));
  if (list !== null) return list.data.flatMap(findingsOf);
  const read = readEngines(config);
  const enabled = (read.ok ? read.engines : []).filter((engine) => engine.enabled);
  const external = enabled.filter(({ driver }) => driver.type === 'external');
  const found = await Promise.all(
    external.map(async (engine): Promise<readonly Finding[]> => {
      const { versions, warnings, answers } = await inspectExternal(engine, config.environment);
      if (!answers) return [note(`${engine.id}: does not answer`)];
      return [...versions.map((version) => versionFinding(engine.id, version)), ...warningsFound(engine.id, warnings)];
    }),
  );
  if (external.length === enabled.length) return found.flat();
  const noKey = `HEADGATE_API_KEY is not a management key of a platform administrator of ${gateway?.url}`;
  const why = gateway === null ? 'no gateway answers' : noKey;
  return [...found.flat(), note(`the versions of other engines are not checked: ${why}`)];
}

/** Returns a client for the gateway that was found. The key of a login is only for the gateway of the login. */
function clientOf({ api, config }: CommandContext, url: string): ApiClient {
  if (config.url === url) return api;
  const apiKey = config.keySource === 'environment' ? config.apiKey : null;
  return createApiClient({ ...config, url, apiKey });
}

/** @returns null if no gateway answers, or the key may not list engines */
async function askList(api: ApiClient): Promise<EngineListAnswer | null> {
  try {
    return engineListSchema.safeParse(await api.call('GET', '/v1/admin/engines')).data ?? null;
  } catch (error) {
    // Without a key, nothing was asked.
    if (error instanceof FailedError || error instanceof UsageError) return null;
    throw error;
  }
}

function findingsOf({ id, replicas, warnings }: EngineListAnswer['data'][number]): Finding[] {
  const names = new Set(replicas.flatMap(({ version }) => (version === null ? [] : [version.name])));
  return [...[...names].map((name) => versionFinding(id, name)), ...warningsFound(id, warnings)];
}

function versionFinding(id: string, version: string | null): Finding {
  if (version === null) return note(`${id}: its version of vLLM is unknown`);
  if (isTriedVllm(version)) return ok(`${id}: vLLM ${version}`);
  return note(`${id}: vLLM ${version}, which this version of Headgate was not tried with`);
}

const warningsFound = (id: string, warnings: readonly string[]): Finding[] =>
  warnings.map((warning) => note(`${id}: ${warning}`, 'correct the engine file, then "headgate engines reload"'));
