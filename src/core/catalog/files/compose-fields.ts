/**
 * Fields of docker compose files that engine files do not have, or not for every driver, and what to do instead. They
 * end the message "unknown field" at the top level of an engine file.
 */
const composeFields: ReadonlyMap<string, string> = new Map(
  Object.entries({
    cap_add: 'remove it; Headgate decides the capabilities of containers',
    cap_drop: 'remove it; Headgate decides the capabilities of containers',
    command: 'only driver: process has it; containers get the words after their entrypoint from args',
    constraints: 'only driver: swarm has it; driver: docker selects hosts and pools with hosts',
    container_name: 'remove it; Headgate names containers',
    cpuset: 'use cpuset_cpus and cpuset_mems, which only driver: docker has',
    cpuset_cpus: 'only driver: docker has it; services of a swarm and processes cannot be pinned',
    cpuset_mems: 'only driver: docker has it; services of a swarm and processes cannot be pinned',
    deploy: 'use replicas, gpus, and memory_limit (containers) or memory_gib (processes)',
    devices: 'use gpus; containers get no other devices',
    entrypoint: 'only containers have it; a process starts with the program in command',
    env_file: 'use env; it replaces ${NAME} by the variable of the gateway',
    environment: 'use env',
    healthcheck: 'remove it; Headgate checks each replica, and canaries adds requests to the check of a container',
    ipc: 'use shm_size for the shared memory of a container',
    mem_limit: 'use memory_limit (containers) or memory_gib (processes)',
    network_mode: 'remove it; Headgate decides the networks of containers',
    networks: 'remove it; Headgate decides the networks of containers',
    ports: 'use port for the port inside the container; Headgate decides the port outside',
    privileged: 'remove it; Headgate starts no privileged containers, and gpus adds GPUs',
    restart: 'remove it; Headgate restarts engines that exit',
    runtime: 'use gpus; Headgate decides how a container gets GPUs',
    scale: 'use replicas',
    security_opt: 'remove it; Headgate decides the security options of containers',
  }),
);

const noFields: ReadonlyMap<string, string> = new Map();

/** Returns advice by the names of unknown fields; none for external engines, which have no fields of containers. */
export function adviceFor(file: unknown): ReadonlyMap<string, string> {
  const isExternal = typeof file === 'object' && file !== null && 'driver' in file && file.driver === 'external';
  return isExternal ? noFields : composeFields;
}
