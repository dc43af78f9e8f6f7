import { readFileSync } from 'node:fs';

export {
  defaultDataDir,
  type GatewayDir,
  isFileError,
  listGatewayDirs,
  lockDataDir,
  lockGatewayDir,
  lockOrphanedDir,
  makeDataDir,
  noteAddress,
  readAddress,
} from './data-dir.ts';
export { passwordFileParameter, readPassword } from './files.ts';
export { normalUrl, removeLogin, writeLogin } from './login-file.ts';
export {
  type AlertsConfig,
  type BatchesConfig,
  type CacheConfig,
  type ClientConfig,
  type Config,
  type DatabaseConfig,
  type DockerConfig,
  type DockerGateConfig,
  type EnginesConfig,
  findIdleSettings,
  type HttpConfig,
  type KeysConfig,
  type MetricsConfig,
  parseClientConfig,
  readDatabaseCommandConfig,
  readClientConfig,
  readConfig,
  readDockerGateConfig,
  type RedisConfig,
  settingsInCommon,
  type SignInConfig,
  type StorageConfig,
} from './read-config.ts';
export { readSigner, type Signer } from './signing.ts';

/** The version of this program, as its package says. */
export function readVersion(): string {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version?: unknown };
  return typeof version === 'string' ? version : '';
}
