import { describe, expect, it } from 'vitest';
import { type Body, recordOf, type TestOrganization, useGateway, uuidOf } from '#test/metering/recorded-usage.ts';

const noon = Date.UTC(2026, 4, 4, 12);

describe('an export of GET /v1/usage/requests', () => {
  const bench = useGateway();

  async function openHistory(requests: number): Promise<TestOrganization> {
    const organization = await bench.openOrganization();
    const records = Array.from({ length: requests }, (_, i) =>
      recordOf(organization, noon + i * 1000, {
        model: i % 5 === 0 ? 'large' : 'small',
        clientRequestId: i % 2 === 0 ? null : `mine, "${i}"`,
      }),
    );
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    return organization;
  }

  async function ask(key: string, accept: string, query = ''): Promise<Response> {
    const authorization = `Bearer ${key}`;
    return fetch(`${bench.gateway.url}/v1/usage/requests${query}`, { headers: { accept, authorization } });
  }

  async function pagesOf(key: string, query: string): Promise<Body[]> {
    const all: Body[] = [];
    let cursor = '';
    do {
      const page: Body = await bench.ask(`/v1/usage/requests?limit=500${query}${cursor}`, key);
      all.push(...page.data);
      cursor = page.has_more ? `&cursor=${page.next_cursor}` : '';
    } while (cursor !== '');
    return all;
  }

  it.each(['limit=5', 'cursor=x'])('returns 400 for the paging parameter %s', async (query) => {
    const answer = await ask(bench.gateway.key, 'text/csv', `?${query}`);
    expect(answer.status).toBe(400);
    const { error }: Body = await answer.json();
    expect(error).toMatchObject({ param: query.split('=')[0] });
    expect(error.message).toContain('an export contains everything');
  });

  it('returns 401 without a key and 400 for an invalid filter, as JSON', async () => {
    expect((await ask('none', 'text/csv')).status).toBe(401);
    const answer = await ask(bench.gateway.key, 'application/x-ndjson', '?from=yesterday');
    expect([answer.status, answer.headers.get('content-type')]).toEqual([400, 'application/json']);
  });

  it.each(['*/*', 'application/json', 'text/html, */*;q=0.8', 'application/json, text/csv;q=0.5'])(
    'returns a page of JSON for Accept: %s',
    async (accept) => {
      const body: Body = await (await ask(bench.gateway.key, accept)).json();
      expect(body.object).toBe('list');
    },
  );

  it('returns every matching request as NDJSON, as the pages show it', async () => {
    const { managementKey } = await openHistory(2_300);
    for (const query of ['', '&model=large', `&from=2026-05-04T12:10:00Z&to=2026-05-04T12:20:00Z`]) {
      const answer = await ask(managementKey, 'application/x-ndjson', query.replace('&', '?'));
      expect(answer.headers.get('content-type')).toBe('application/x-ndjson');
      const lines = (await answer.text()).split('\n');
      expect(lines.pop()).toBe('');
      expect(lines.map((line): Body => JSON.parse(line))).toEqual(await pagesOf(managementKey, query));
    }
  });

  it('returns one line for each request as CSV, under a heading', async () => {
    const organization = await openHistory(3);
    const answer = await ask(organization.managementKey, 'text/csv');
    const [heading = '', ...lines] = (await answer.text()).split('\r\n');
    expect(heading).toMatch(
      /^id,created_at,key_id,.*,total_ms,client_request_id,fallback_for,input_cache_write_tokens,end_user,time,key_name,project_name$/,
    );
    expect(lines.pop()).toBe('');
    const [newest] = await pagesOf(organization.managementKey, '');
    const fields = `${newest.id},${newest.created_at},${newest.key_id},${newest.project_id},small,/v1/chat/completions,false,default`;
    expect(lines).toHaveLength(3);
    expect(lines[0]).toBe(
      `${fields},200,completed,,false,10,4,5,2,engine,0.000003,0,USD,1,20,30,,,0,,2026-05-04T12:00:02.000Z,Management key,default`,
    );
    expect(lines[1]).toMatch(/,30,"mine, ""1""",,0,,2026-05-04T12:00:01.000Z,Management key,default$/);
  });

  it('names keys and projects in CSV', async () => {
    const organization = await bench.openOrganization();
    const { keyId } = await bench.makeKey(organization);
    await bench.metering.settle(recordOf({ ...organization, keyId: uuidOf('key', keyId) }, noon));
    const { name }: Body = await bench.ask(`/v1/keys/${keyId}`, organization.managementKey);
    const [, line] = (await (await ask(organization.managementKey, 'text/csv')).text()).split('\r\n');
    expect(line?.split(',').slice(-3)).toEqual(['2026-05-04T12:00:00.000Z', name, 'default']);
  });

  it('shows an inference key only its own requests', async () => {
    const organization = await openHistory(4);
    const { secret, keyId } = await bench.makeKey(organization);
    const own = recordOf({ ...organization, keyId: uuidOf('key', keyId) }, noon);
    await bench.metering.settle(own);
    const lines = (await (await ask(secret, 'application/jsonl')).text()).trimEnd().split('\n');
    expect(lines.map((line): Body => JSON.parse(line).id)).toEqual([own.id]);
    const others = `?key_id=key_${organization.keyId.replaceAll('-', '')}`;
    expect(await (await ask(secret, 'application/x-ndjson', others)).text()).toBe('');
    expect((await (await ask(secret, 'text/csv', others)).text()).split('\r\n')).toHaveLength(2);
  });
});
