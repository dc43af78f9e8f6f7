import { isIP, isIPv4 } from 'node:net';
import { z } from '@hono/zod-openapi';
import { parseId } from '#base/id.ts';
import { parseMoment } from '#base/timestamps.ts';
import { labelsMax, parseHostKey, parsePrivateKey, SshKeyError } from '#core/clusters/clusters.ts';
import { clusterSchema } from '#edge/contract/clusters.ts';
import { nameText, textOrNull } from '#edge/contract/fields.ts';

/**
 * Parses values that later reach SSH, modules and certificates. Each value is checked against a list of allowed
 * characters, so that a shell, a file of authorized keys or an address cannot interpret it differently.
 */

const label = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Returns the schema of a DNS label: names become parts of addresses. */
const labelText = z
  .string()
  .regex(label, 'must be 1 to 63 of a-z, 0-9 and "-", and begin and end with a letter or digit');

/**
 * Returns the schema of a cluster's name. An address is `<stack>--<cluster>.<domain>`; with "--" in a name, two
 * clusters could have the same address.
 */
const clusterName = labelText.refine((text) => !text.includes('--'), 'must not contain "--"');

function isHostname(text: string): boolean {
  const labels = text.split('.');
  // A last label of digits would make the name an IPv4 address in an unusual form.
  return (
    text.length <= 253 && labels.every((part) => label.test(part)) && !/^(?:\d+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? '')
  );
}

const isDomain = (text: string): boolean => text.includes('.') && text.length <= 189 && isHostname(text);

const publicDomain = z
  .string()
  .refine(isDomain, 'must be a domain name in lower case, such as apps.example.com')
  .openapi({ example: 'apps.example.com', description: 'Web addresses of runs are subdomains of this domain' });

const { access } = clusterSchema.shape;

const isAddress = (text: string): boolean =>
  isIPv4(text) || (isIP(text) === 6 && /^[0-9a-fA-F:.]+$/.test(text)) || isHostname(text);

const address = z
  .string()
  .refine(isAddress, 'must be an IPv4 address, an IPv6 address, or a host name in lower case')
  .openapi({ example: '10.0.0.7', description: 'IP address or host name that runs connect to' });

/** Reports the error of a parser, which never quotes its input. */
function parsedBy<T>(parse: (text: string) => T) {
  return (text: string, context: z.RefinementCtx): T => {
    try {
      return parse(text);
    } catch (error) {
      if (!(error instanceof SshKeyError)) throw error;
      context.addIssue({ code: 'custom', message: error.message });
      return z.NEVER;
    }
  };
}

const hostKey = z
  .string()
  .transform(parsedBy(parseHostKey))
  .openapi({
    type: 'string',
    example: 'ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAA…',
    description:
      'SSH host key, as in /etc/ssh/ssh_host_ecdsa_key.pub. Terraform asks for ECDSA first, then RSA, ' +
      'then Ed25519, and accepts no other key. Without it the identity of the host is not verified',
  });

const privateKey = z
  .string()
  .transform((text, context) => {
    parsedBy(parsePrivateKey)(text, context);
    return text;
  })
  .openapi({
    type: 'string',
    format: 'password',
    description: 'Private key as ssh-keygen writes it, without a passphrase',
  });

const labelName = /^[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/** True for a key as Kubernetes has them: a name, or a name behind a domain and "/". */
function isLabelKey(text: string): boolean {
  const [name = '', prefix, ...others] = text.split('/').toReversed();
  return labelName.test(name) && (prefix === undefined || isHostname(prefix)) && others.length === 0;
}

const labelKey = z
  .string()
  .refine(
    isLabelKey,
    'must be 1 to 63 letters, digits, "-", "_" and ".", with a letter or digit at both ends, and may have a prefix such as "example.com/"',
  );

const labelValue = z
  .string()
  .refine(
    (text) => text === '' || labelName.test(text),
    'must be empty, or 1 to 63 letters, digits, "-", "_" and ".", with a letter or digit at both ends',
  );

const hasFew = (labels: object): boolean => Object.keys(labels).length <= labelsMax;
const fewLabels = `must have at most ${labelsMax} labels`;

const newLabels = z
  .record(labelKey, labelValue)
  .refine(hasFew, fewLabels)
  .default({})
  .openapi({ type: 'object', example: { team: 'research' }, description: 'Labels by which costs can be grouped' });

const labelChanges = z
  .record(labelKey, labelValue.nullable())
  .refine(hasFew, fewLabels)
  .optional()
  .openapi({
    type: 'object',
    example: { team: 'research' },
    description: 'Labels to set; null removes a label, and labels that are not named stay',
  });

const portMax = 65_535;
const gpusMax = 1024;

const nodeFields = {
  name: labelText.openapi({ example: 'gpu-1' }),
  address,
  private_address: address.nullable().openapi({ description: 'Address within the cluster; null if there is none' }),
  ssh_port: z.int().min(1).max(portMax),
  ssh_user: z
    .string()
    .regex(/^[a-z_][a-z0-9_-]{0,31}$/, 'must be a user name of at most 32 of a-z, 0-9, "_" and "-"')
    .openapi({ example: 'root', description: 'User that runs log in as' }),
  host_key: hostKey.nullable(),
  hardware_profile: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, 'must be 1 to 63 letters, digits, ".", "_" and "-"')
    .openapi({ example: 'h100-8x', description: 'Hardware profile, by which rate cards set prices' }),
  gpus: z.int().min(0).max(gpusMax).openapi({ description: 'Number of GPUs' }),
};

export const newNodeSchema = z
  .strictObject({
    ...nodeFields,
    private_address: nodeFields.private_address.default(null),
    ssh_port: nodeFields.ssh_port.default(22),
    ssh_user: nodeFields.ssh_user.default('root'),
    host_key: nodeFields.host_key.default(null),
    gpus: nodeFields.gpus.default(0),
    labels: newLabels,
  })
  .openapi('CreateClusterNode');

export const patchNodeSchema = z
  .strictObject({ ...nodeFields, labels: labelChanges })
  .partial()
  .openapi('PatchClusterNode');

const organizationId = z
  .string()
  .transform((text, context): string => {
    const id = parseId('org', text);
    if (id !== null) return id;
    context.addIssue({ code: 'custom', message: 'must be the id of an organization: org_…' });
    return z.NEVER;
  })
  .openapi({
    type: 'string',
    example: 'org_019ab1c2d3e47f008a1b2c3d4e5f6071',
    description: 'Organization that owns the cluster',
  });

/** Most nodes in one request: a larger body would exceed the bound of members. Further nodes are added one by one. */
const nodesAtOnceMax = 64;

export const createClusterSchema = z
  .strictObject({
    name: clusterName.openapi({ example: 'research' }),
    organization_id: organizationId.optional().openapi({
      type: 'string',
      description: 'Organization of the cluster; default is that of the query, else that of the key',
    }),
    public_domain: publicDomain.nullable().default(null),
    access: access.default('public'),
    labels: newLabels,
    nodes: z
      .array(newNodeSchema)
      .max(nodesAtOnceMax, `must have at most ${nodesAtOnceMax} nodes; add further nodes one by one`)
      .superRefine(differentNames)
      .default([]),
    access_identity: z
      .strictObject({ private_key: privateKey })
      .optional()
      .openapi({ description: 'SSH key of the cluster; generated if absent' }),
  })
  .openapi('CreateCluster');

function differentNames(nodes: readonly { readonly name: string }[], context: z.RefinementCtx): void {
  const seen = new Set<string>();
  for (const [index, { name }] of nodes.entries()) {
    if (seen.has(name))
      context.addIssue({ code: 'custom', path: [index, 'name'], message: 'must be unique in the cluster' });
    seen.add(name);
  }
}

export const patchClusterSchema = z
  .strictObject({
    name: clusterName.optional(),
    public_domain: publicDomain.nullable().optional(),
    access: access.optional(),
    labels: labelChanges,
    organization_id: organizationId.optional().openapi({
      type: 'string',
      description:
        'Organization to move the cluster to; its allocated nodes are metered for that organization from now on',
    }),
  })
  .openapi('PatchCluster');

export const rotateSchema = z.strictObject({ private_key: privateKey.optional() }).openapi('RotateAccessIdentity');

/** An RFC 3339 time, as milliseconds since the Unix epoch. */
export const moment = z.string().transform((text, context): number => {
  // A date without a time is not accepted.
  const momentMs = /[Tt]/.test(text) ? parseMoment(text) : null;
  if (momentMs !== null) return momentMs;
  context.addIssue({ code: 'custom', message: 'must be an RFC 3339 time such as 2026-11-21T09:30:00Z' });
  return z.NEVER;
});

export const inIso = { type: 'string', format: 'date-time' } as const;

export const nodeEventSchema = z
  .strictObject({
    at: moment.optional().openapi({ ...inIso, description: 'Time of the event, not in the future; default is now' }),
    generation: z
      .int()
      .min(1)
      .max(1_000_000_000)
      .optional()
      .openapi({
        description:
          'Number of the allocation of the node, counted from 1, so that events may arrive in any ' +
          'order. Without it, events are ordered by time',
      }),
  })
  .openapi('NodeEvent');

const correction = {
  reason: nameText(1000).openapi({ description: 'Reason, for the history of the allocation and the audit log' }),
  retroactive: z
    .boolean()
    .default(false)
    .openapi({ description: 'Allows changes of costs before this month (UTC), whose reports may have been read' }),
};

export const amendSchema = z
  .strictObject({
    allocated_at: moment.optional().openapi({ ...inIso, description: 'Correct start, not in the future' }),
    released_at: textOrNull(moment.openapi(inIso)).optional().openapi({
      description: 'Correct end, not in the future; null withdraws the release of a node that is still allocated',
    }),
    ...correction,
  })
  .refine(({ allocated_at: from, released_at: to }) => from !== undefined || to !== undefined, {
    path: ['allocated_at'],
    message: 'is missing: give allocated_at, released_at or both',
  })
  .openapi('AmendAllocation');

export const voidSchema = z.strictObject(correction).openapi('VoidAllocation');
