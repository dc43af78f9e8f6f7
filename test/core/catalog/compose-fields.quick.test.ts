import { describe, expect, it } from 'vitest';
import { checkEngineText } from '#core/catalog/catalog.ts';

const drivers = {
  docker: 'driver: docker\nimage: vllm/vllm-openai:v0.32.0\nargs: [Acme/Chat]\n',
  swarm: 'driver: swarm\nimage: vllm/vllm-openai:v0.32.0\nargs: [Acme/Chat]\n',
  external: 'driver: external\nurl: http://10.0.0.5:8000\n',
  process: 'driver: process\ncommand: [vllm, serve, Acme/Chat, --uds, "{socket}"]\n',
};

/** Returns the problems of an engine file that has this line after the usual lines. */
function problems(driver: keyof typeof drivers, line: string) {
  const head = 'version: 1\nid: chat\nname: Chat\nhugging_face_id: Acme/Chat\ntask_type: chat\ncontext_length: 4096\n';
  return checkEngineText(`${head}${drivers[driver]}${line}\n`, 'chat.yaml').map(({ field, message }) => [
    field,
    message,
  ]);
}

describe('a field of docker compose in an engine file', () => {
  const removeIt = /^unknown field: remove it; Headgate/;

  it.each<[keyof typeof drivers, string, RegExp]>([
    ['docker', 'cap_add: [SYS_ADMIN]', removeIt],
    ['docker', 'cap_drop: [ALL]', removeIt],
    ['docker', 'command: [--enforce-eager]', /only driver: process has it; .* from args$/],
    ['swarm', 'command: [--enforce-eager]', /only driver: process has it; .* from args$/],
    ['docker', 'constraints: [node.role==worker]', /only driver: swarm has it; .* with hosts$/],
    ['docker', 'container_name: chat', removeIt],
    ['docker', 'cpuset: 0-15', /: use cpuset_cpus and cpuset_mems, which only driver: docker has$/],
    ['swarm', 'cpuset_cpus: 0-15', /: only driver: docker has it; /],
    ['process', 'cpuset_mems: "0"', /: only driver: docker has it; /],
    ['docker', 'deploy: {replicas: 2}', /: use replicas, gpus, and memory_limit/],
    ['process', 'deploy: {replicas: 2}', /memory_gib \(processes\)$/],
    ['docker', 'devices: [/dev/nvidia0]', /: use gpus; containers get no other devices$/],
    ['process', 'entrypoint: [vllm]', /only containers have it; a process starts with the program in command$/],
    ['docker', 'env_file: .env', /: use env; it replaces \$\{NAME\}/],
    ['docker', 'environment: {A: b}', /: use env$/],
    [
      'docker',
      'healthcheck: {disable: true}',
      /Headgate checks each replica, and canaries adds requests to the check of a container$/,
    ],
    ['docker', 'ipc: host', /: use shm_size for the shared memory of a container$/],
    ['docker', 'mem_limit: 64g', /: use memory_limit \(containers\) or memory_gib \(processes\)$/],
    ['docker', 'network_mode: host', removeIt],
    ['docker', 'networks: [back]', removeIt],
    ['docker', 'ports: ["8000:8000"]', /: use port for the port inside the container/],
    ['docker', 'privileged: true', /Headgate starts no privileged containers, and gpus adds GPUs$/],
    ['docker', 'restart: always', /Headgate restarts engines that exit$/],
    ['docker', 'runtime: nvidia', /: use gpus; Headgate decides how a container gets GPUs$/],
    ['docker', 'scale: 2', /: use replicas$/],
    ['docker', 'security_opt: ["seccomp=unconfined"]', removeIt],
  ])('is rejected with what to do instead, driver %s: %s', (driver, line, said) => {
    expect(problems(driver, line)).toEqual([[line.split(':')[0], expect.stringMatching(said)]]);
  });

  it('is an unknown field without advice for driver: external, which has no fields of containers', () => {
    expect(problems('external', 'environment: {A: b}')).toEqual([['environment', 'unknown field']]);
  });

  it('is an unknown field without advice when it is nested or resembles a member of JavaScript objects', () => {
    expect(problems('docker', 'gpus: {count: 1, devices: [a]}')).toEqual([['gpus.devices', 'unknown field']]);
    expect(problems('docker', 'toString: 1')).toEqual([['toString', 'unknown field']]);
  });
});
