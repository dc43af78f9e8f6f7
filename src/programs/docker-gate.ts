import { ConfigError } from '#base/config-error.ts';
import { type DockerGateConfig, readDockerGateConfig } from '#base/config/config.ts';
import { createLog } from '#base/log.ts';
import { dropRoot, socketGroup, startDockerGate, describeClosedSocket } from '#edge/docker-gate/docker-gate.ts';
import { compileWhereExitsDoNotWait } from './runtime.js';

// Runs as a separate program beside the gateway, never inside it: only docker-gate has the Docker socket.

function giveUpRoot({ user, group, socketPath }: DockerGateConfig): void {
  if (user !== null && process.geteuid?.() === 0) dropRoot(user, group ?? socketGroup(socketPath));
}

async function serve(config: DockerGateConfig): Promise<void> {
  const log = createLog(config.logLevel);
  const gate = await startDockerGate({ ...config, policy: config, log });
  const stop = (): void => void gate.close().then(() => process.exit(0));
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  log.info({ port: gate.port }, 'docker-gate accepts requests for the Docker socket');
  const closedReason = await describeClosedSocket(config.socketPath);
  if (closedReason !== null) log.error(closedReason);
}

compileWhereExitsDoNotWait();
try {
  const config = readDockerGateConfig();
  giveUpRoot(config);
  await serve(config);
} catch (error) {
  process.stderr.write(`${error instanceof ConfigError ? error.message : String(error)}\n`);
  process.exit(1);
}
