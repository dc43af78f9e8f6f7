import { created, exampleId, model, openaiList } from './examples.ts';
import type { Tag } from './operation.ts';

const batch = {
  id: exampleId('batch'),
  object: 'batch',
  endpoint: '/v1/chat/completions',
  model,
  errors: null,
  input_file_id: exampleId('file'),
  completion_window: '24h',
  status: 'in_progress',
  output_file_id: null,
  error_file_id: null,
  created_at: created,
  in_progress_at: created + 5,
  expires_at: created + 86_400,
  finalizing_at: null,
  completed_at: null,
  failed_at: null,
  expired_at: null,
  cancelling_at: null,
  cancelled_at: null,
  request_counts: { total: 100, completed: 42, failed: 0 },
  metadata: { team: 'search' },
  waiting_for: null,
};

const who = 'An inference key sees only its own batches, a management key those of its organization.';

export const batches: Tag = {
  name: 'Batches',
  description: "Requests from a file, run in the background at the price of the `flex` tier. OpenAI's Batch API.",
  operations: {
    'POST /v1/batches': {
      operationId: 'createBatch',
      summary: 'Create a batch',
      description:
        'Runs the requests of an uploaded file within 24 hours, at the price of the service tier `flex`. All requests ' +
        "must use one model. Any API key may call it; the key's organization pays.",
      request: { input_file_id: batch.input_file_id, endpoint: batch.endpoint, completion_window: '24h' },
      answer: batch,
    },
    'GET /v1/batches': {
      operationId: 'listBatches',
      summary: 'List batches',
      description: `Returns a page of batches, newest first. ${who}`,
      answer: openaiList(batch),
    },
    'GET /v1/batches/{id}': {
      operationId: 'retrieveBatch',
      summary: 'Retrieve a batch',
      description: `Returns a batch with its status and the counts of its requests. ${who}`,
      answer: batch,
    },
    'POST /v1/batches/{id}/cancel': {
      operationId: 'cancelBatch',
      summary: 'Cancel a batch',
      description:
        'Stops the running requests of a batch within seconds. The output file contains the requests that were already ' +
        `answered. ${who}`,
      answer: { ...batch, status: 'cancelling', cancelling_at: created + 60 },
    },
  },
};
