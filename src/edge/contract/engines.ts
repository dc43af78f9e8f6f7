import { z } from 'zod';
import { idText, orNull, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { wholeListOf } from './lists.ts';

/** Answers of `/v1/admin/engines` and `/v1/admin/engine-files`. */

const milliseconds = z.int().meta({ description: 'Milliseconds' });
const bytesOrNull = z.int().nullable();

const replicaSchema = z
  .object({
    id: z.string(),
    state: z.enum(['creating', 'starting', 'checking', 'ready', 'draining', 'stopping', 'asleep', 'waking']).meta({
      description:
        '`starting`: the model loads. `checking`: the canary runs. `draining`: running requests finish, and no new ' +
        'ones start. `asleep`: the GPU memory is released',
    }),
    since: unixSeconds.meta({ description: 'Start of this state in Unix seconds' }),
    host: z.string().meta({ description: 'Name of the host' }),
    gpus: z.array(z.string()).meta({ description: 'Ids of the GPUs of the replica' }),
    progress: z.string().nullable().meta({
      example: 'pulling vllm/vllm-openai:v0.32.0 43 %',
      description: 'Progress of the start; null if there is none to report',
    }),
    running: z.int().meta({ description: 'Number of running requests of this gateway' }),
    healthy: z
      .boolean()
      .nullable()
      .meta({ description: 'Result of the last probe by this gateway; null before the first one' }),
    version: z
      .object({
        name: z.string().nullable().meta({ example: '0.32.0', description: 'null if the engine does not report it' }),
        tried: z.boolean().meta({ description: 'true if this version of Headgate was tried with that minor release' }),
      })
      .nullable()
      .meta({ description: 'Version of vLLM; null for other engines, and before the replica was asked' }),
    deployment: z
      .object({
        name: z.string().meta({ example: 'europe' }),
        upstream_model: z.string().meta({ description: 'Name of the model at the server' }),
        weight: z.number().meta({ description: 'Share of the requests, relative to the other deployments' }),
      })
      .nullable()
      .meta({ description: 'Deployment of the engine file that the replica is; null where the file lists none' }),
  })
  .meta({ id: 'EngineReplica' });

const scheduleEntry = z
  .object({
    cron: z.string().meta({ example: '0 8 * * 1-5', description: 'Times at which the entry takes effect' }),
    timezone: z.string().meta({ example: 'Europe/Berlin' }),
    min_replicas: z.int(),
    max_replicas: z.int().meta({ description: '0: the engine is off' }),
  })
  .meta({ id: 'EngineScheduleEntry' });

const rate = z.number().nullable().meta({ description: 'null before the second sample, and after a gap' });

/** The load of an engine at one time. */
const engineLoadSchema = z
  .object({
    at: unixSeconds,
    running: z.int().meta({ description: 'Requests of all gateways that the engine runs' }),
    waiting: z.int().meta({ description: 'Requests of all gateways that wait inside the engine' }),
    kv_cache_use: z.number().nullable().meta({
      example: 0.31,
      description: 'Share of the KV cache in use, of the fullest replica; null if the engine does not report it',
    }),
    prompt_tokens_per_second: rate,
    generation_tokens_per_second: rate,
  })
  .meta({ id: 'EngineLoad' });

const gpuSample = {
  at: unixSeconds,
  memory_used_bytes: z.int(),
  memory_bytes: z.int().meta({ description: 'Memory of the GPU' }),
  busy: z.number().nullable().meta({
    example: 0.93,
    description: 'Share of the time in which the GPU computed; null if the driver does not report it',
  }),
};

const gpuNames = { id: z.string().meta({ description: 'Id of the GPU' }), host: z.string() };

/** The use of a GPU at one time. */
const gpuUseSchema = z.object({ ...gpuNames, ...gpuSample }).meta({ id: 'GpuUse' });

const lastStartSchema = z
  .object({
    replica: z.string().meta({ description: 'Id of the replica' }),
    steps: z
      .array(
        z.object({
          phase: z
            .enum([
              'requested',
              'pulling',
              'creating',
              'downloading',
              'loading',
              'checking',
              'ready',
              'failed',
              'canceled',
            ])
            .meta({
              description:
                '`requested`: a place is chosen, and engines there end. `pulling`: the image is downloaded. ' +
                '`creating`: the container or process is created. `downloading`: the weights are downloaded. ' +
                '`loading`: the process runs, and its health check does not succeed yet. `checking`: canaries run. ' +
                '`ready`, `failed` and `canceled` are the last phase',
            }),
          at: unixSeconds.meta({ description: 'Start of the phase in Unix seconds' }),
          duration_ms: z.int().nullable().meta({ description: 'Milliseconds; null for the last phase' }),
        }),
      )
      .meta({ description: 'Phases, oldest first; a phase may occur more than once' }),
    total_ms: milliseconds.meta({ description: 'Milliseconds from the first to the last phase' }),
    failure: z
      .object({ message: z.string(), detail: z.string().nullable() })
      .nullable()
      .meta({ description: 'Why the start failed; null if it did not' }),
  })
  .meta({ id: 'EngineStart' });

/** An engine with its replicas. */
export const engineSchema = z
  .object({
    id: z.string(),
    object: z.literal('engine'),
    name: z.string(),
    driver: z
      .enum(['process', 'docker', 'swarm', 'external'])
      .meta({ description: '`external`: Headgate does not start or stop the engine' }),
    kind: z.enum(['vllm', 'openai']).meta({
      description: 'Kind of engine: of its file, or as an external engine shows if its file names none',
    }),
    warnings: z.array(z.string()).meta({
      description: 'Sentences about the running engine, such as a file that does not fit it',
    }),
    file: z.string().meta({ example: 'engines/llama.yaml', description: 'Path of the engine file' }),
    adapters: z.array(z.string()).meta({ description: 'Ids of LoRA adapters on the same replicas' }),
    state: z.enum(['disabled', 'stopped', 'starting', 'ready', 'draining', 'retrying', 'failed', 'held', 'off']).meta({
      description:
        '`retrying`: the last start failed and the gateway tries again. `failed`: it no longer tries. `held`: ' +
        'stopped by a command. `off`: kept off by the schedule of its file',
    }),
    since: unixSecondsOrNull.meta({ description: 'Start of this state in Unix seconds; null if disabled' }),
    held: z.boolean().meta({ description: 'Stopped by a command until start, restart or reset' }),
    last_failure: z
      .object({
        message: z.string(),
        detail: z.string().nullable().meta({ description: 'Details, such as lines of the engine log' }),
        retry_at: unixSecondsOrNull.meta({
          description: 'Next automatic start in Unix seconds; null if only a request or a command starts the engine',
        }),
        failures: z.int().meta({ description: 'Consecutive failures; after five the gateway stops trying' }),
      })
      .nullable()
      .meta({
        description: 'Why the engine does not run; null if it runs, or was only stopped because it was idle',
      }),
    rollout: z
      .object({ state: z.enum(['checking', 'refused']), message: z.string() })
      .nullable()
      .meta({
        description:
          'Rollout of a changed engine file: its new replica is being checked, or was rejected (`refused`); null if ' +
          'none',
      }),
    replicas: z.array(replicaSchema),
    replicas_min: z.int().meta({ description: 'Minimum number of replicas at this time' }),
    replicas_max: z.int().meta({ description: 'Maximum number of replicas at this time' }),
    schedule: z
      .object({
        entry: scheduleEntry.nullable().meta({
          description: 'Entry in effect; null before the first time of an entry, while `replicas` of the file applies',
        }),
        since: unixSecondsOrNull.meta({ description: 'When `entry` took effect, in Unix seconds' }),
        next: scheduleEntry.nullable().meta({ description: 'Entry that takes effect next; null if none does' }),
        next_at: unixSecondsOrNull.meta({ description: 'When `next` takes effect, in Unix seconds' }),
      })
      .nullable()
      .meta({ description: 'Schedule of the file; null if the file has none, or the engine is disabled' }),
    pinned: z.boolean().meta({ description: 'true: never stopped to make room for another model' }),
    hosts: z.array(z.string()).meta({ description: 'Hosts of the replicas' }),
    gpus: z.array(z.string()).meta({ description: 'Ids of the GPUs of the replicas' }),
    gpus_needed: z
      .object({
        count: z.int().meta({ description: 'Number of GPUs' }),
        memory_bytes: bytesOrNull.meta({ description: 'Minimum memory of each GPU in bytes; null accepts any' }),
        profile: z
          .string()
          .nullable()
          .meta({ description: 'Part of the product name, such as `H100`; null accepts any' }),
      })
      .nullable()
      .meta({ description: 'GPUs per replica; null is none' }),
    memory_needed_bytes: bytesOrNull.meta({
      description: 'Host memory per replica in bytes; null if the file does not set it',
    }),
    group: z
      .object({
        name: z.string(),
        swap: z.boolean().meta({ description: 'true: only one engine of the group runs at a time' }),
        exclusive: z.boolean().meta({ description: 'true: a start stops the engines outside the group' }),
        persistent: z.boolean().meta({ description: 'true: engines outside the group do not stop this engine' }),
      })
      .nullable()
      .meta({ description: 'Group of engines that must not run together; null if there is none' }),
    queue: z
      .object({ running: z.int(), waiting: z.int() })
      .meta({ description: 'Numbers of requests of this gateway' }),
    load: orNull(engineLoadSchema).meta({
      description: 'Last reading of the metrics of vLLM by this gateway; null for other engines, and if none runs',
    }),
    gpu_use: z.array(gpuUseSchema).meta({
      description: 'Last readings of the GPUs of the replicas by this gateway; empty where they cannot be read',
    }),
    start_times_ms: z.array(milliseconds).meta({
      description:
        'Recent start times in milliseconds, newest last: from the start request to the first request served',
    }),
    last_start: lastStartSchema.nullable().meta({
      description: 'The newest start, also one that is in progress or has failed; null if none is known',
    }),
  })
  .meta({ id: 'Engine' });

export type EngineAnswer = z.infer<typeof engineSchema>;

/** Samples of an engine in the last hour. */
export const engineHistorySchema = z
  .object({
    object: z.literal('engine_history'),
    id: z.string().meta({ description: 'Id of the engine' }),
    load: z.array(engineLoadSchema).meta({ description: 'Oldest first; empty for engines without metrics of vLLM' }),
    gpus: z.array(
      z.object({ ...gpuNames, samples: z.array(z.object(gpuSample)).meta({ description: 'Oldest first' }) }),
    ),
  })
  .meta({ id: 'EngineHistory' });

export type EngineHistoryAnswer = z.infer<typeof engineHistorySchema>;

/** Result of a reload of the engine files. */
export const engineReloadSchema = z
  .object({
    object: z.literal('engines.reload'),
    added: z.array(z.string()).meta({ description: 'Ids of added engines' }),
    changed: z.array(z.string()).meta({ description: 'Ids of changed engines' }),
    removed: z.array(z.string()).meta({ description: 'Ids of removed engines' }),
  })
  .meta({ id: 'EnginesReload' });

/** The text of an engine file. */
export const engineFileSchema = z
  .object({
    object: z.literal('engine_file'),
    engine: z.string().meta({ description: 'Id of the engine' }),
    file: z.string().meta({ example: 'engines/llama.yaml' }),
    text: z.string().meta({ description: 'The file of the gateway that answers, as it is now' }),
  })
  .meta({ id: 'EngineFile' });

/** The problems of a text that is to become an engine file. */
export const engineFileCheckSchema = z
  .object({
    object: z.literal('engine_file_check'),
    problems: z.array(
      z.object({
        line: z.int().nullable().meta({ description: 'Line from 1; null for a problem of the whole file' }),
        field: z.string().nullable().meta({ example: 'gpus.count', description: 'null for a problem of no field' }),
        message: z.string(),
      }),
    ),
  })
  .meta({ id: 'EngineFileCheck' });

export type EngineFileAnswer = z.infer<typeof engineFileSchema>;
export type EngineFileCheckAnswer = z.infer<typeof engineFileCheckSchema>;

/** All engines, and the state of their files. */
export const engineListSchema = z
  .object({
    object: z.literal('list'),
    data: z.array(engineSchema),
    files: z
      .object({
        read_at: unixSeconds.meta({ description: 'When the files in effect were read, in Unix seconds' }),
        refused: z
          .object({ at: unixSeconds, problems: z.array(z.string()) })
          .nullable()
          .meta({ description: 'Last reload, if it was rejected; null if not' }),
        left_out: z
          .array(z.string())
          .meta({ description: 'Problems of engines that runs of stacks declare, which are left out for that' }),
      })
      .meta({ description: 'Engine files in effect on this gateway' }),
    differences: z
      .array(
        z.object({
          kind: z.string().meta({ example: 'engine file', description: 'What differs' }),
          name: z.string().meta({ example: 'llama-70b' }),
          seconds: z.int().meta({ description: 'Seconds since this gateway noticed the difference' }),
          overdue: z.boolean().meta({ description: 'true if it is older than `HEADGATE_ROLLOUT_SECONDS`' }),
          values: z
            .array(z.object({ value: z.string().nullable(), gateways: z.array(z.string()) }))
            .meta({ description: 'Each value with its gateways; null if they have none' }),
        }),
      )
      .meta({
        description: 'Files and settings that differ between gateways; empty with one gateway',
      }),
    pending_prices: z.array(z.string()).meta({
      description: 'Models whose price is pending because another gateway has another price',
    }),
  })
  .meta({ id: 'EngineList' });

/** A running request for a model of an engine. */
export const runningRequestSchema = z
  .object({
    id: z.string().meta({ description: '`x-request-id` of the response' }),
    object: z.literal('running_request'),
    created_at: unixSeconds,
    model: z.string().meta({ description: 'The model, or the fallback that answers' }),
    endpoint: z.string().meta({ example: '/v1/chat/completions', description: 'Path of the request' }),
    organization_id: idText('org'),
    key_id: idText('key'),
    end_user: z.string().nullable().meta({ description: 'End user as the request names them; null if it names none' }),
    state: z.enum(['queued', 'processing', 'answering']).meta({
      description:
        '`queued`: it waits for a replica. `processing`: a replica has it. `answering`: the answer has begun',
    }),
  })
  .meta({ id: 'RunningRequest' });

export const runningRequestListSchema = wholeListOf(runningRequestSchema, 'RunningRequestList');
export type RunningRequestAnswer = z.infer<typeof runningRequestSchema>;
export type RunningRequestListAnswer = z.infer<typeof runningRequestListSchema>;

/** A line of the log of an engine. */
export const engineLogLineSchema = z
  .object({
    replica: z.string().nullable().meta({ description: 'Id of the replica; null if unknown' }),
    line: z.string(),
  })
  .meta({ id: 'EngineLogLine' });

/** The last lines of a log. */
export const engineLogSchema = wholeListOf(engineLogLineSchema, 'EngineLog');

export type EngineListAnswer = z.infer<typeof engineListSchema>;
export type EngineLogAnswer = z.infer<typeof engineLogSchema>;
export type EngineLogLineAnswer = z.infer<typeof engineLogLineSchema>;
