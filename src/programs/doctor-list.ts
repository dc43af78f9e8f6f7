import type { Config } from '#base/config/config.ts';
import {
  checkClock,
  checkDatabase,
  checkDataDir,
  checkDisk,
  checkEngineFiles,
  checkGpus,
  checkNode,
  checkRedis,
  checkRunner,
  type Finding,
} from './doctor-checks.ts';
import { checkBackups, checkPlatformKey } from './doctor-backups.ts';
import { checkDocker } from './doctor-docker.ts';
import { checkAgreement, checkGateway } from './doctor-gateways.ts';

interface Check {
  readonly name: string;
  readonly check: (config: Config) => Promise<readonly Finding[]>;
}

type Look = (config: Config) => Finding | readonly Finding[] | Promise<Finding | readonly Finding[]>;

function look(name: string, check: Look): Check {
  return { name, check: async (config) => [await check(config)].flat() };
}

/** All checks, in the order in which they are reported. */
export const checks: readonly Check[] = [
  look('node', checkNode),
  look('data folder', checkDataDir),
  look('disk', checkDisk),
  look('postgresql', checkDatabase),
  look('backups', checkBackups),
  look('redis', checkRedis),
  look('clock', checkClock),
  look('engine files', checkEngineFiles),
  look('docker', checkDocker),
  look('gpus', checkGpus),
  look('terraform', checkRunner),
  look('platform key', checkPlatformKey),
  look('gateway', checkGateway),
  look('gateways', checkAgreement),
];
