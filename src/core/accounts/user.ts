import { eq } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import type { PlatformRole } from './principal.ts';
import { users } from './schema.ts';

/** The platform role of a user; null when there is no such user. */
export async function readPlatformRole(db: Db, userId: string): Promise<PlatformRole | null> {
  const [row] = await db.orm.select({ role: users.platformRole }).from(users).where(eq(users.id, userId));
  return row?.role ?? null;
}
