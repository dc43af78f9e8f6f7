import OpenAI from 'openai';
import { uuidv7 } from '#base/id.ts';
import { type Answer, type AskOptions, type TestApi, useApi } from './test-api.ts';

/** Parts that tests of service accounts share. */

export interface Place {
  readonly key: string;
  readonly projectId: string;
}

export const refusal = ({ status, body }: Answer): unknown[] => [status, body.error?.code, body.error?.param ?? null];

export interface ServiceAccountBench {
  readonly api: () => TestApi;
  /** A project of an organization of its own. */
  readonly open: () => Promise<Place>;
  readonly makeProject: (key: string) => Promise<string>;
  readonly sdkOf: (place: Place) => OpenAI['admin']['organization']['projects'];
  /** Asks for what is below the service accounts of a project. */
  readonly ask: (place: Place, path?: string, asked?: AskOptions) => Promise<Answer>;
  readonly make: (place: Place, fields?: object) => Promise<Answer['body']>;
  /** Checks whether a secret does what every key may do. */
  readonly works: (secret: string) => Promise<boolean>;
}

export function useServiceAccounts(): ServiceAccountBench {
  const api = useApi();
  const makeProject = async (key: string): Promise<string> =>
    (await api().ask('/v1/projects', { key, body: { name: `p-${uuidv7()}` } })).body.id;
  const ask: ServiceAccountBench['ask'] = ({ key, projectId }, path = '', asked = {}) =>
    api().ask(`/v1/organization/projects/${projectId}/service_accounts${path}`, { key, ...asked });
  return {
    api,
    makeProject,
    ask,
    async open() {
      const { key } = await api().organization();
      return { key, projectId: await makeProject(key) };
    },
    sdkOf: ({ key }) =>
      new OpenAI({ adminAPIKey: key, apiKey: null, baseURL: `${api().url}/v1`, maxRetries: 0 }).admin.organization
        .projects,
    async make(place, fields = {}) {
      const { status, body } = await ask(place, '', { body: { name: `ci-${uuidv7()}`, ...fields } });
      if (status !== 200) throw new Error(JSON.stringify(body));
      return body;
    },
    works: async (secret) => (await api().ask('/v1/usage/requests', { key: secret })).status === 200,
  };
}
