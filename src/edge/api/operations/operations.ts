import { audit } from './audit.ts';
import { batches } from './batches.ts';
import { billing } from './billing.ts';
import { budgets } from './budgets.ts';
import { clusters } from './clusters.ts';
import { engines } from './engines.ts';
import { files } from './files.ts';
import { inference } from './inference.ts';
import { invitations } from './invitations.ts';
import { keys } from './keys.ts';
import { maintenance } from './maintenance.ts';
import { openaiOrganization } from './openai-organization.ts';
import type { Operation, Tag } from './operation.ts';
import { organizations } from './organizations.ts';
import { projects } from './projects.ts';
import { runs } from './runs.ts';
import { stacks } from './stacks.ts';
import { usage } from './usage.ts';
import { users } from './users.ts';
import { wallet } from './wallet.ts';
import { webhooks } from './webhooks.ts';

export type { Operation } from './operation.ts';

/** The sections of the document, in their order. */
const sections: readonly Tag[] = [
  inference,
  files,
  batches,
  keys,
  projects,
  users,
  invitations,
  organizations,
  openaiOrganization,
  usage,
  wallet,
  budgets,
  audit,
  webhooks,
  clusters,
  stacks,
  runs,
  billing,
  engines,
  maintenance,
];

export const tags = sections.map(({ name, description }) => ({ name, description }));

interface TaggedOperation extends Operation {
  readonly tag: string;
}

/** The texts and examples of all routes, by method and path, such as "GET /v1/keys/{id}". */
export const operations: ReadonlyMap<string, TaggedOperation> = new Map(
  sections.flatMap((section) =>
    Object.entries(section.operations).map(([route, operation]): [string, TaggedOperation] => {
      return [route, { ...operation, tag: section.name }];
    }),
  ),
);
