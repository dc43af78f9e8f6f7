import { ConfigError, readDockerGateConfig, type DockerGateConfig } from '#base/config.ts';
import { createLog } from '#base/log.ts';
import { startDockerGate } from '#edge/docker-gate/docker-gate.ts';

// A program of its own, beside the gateway and never inside it: it alone holds the Docker socket.

function policyOf({ images, binds, allowsPorts, allowsSwarm }: DockerGateConfig) {
  return {
    isAllowedImage: (image: string) => images.some((pattern) => matchesImage(image, pattern)),
    isAllowedBind: (path: string) => binds.some((folder) => path === folder || path.startsWith(`${folder}/`)),
    allowsPorts,
    allowsSwarm,
  };
}

/** `*` stands for any text, a slash included. */
function matchesImage(image: string, pattern: string): boolean {
  const escaped = pattern.split('*').map((part) => part.replace(/[^\w]/g, String.raw`\$&`));
  return new RegExp(`^${escaped.join('.*')}$`).test(image);
}

async function main(): Promise<void> {
  const config = readDockerGateConfig();
  const log = createLog(config.logLevel);
  const gate = await startDockerGate({ ...config, policy: policyOf(config), log });
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
