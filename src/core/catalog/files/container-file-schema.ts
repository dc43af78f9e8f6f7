import { z } from 'zod';
import { canaryRoutes } from './engine-definition.ts';
import { environmentFields, gpusField, pinnedField, queueFields, replicasField, seconds } from './run-fields.ts';
import { scheduleField } from './schedule-fields.ts';

/** Fields of engine files whose driver runs containers: `docker` on hosts, `swarm` as services of a Swarm. */

const volumeNamePattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{1,127}$/;
const hostNamePattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
/** Matches a placement constraint: https://docs.docker.com/reference/cli/docker/service/create/#constraint */
const constraintPattern = /^(node|engine)\.[A-Za-z0-9_.-]+ *(==|!=) *\S.*$/;
const sizePattern = /^(\d{1,12})(?:\.(\d{1,3}))? ?([kmgt])(?:i?b)?$/i;
const sizeText = 'expected a size such as 512mb or 16gb';

/** Matches an image name by its parts: https://github.com/distribution/reference */
const imagePattern =
  /^(?<repository>(?:[A-Za-z0-9.-]+(?::\d{1,5})?\/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::(?<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?<digest>sha256:[a-f0-9]{64}))?$/;

/** Returns repository, tag and digest of an image name; null if the name is invalid. */
export function parseImage(image: string): { repository: string; tag: string | null; digest: string | null } | null {
  const groups = imagePattern.exec(image)?.groups;
  if (groups === undefined || image.length > 512) return null;
  return { repository: groups['repository'] ?? '', tag: groups['tag'] ?? null, digest: groups['digest'] ?? null };
}

/** Returns the problem of an image name, or null. Tags that move would make two replicas of one file differ. */
function imageProblem(image: string): string | null {
  const parsed = parseImage(image);
  if (parsed === null) return 'expected an image such as vllm/vllm-openai:v0.32.0';
  if (parsed.digest !== null) return null;
  if (parsed.tag === null) return `the version is missing: write ${parsed.repository}:v…, or a digest`;
  if (/^(latest|nightly)(-|$)/.test(parsed.tag)) {
    return `the tag "${parsed.tag}" can change: use a version such as v0.32.0, or a digest`;
  }
  return null;
}

/** Returns the bytes of a size such as `16gb`, with the units of Docker's command line: k, m, g, t, powers of 1024. */
export function parseSize(text: string): number | null {
  const match = sizePattern.exec(text);
  if (match === null) return null;
  const power = 'kmgt'.indexOf((match[3] ?? '').toLowerCase()) + 1;
  return Math.round(Number(`${match[1] ?? ''}.${match[2] ?? '0'}`) * 1024 ** power);
}

export interface ParsedVolume {
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** Parses `name:/target` or `/host/path:/target:ro`; null if the text is neither. */
export function parseVolume(text: string): ParsedVolume | null {
  const [source = '', target = '', mode = 'rw', ...more] = text.split(':');
  if (more.length > 0 || !['ro', 'rw'].includes(mode) || !/^\/[^\0]+$/.test(target)) return null;
  if (!volumeNamePattern.test(source) && !/^\/[^\0]*$/.test(source)) return null;
  return { source, target, readOnly: mode === 'ro' };
}

const size = (what: string) =>
  z
    .string(sizeText)
    .regex(sizePattern, sizeText)
    .refine((text) => (parseSize(text) ?? 1_048_576) >= 1_048_576, 'must be at least 1mb')
    .meta({ pattern: sizePattern.source.replace('kmgt', 'kmgtKMGT').replace('i?b', '[iI]?[bB]') })
    .describe(what);

const argument = z
  .string()
  .max(32_768)
  .regex(/^[^\0]*$/, 'must not contain a NUL character');

/** Limits of a container's processes that engines need raised; -1 is unlimited. */
const ulimits = z.strictObject({
  memlock: z.int().min(-1).optional().describe('Bytes of memory that a process may lock, as for RDMA; -1: unlimited.'),
  stack: z.int().min(-1).optional().describe('Bytes of the stack of a process; -1: unlimited.'),
});

/** Numbers and ranges such as `0-15,32-47`, as Docker and the kernel read them. */
const cpuset = z
  .string()
  .max(4096)
  .regex(/^\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*$/, 'expected numbers and ranges such as 0-15,32-47')
  .optional();

const canary = z.strictObject({
  route: z.enum(canaryRoutes).describe('Route, without /v1.'),
  body: z.record(z.string(), z.unknown()).describe('Request body, without "model" and "stream".'),
  contains: z.string().min(1).max(4096).optional().describe('Text that the response must contain.'),
});

const containerFields = {
  image: z
    .string()
    .describe('Image with a fixed version tag or a digest, such as vllm/vllm-openai:v0.32.0.')
    .superRefine((text, context) => {
      const message = imageProblem(text);
      if (message !== null) context.addIssue({ code: 'custom', message });
    }),
  args: z
    .array(argument)
    .max(1000)
    .default([])
    .describe("Arguments after the image's entrypoint. For vLLM: the model, then the options, one word per item."),
  entrypoint: z.array(argument).min(1).max(100).optional().describe('Replaces the entrypoint of the image.'),
  ...environmentFields,
  gpus: gpusField,
  tensor_parallel_size: z
    .int()
    .min(1)
    .max(64)
    .optional()
    .describe('Number of GPUs over which each layer is split. Default for vLLM: the value in args, or gpus.count.'),
  shm_size: size('Shared memory, such as 16gb. Default for vLLM on several GPUs: 16gb.').optional(),
  memory_limit: size('Memory limit of the container, such as 64gb. Default: no limit.').optional(),
  ulimits: ulimits.default({}).describe("Limits of the container's processes. Default: those of the Docker engine."),
  volumes: z
    .array(
      z
        .string()
        .refine(
          (text) => parseVolume(text) !== null,
          'expected name:/target or /host/path:/target, with :ro at the end if read-only',
        ),
    )
    .max(100)
    .default([])
    .describe('Named volumes or host directories, such as hf-cache:/root/.cache/huggingface.'),
  port: z.int().min(1).max(65_535).default(8000).describe('Port on which the engine listens inside the container.'),
  placement: z
    .enum(['pack', 'spread'])
    .default('pack')
    .describe('pack fills one host before the next; spread distributes replicas evenly.'),
  idle_seconds: seconds(31_536_000).default(300).describe('Idle time after which a replica is stopped.'),
  start_timeout_seconds: seconds(86_400)
    .default(1800)
    .describe('Time limit for a start, including downloads of the image and the model.'),
  drain_seconds: seconds(86_400)
    .default(30)
    .describe('Time that running requests get to finish when a replica is stopped.'),
  min_up_seconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(60)
    .describe('Time after a replica is ready during which it is not stopped to make room for another model.'),
  replicas: replicasField,
  schedule: scheduleField,
  ...queueFields,
  pinned: pinnedField,
  sleep_level: z
    .literal([0, 1, 2])
    .default(0)
    .describe('An idle replica sleeps instead of being stopped. 1 keeps the weights in host memory, 2 drops them.'),
  canaries: z
    .array(canary)
    .max(16)
    .default([])
    .describe('Requests that a new replica must answer before it gets client requests. They are not billed.'),
};

export const dockerFields = {
  driver: z.literal('docker').describe('Containers on the hosts in hosts.yaml, or on this machine.'),
  ...containerFields,
  hosts: z
    .array(z.string().regex(hostNamePattern, 'expected the name of a host or a pool'))
    .max(1000)
    .default([])
    .describe('Hosts or pools in hosts.yaml that may run replicas. Empty: any host.'),
  cpuset_cpus: cpuset.describe('CPUs of the host that each replica may use, such as 0-15,32-47. Default: all.'),
  cpuset_mems: cpuset.describe('NUMA nodes from which each replica gets memory, such as 0. Default: all.'),
};

export const swarmFields = {
  driver: z.literal('swarm').describe('Services of a Docker Swarm.'),
  ...containerFields,
  constraints: z
    .array(z.string().regex(constraintPattern, 'expected a constraint such as node.labels.gpu==h100'))
    .max(100)
    .default([])
    .describe('Placement constraints, such as node.labels.gpu==h100.'),
};
