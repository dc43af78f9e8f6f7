import { expect } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import type { OrganizationRole } from '#core/accounts/accounts.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { defaultKeyLimits, defaultKeyToggles } from '#core/keys/keys.ts';
import type { Answer, AskOptions, TestApi } from '#test/api/test-api.ts';

export const password = 'correct horse battery';
export const anybody = () => ({ name: 'Ada', email: `${uuidv7()}@example.com`, password });

const fieldsOf = ({ body }: Answer): string[] => body.error.details.map(({ field }: { field: string }) => field);
/** Status, code and fields of an error. */
export const refusal = (answer: Answer): unknown[] => [answer.status, answer.body.error.code, ...fieldsOf(answer)];

/** Steps that tests of users share. */
export function userSteps(api: () => TestApi) {
  const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);
  return {
    ask,
    make: async (key: string, fields: object = {}, path = '/v1/users') => {
      const body = { ...anybody(), ...fields };
      const answer = await ask(path, { key, body });
      expect(answer.status, JSON.stringify(answer.body)).toBe(201);
      return { ...answer.body, ...body, role: undefined };
    },
    /** A key that acts for a user, as one has who made it himself. */
    keyOf: async (organizationId: string, userId: string, scope: 'inference' | 'management' = 'inference') => {
      const organization = parseId('org', organizationId) ?? '';
      const [row] = await api().db
        .sql`select id from projects where organization_id = ${organization} order by id limit 1`;
      const key = {
        organizationId: organization,
        projectId: row?.['id'],
        userId: parseId('user', userId) ?? '',
        name: 'own',
        scope,
        expires: null,
        limits: defaultKeyLimits,
        models: null,
        toggles: defaultKeyToggles,
      };
      return (await api().keys.create(key, systemAuthor)).secret;
    },
    /** Makes somebody a member of another organization too, as an invitation will. */
    join: async (organizationId: string, userId: string, role: OrganizationRole): Promise<void> => {
      const [organization, user] = [parseId('org', organizationId), parseId('user', userId)];
      await api().db.sql`
        insert into memberships (organization_id, user_id, role, created_at)
        values (${organization}, ${user}, ${role}, now())`;
    },
    ownerOf: async (key: string): Promise<string> => formatId('user', (await api().keys.verify(key))?.userId ?? ''),
  };
}
