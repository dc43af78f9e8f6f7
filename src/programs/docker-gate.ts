import { ConfigError, type DockerGateConfig, readDockerGateConfig } from '#base/config.ts';
import { createLog } from '#base/log.ts';
import { dropRoot, socketGroup, startDockerGate, whyClosed } from '#edge/docker-gate/docker-gate.ts';

// A program of its own, beside the gateway and never inside it: it alone holds the Docker socket.

/** With the argument `health` it says why no call would pass, in one sentence, and ends with 1. */
const asksHealth = process.argv[2] === 'health';

function giveUpRoot({ user, group, socketPath }: DockerGateConfig): void {
  if (user !== null && process.geteuid?.() === 0) dropRoot(user, group ?? socketGroup(socketPath));
}

async function serve(config: DockerGateConfig): Promise<void> {
  const log = createLog(config.logLevel);
  const gate = await startDockerGate({ ...config, policy: config, log });
  const closed = await whyClosed(config.socketPath);
  if (closed !== null) log.error(closed);
  log.info({ port: gate.port }, 'the door to the Docker socket is open');
  const stop = (): void => void gate.close().then(() => process.exit(0));
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
}

/** The socket is asked by this process, which has what the door has, and the door for itself. */
async function health({ socketPath, port }: DockerGateConfig): Promise<void> {
  const closed = await whyClosed(socketPath);
  if (closed !== null) throw new ConfigError(closed);
  const signal = AbortSignal.timeout(3000);
  const { status } = await fetch(`http://127.0.0.1:${port}/_ping`, { signal });
  if (status !== 200) throw new ConfigError(`The door to the Docker socket answers ${status}: see its log.`);
}

try {
  const config = readDockerGateConfig();
  giveUpRoot(config);
  await (asksHealth ? health(config) : serve(config));
} catch (error) {
  process.stderr.write(`${error instanceof ConfigError ? error.message : String(error)}\n`);
  process.exit(1);
}
