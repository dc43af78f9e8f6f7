import { exampleId, isoTime, numberedPage } from './examples.ts';
import type { Tag } from './operation.ts';

const stack = {
  id: exampleId('stack'),
  name: 'queue',
  title: 'Job queue',
  description: 'Runs jobs.',
  category: 'Scheduler',
  icon: null,
  visibility: 'private',
  builtin: false,
  owner_id: exampleId('user'),
  inputs: [
    {
      name: 'replicas',
      type: 'number',
      type_expression: 'number',
      description: 'How many workers run',
      required: false,
      default: 3,
      sensitive: false,
    },
  ],
  applicable_profiles: ['h100-8x'],
  web: { port: 8080, node: null, path: '/ui' },
  required_versions: ['>= 1.4'],
  providers: [],
  warnings: [],
  version: {
    number: 1,
    sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
    size: 2048,
    files: 3,
    created_at: isoTime,
  },
  created_at: isoTime,
  updated_at: isoTime,
};

const who = 'Requires a management key of the owner, or of a platform administrator.';
const sees = 'Any API key sees the global stacks and the private ones of its user; a platform administrator sees all.';

export const stacks: Tag = {
  name: 'Stacks',
  description: 'Terraform modules that can be applied to clusters. Times are ISO 8601.',
  operations: {
    'GET /v1/stacks': {
      operationId: 'listStacks',
      summary: 'List stacks',
      description: `Returns a page of stacks, by name. ${sees}`,
      answer: numberedPage(stack),
    },
    'POST /v1/stacks': {
      operationId: 'createStack',
      summary: 'Upload a stack or a new version',
      description:
        'Uploads a Terraform module as a zip of at most 10 MiB, in a form or by URL. An existing name gets a new ' +
        'version. Stacks of platform administrators are global, all others private to their owner. Requires a ' +
        'management key.',
      answer: { ...stack, outcome: 'new_version' },
    },
    'GET /v1/stacks/{name}': {
      operationId: 'retrieveStack',
      summary: 'Retrieve a stack',
      description: `Returns one stack by name or id; your own stack comes before a global one of the same name. ${sees}`,
      answer: stack,
    },
    'PATCH /v1/stacks/{name}': {
      operationId: 'updateStack',
      summary: 'Update a stack',
      description:
        'Changes title, description, category or icon. Only platform administrators change `visibility`. ' + who,
      request: { title: 'Job queue for research' },
      answer: { ...stack, title: 'Job queue for research' },
    },
    'DELETE /v1/stacks/{name}': {
      operationId: 'deleteStack',
      summary: 'Delete a stack',
      description: `Deletes a stack. Existing runs keep their version. ${who}`,
    },
    'GET /v1/stacks/{name}/download': {
      operationId: 'downloadStack',
      summary: 'Download the package of a stack',
      description: `Returns the zip of the newest version, byte for byte as it was uploaded. ${sees}`,
    },
    'GET /v1/stacks/{name}/icon': {
      operationId: 'retrieveStackIcon',
      summary: 'Retrieve the icon image of a stack',
      description:
        'Returns a PNG, JPEG, GIF or WebP image of at most 512 KiB, fetched from the public https URL of the icon and ' +
        `cached for one day. Returns 404 if the icon is no image. ${sees}`,
    },
  },
};
