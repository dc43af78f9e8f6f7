import { z } from 'zod';
import { closeNetwork } from '#base/net/net.ts';
import { isAllowedImage } from './images.ts';
import { managedLabel, type Policy, runLabel, settingNames } from './rule.ts';

/** Bodies of the calls for runs of stacks, as the runner sends them. Values that the runner never varies are fixed. */

const runId = z.string().regex(/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, 'expected the id of a run');
const phaseName = z
  .string()
  .regex(/^(?:init-[1-9]|plan|show|apply|output)$/, 'expected init-1 to init-9, plan, show, apply or output');
const common = { [managedLabel]: z.literal('true'), 'headgate.runs': z.string().max(100), [runLabel]: runId };

/** Labels of a run's network. */
export const runNetworkLabels = z.strictObject(common);

interface RunMarks {
  readonly [runLabel]: string;
  readonly 'headgate.phase': string;
}

export const runNetworkName = (id: string): string => {
  const hex = id.replaceAll('-', '');
  return `headgate-run-${hex.slice(0, 22)}-${hex.slice(22)}`;
};
const keeperName = (id: string): string => `${runNetworkName(id)}-work`;

/**
 * Returns the name under which a container is created. The container of a phase is renamed by the caller that starts
 * it.
 */
export function runContainerName({ [runLabel]: id, 'headgate.phase': phase }: RunMarks): string {
  return phase === 'work' ? keeperName(id) : `${runNetworkName(id)}-${phase}.new`;
}

/** Names to which phase containers are renamed; never the name of the container that keeps volume and network. */
export const runPhaseName =
  /^headgate-run-[0-9a-f]{22}-[0-9a-f]{10}-(?:init-[1-9]|plan|show|apply|output)(?:\.stopping)?$/;

export const marksOf = (body: unknown): RunMarks | null => {
  const { Labels: labels } = (body ?? {}) as { readonly Labels?: Readonly<Record<string, unknown>> };
  return typeof labels === 'object' && labels !== null && Object.hasOwn(labels, runLabel)
    ? (labels as unknown as RunMarks)
    : null;
};

const image = (policy: Policy) =>
  z
    .string()
    .refine(
      (name) => isAllowedImage({ ...policy, images: policy.runImages }, name),
      `is not allowed; add it to ${settingNames.runImages}`,
    );
const withoutCheck = z.strictObject({ Test: z.tuple([z.literal('NONE')]) });
const bytes = z.int().min(16_777_216).max(1_099_511_627_776);
const logs = (size: string, files: string) =>
  z.strictObject({
    Type: z.literal('json-file'),
    Config: z.strictObject({ 'max-size': z.literal(size), 'max-file': z.literal(files) }),
  });

const heldIn = {
  RestartPolicy: z.strictObject({ Name: z.literal('no') }),
  Init: z.literal(true),
  IpcMode: z.literal('private'),
  ReadonlyRootfs: z.literal(true),
  CapDrop: z.tuple([z.literal('ALL')]),
  SecurityOpt: z.tuple([z.literal('no-new-privileges')]),
};

/** The address of one node. Ranges of addresses are rejected. */
const address = z.string().regex(/^[0-9a-zA-Z][0-9a-zA-Z.:-]{0,252}$/, 'expected one IP address or host name');

const keeperBody = (policy: Policy, id: string) =>
  z.strictObject({
    Image: image(policy),
    // The container may change its own network, so it must run exactly this program.
    Entrypoint: z.tuple([z.literal('/bin/sh'), z.literal('-c'), z.literal(closeNetwork), z.literal('headgate')]),
    Cmd: z.tuple([z.enum(['cluster', 'internet'])], address),
    User: z.literal('0:0'),
    WorkingDir: z.literal('/'),
    Labels: z.strictObject({ ...common, 'headgate.phase': z.literal('work') }),
    StopSignal: z.literal('SIGKILL'),
    Healthcheck: withoutCheck,
    Volumes: z.strictObject({ '/work': z.strictObject({}) }),
    HostConfig: z.strictObject({
      ...heldIn,
      NetworkMode: z.enum([runNetworkName(id), ...policy.runNetworks]),
      CapAdd: z.tuple([z.literal('NET_ADMIN')]),
      Tmpfs: z.strictObject({ '/run': z.literal('rw,noexec,nosuid,nodev,size=1m') }),
      PidsLimit: z.literal(32),
      Memory: z.literal(67_108_864),
      MemorySwap: z.literal(67_108_864),
      NanoCpus: z.literal(500_000_000),
      LogConfig: logs('1m', '1'),
    }),
  });

const ulimit = (name: string, most: number) =>
  z.strictObject({ Name: z.literal(name), Soft: z.literal(most), Hard: z.literal(most) });

const variable = z
  .string()
  .regex(
    /^(?:PATH|HOME|TMPDIR|LANG|CHECKPOINT_DISABLE|TF_IN_AUTOMATION|TF_INPUT|TF_CLI_CONFIG_FILE)=[\w./:-]*$/,
    'is not a variable that runs may have',
  );

/** The folder with the Terraform providers. An operator must list it like every other folder. */
const mirror = ({ binds }: Policy) =>
  z.strictObject({
    Type: z.literal('bind'),
    Source: z
      .string()
      .refine((path) => binds.some(({ source }) => source === path), `is not allowed; add it to ${settingNames.binds}`),
    Target: z.literal('/mirror'),
    ReadOnly: z.literal(true),
  });

const phaseBody = (policy: Policy, id: string) =>
  z.strictObject({
    Image: image(policy),
    Cmd: z.array(z.string().max(4096)).max(20),
    Env: z.array(variable).max(10),
    User: z.literal('65532:65532'),
    WorkingDir: z.literal('/work/run'),
    Labels: z.strictObject({ ...common, 'headgate.phase': phaseName }),
    StopSignal: z.literal('SIGINT'),
    Healthcheck: withoutCheck,
    HostConfig: z
      .strictObject({
        ...heldIn,
        NetworkMode: z.literal(`container:${keeperName(id)}`),
        VolumesFrom: z.tuple([z.literal(keeperName(id))]),
        Tmpfs: z.strictObject({ '/tmp': z.literal('rw,noexec,nosuid,nodev,size=64m,mode=1777') }),
        PidsLimit: z.literal(512),
        Memory: bytes,
        MemorySwap: bytes,
        NanoCpus: z.int().min(10_000_000).max(1_000_000_000_000),
        Ulimits: z.tuple([ulimit('nofile', 4096), ulimit('core', 0), ulimit('fsize', 1_073_741_824)]),
        LogConfig: logs('50m', '2'),
        Mounts: z.union([z.tuple([]), z.tuple([mirror(policy)])]),
      })
      .refine(
        ({ Memory, MemorySwap }) => Memory === MemorySwap,
        'MemorySwap must equal Memory, so that runs do not swap',
      ),
  });

/** Body of POST /containers/create with the label of a run. */
export function runBody(policy: Policy, marks: RunMarks): z.ZodType {
  const id = runId.safeParse(marks[runLabel]);
  if (policy.runImages.length === 0)
    return z.never(
      `runs in containers are disabled, because no image is allowed; add one to ${settingNames.runImages}`,
    );
  if (!id.success) return z.never(`the label ${runLabel} must be the id of a run`);
  return marks['headgate.phase'] === 'work' ? keeperBody(policy, id.data) : phaseBody(policy, id.data);
}

/** Returns the container whose volume and network a phase uses. */
export function keeperOf(body: unknown): string | null {
  const { HostConfig } = body as { readonly HostConfig: { readonly VolumesFrom?: readonly [string] } };
  return HostConfig.VolumesFrom?.[0] ?? null;
}

/** True if the path is a valid archive path inside a run's folder. */
export const isRunPath = (path: string): boolean =>
  /^run(?:\/[^/\0]{1,255})*$/.test(path) && path.length <= 4096 && !/\/\.{1,2}(?:\/|$)/.test(path);
