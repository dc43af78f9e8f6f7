import { afterAll, expect, it } from 'vitest';
import { AcmeAuthority } from './acme-authority.ts';
import { useWebPlace } from './web-place.ts';

/** Certificates that an authority gives by ACME, after it has seen that the name leads to this Caddy. */

let started: AcmeAuthority | null = null;
const newPlace = useWebPlace(async () => (started = await AcmeAuthority.start()));
afterAll(() => started?.close());

// Ports 80 and 443, at which an authority asks, are for root.
it('requests an ACME certificate for an existing web address, and for no other name', { tags: 'root' }, async () => {
  const { caddy, cluster, application, ready } = await newPlace();
  const [host, other] = [`web--${cluster.name}.apps.test`, `other--${cluster.name}.apps.test`];
  for (const name of [host, other]) started?.knows(name);
  await expect(caddy.tls(host)).rejects.toThrow('alert');
  expect(caddy.certified).toEqual([]);

  const { port } = await application('behind a real certificate');
  const run = await ready('web', { port });
  expect(await caddy.text(run.url)).toMatchObject({ status: 200 });
  const socket = await caddy.tls(host);
  expect(socket.authorized).toBe(true);
  expect(socket.getPeerCertificate().subjectaltname).toBe(`DNS:${host}`);
  socket.destroy();
  await expect(caddy.tls(other)).rejects.toThrow('alert');
  expect(caddy.certified).toEqual([host]);
});
