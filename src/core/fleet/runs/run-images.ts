import type { Db } from '#base/database/database.ts';

/** Returns the images from which the docker driver has run replicas, also of deleted files. */
export async function readRunImages({ sql }: Pick<Db, 'sql'>): Promise<readonly string[]> {
  const rows = await sql<{ image: string }[]>`
    select distinct image from replica_runs where driver = 'docker' and image is not null order by image`;
  return rows.map(({ image }) => image);
}
