import { created, exampleId, openaiList } from './examples.ts';
import type { Tag } from './operation.ts';

const file = {
  id: exampleId('file'),
  object: 'file',
  bytes: 1024,
  created_at: created,
  expires_at: created + 2_592_000,
  filename: 'requests.jsonl',
  purpose: 'batch',
  status: 'processed',
  status_details: null,
};

const who = 'An inference key sees only its own files, a management key those of its organization.';

export const files: Tag = {
  name: 'Files',
  description: 'Input and output files of batches.',
  operations: {
    'POST /v1/files': {
      operationId: 'createFile',
      summary: 'Upload a file',
      description:
        'Uploads a JSON Lines file of at most 100 MiB as the input of a batch. Any API key may call it. The file is ' +
        'deleted at `expires_at`.',
      answer: file,
    },
    'GET /v1/files': {
      operationId: 'listFiles',
      summary: 'List files',
      description: `Returns a page of files, newest first unless \`order\` is \`asc\`. ${who}`,
      answer: openaiList(file),
    },
    'GET /v1/files/{id}': {
      operationId: 'retrieveFile',
      summary: 'Retrieve a file',
      description: `Returns the metadata of a file. ${who}`,
      answer: file,
    },
    'DELETE /v1/files/{id}': {
      operationId: 'deleteFile',
      summary: 'Delete a file',
      description: `Deletes a file permanently. Returns 409 while a batch reads the file. ${who}`,
      answer: { id: file.id, object: 'file', deleted: true },
    },
    'GET /v1/files/{id}/content': {
      operationId: 'downloadFile',
      summary: 'Download the content of a file',
      description: `Returns the bytes of a file. ${who}`,
      answer: '{"custom_id":"1","method":"POST","url":"/v1/embeddings","body":{"model":"bge-m3","input":"Hello"}}\n',
    },
  },
};
