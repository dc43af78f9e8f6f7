import { ConfigError, readDockerGateConfig } from '#base/config.ts';
import { createLog } from '#base/log.ts';
import { startDockerGate } from '#edge/docker-gate/docker-gate.ts';

// A program of its own, beside the gateway and never inside it: it alone holds the Docker socket.

async function main(): Promise<void> {
  const config = readDockerGateConfig();
  const log = createLog(config.logLevel);
  const gate = await startDockerGate({ ...config, policy: config, log });
  log.info({ port: gate.port }, 'the door to the Docker socket is open');
  const stop = (): void => void gate.close().then(() => process.exit(0));
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof ConfigError ? error.message : String(error)}\n`);
  process.exit(1);
}
