import { exampleId, isoTime, numberedPage } from './examples.ts';
import type { Tag } from './operation.ts';

const input = {
  name: 'replicas',
  type: 'number',
  type_expression: 'number',
  description: 'How many workers run',
  required: false,
  default: 3,
  sensitive: false,
};
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
  inputs: [input],
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
      description:
        'Returns one stack by name or id; your own stack comes before a global one of the same name. With `version`, ' +
        `inputs and files are those of an earlier version. ${sees}`,
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
      description:
        'Returns the zip of a version, byte for byte as it was uploaded. Only its owner downloads a private stack. ' +
        sees,
    },
    'GET /v1/stacks/{name}/versions': {
      operationId: 'listStackVersions',
      summary: 'List the versions of a stack',
      description:
        'Returns a page of versions, newest first. Headgate keeps the last five versions of a stack, and those that ' +
        `runs use. ${sees}`,
      answer: numberedPage({ ...stack.version, newest: true, created_by: exampleId('user'), in_use: false }),
    },
    'GET /v1/stacks/{name}/diff': {
      operationId: 'compareStackVersions',
      summary: 'Compare two versions of a stack',
      description:
        'Returns the files that differ, each with a unified diff if it is text, and the inputs that differ. Only its ' +
        `owner compares versions of a private stack. ${sees}`,
      answer: {
        from: 1,
        to: 2,
        files: [
          {
            path: 'main.tf',
            change: 'changed',
            diff: 'diff --git a/main.tf b/main.tf\n--- a/main.tf\n+++ b/main.tf\n@@ -1,1 +1,1 @@\n-# one\n+# two\n',
            omitted: null,
          },
        ],
        inputs: [{ name: 'replicas', change: 'changed', before: input, after: { ...input, default: 5 } }],
      },
    },
    'POST /v1/stacks/{name}/revert': {
      operationId: 'revertStack',
      summary: 'Revert a stack to an earlier version',
      description:
        'Adds a new version with the package of an earlier one, as if it was uploaded again; existing runs keep their ' +
        'version. Built-in stacks cannot be reverted. ' +
        who,
      request: { version: 1 },
      answer: { ...stack, version: { ...stack.version, number: 3 }, outcome: 'new_version' },
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
