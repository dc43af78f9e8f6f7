import { exampleId, isoTime, numberedPage } from './examples.ts';
import { atBothPrefixes, type Tag } from './operation.ts';

const project = {
  id: exampleId('proj'),
  name: 'Search',
  description: 'Ranking and embeddings',
  visibility: 'private',
  archived: false,
  created_at: isoTime,
};

const who = 'Requires a management key of the organization.';
const sees = 'An inference key sees its own project and the public ones, a management key all of its organization.';

export const projects: Tag = {
  name: 'Projects',
  description: 'Groups of API keys and requests within an organization. Times are ISO 8601.',
  operations: atBothPrefixes({
    'GET /projects': {
      operationId: 'listProjects',
      summary: 'List projects',
      description: `Returns a page of projects, archived ones included. ${sees}`,
      answer: numberedPage(project),
    },
    'POST /projects': {
      operationId: 'createProject',
      summary: 'Create a project',
      description: `Creates a project in the organization. Members see it only if \`visibility\` is \`public\`. ${who}`,
      request: { name: project.name, description: project.description },
      answer: project,
    },
    'GET /projects/{id}': {
      operationId: 'retrieveProject',
      summary: 'Retrieve a project',
      description: `Returns one project. ${sees}`,
      answer: project,
    },
    'PATCH /projects/{id}': {
      operationId: 'updateProject',
      summary: 'Update a project',
      description: `Changes the fields that are sent, and rejects unknown fields. ${who}`,
      request: { visibility: 'public' },
      answer: { ...project, visibility: 'public' },
    },
    'PUT /projects/{id}': {
      operationId: 'putProject',
      summary: 'Update a project, ignoring unknown fields',
      description: `Changes the fields that are sent, keeps absent fields, and ignores unknown and read-only fields. ${who}`,
      request: { name: 'Search and ranking' },
      answer: { ...project, name: 'Search and ranking' },
    },
    'POST /projects/{id}/archive': {
      operationId: 'archiveProject',
      summary: 'Archive a project',
      description: `Archives a project, which then accepts no requests and no new keys. To unarchive it, send \`archived: false\` with PATCH. ${who}`,
      answer: { ...project, archived: true },
    },
  }),
};
