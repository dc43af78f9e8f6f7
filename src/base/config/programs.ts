import { z } from 'zod';
import { type AllowedMount, folderListProblem, parseAllowedMount } from '#base/host-folder.ts';
import { runNetwork } from './runs.ts';
import {
  backupPassphrase,
  databaseUrl,
  list,
  logLevel,
  optionalWhole,
  platformKeys,
  text,
  urlOf,
  whole,
} from './values.ts';

/** Variables of the programs beside the gateway. */

/** Variables of the command `headgate`. */
export const clientVariables = {
  HEADGATE_URL: urlOf(['http:', 'https:'], 'http://127.0.0.1:8080').default('http://127.0.0.1:8080'),
  HEADGATE_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'must be printable ASCII characters without spaces')
    .optional(),
  HEADGATE_ENGINES_DIR: text.optional(),
};

/** Variables of commands that work on the database directly. */
export const databaseCommandVariables = {
  DATABASE_URL: databaseUrl.optional(),
  HEADGATE_DATA_DIR: text.optional(),
  HEADGATE_PLATFORM_KEY: platformKeys.optional(),
  HEADGATE_BACKUP_PASSPHRASE: backupPassphrase.optional(),
};

function mounts(what: string, isIt: (source: string) => boolean) {
  return list.transform((entries, context): AllowedMount[] =>
    entries.flatMap((entry) => {
      const read = parseAllowedMount(entry);
      if (read !== null && isIt(read.source)) return read;
      context.addIssue({ code: 'custom', message: `must be ${what}, separated by commas` });
      return [];
    }),
  );
}

export const dockerGateVariables = {
  HOST: text.min(1).default('127.0.0.1'),
  PORT: whole(0, 65_535, 2375),
  LOG_LEVEL: logLevel,
  HEADGATE_DOCKER_SOCKET: text.startsWith('/', 'must be the absolute path of a socket').default('/var/run/docker.sock'),
  HEADGATE_DOCKER_IMAGES: list.default(['vllm/*']),
  HEADGATE_DOCKER_BINDS: mounts('absolute paths, such as /srv/models:ro', (source) => source.startsWith('/'))
    .superRefine((folders, context) => {
      const problem = folderListProblem(folders);
      if (problem !== null) context.addIssue({ code: 'custom', message: problem });
    })
    .default([]),
  HEADGATE_DOCKER_VOLUMES: mounts('names of volumes, such as hf-cache', (source) => !source.startsWith('/')).default(
    [],
  ),
  HEADGATE_DOCKER_PORTS: z.enum(['true', 'false']).default('false'),
  HEADGATE_DOCKER_RUN_IMAGES: list.default([]),
  HEADGATE_DOCKER_RUN_NETWORKS: list
    .refine((names) => names.every((name) => runNetwork.safeParse(name).success), 'must be names of Docker networks')
    .default([]),
  HEADGATE_DOCKER_SWARM: z.enum(['true', 'false']).default('false'),
  HEADGATE_DOCKER_GATE_USER: optionalWhole(1, 4_294_967_294),
  HEADGATE_DOCKER_GATE_GROUP: optionalWhole(0, 4_294_967_294),
};
