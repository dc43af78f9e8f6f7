import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '#base/clock.ts';
import { ConfigError } from '#base/config-error.ts';
import { readDatabaseCommandConfig } from '#base/config/config.ts';
import { readTime } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { openSteadyClock } from '#base/steady-clock.ts';
import { createAudit } from '#core/audit/audit.ts';
import { changesKnownMs, type KeyRecord, recoverPlatformKey, type Recovery } from '#core/keys/keys.ts';
import { type CommandContext, exitCodes } from '#edge/cli/cli.ts';
import { withGatewayDatabase } from './books-database.ts';

/** Runs `headgate keys recover`: creates a new key after the last key was lost. Requires access to the database. */
export async function runKeysRecover(context: CommandContext): Promise<number> {
  const revokeOthers = context.flags['revoke-others'] === true;
  const { keyPrefix } = readDatabaseCommandConfig();
  const recovery = await withGatewayDatabase({ whileRunning: true }, async ({ db, variable }) => {
    // Gateways poll for recent changes by PostgreSQL's clock, which may differ from this machine's.
    const askTime = (): Promise<number> => readTime(db);
    const clock = await openSteadyClock({ clock: systemClock, askTime, log: createLog('silent') });
    const made = await recoverPlatformKey({ db, clock, audit: createAudit({ clock }), keyPrefix, revokeOthers });
    if (made !== null) return made;
    throw new ConfigError(
      `${variable}: the database has no platform administrator; the first start of a gateway on it creates one, with a key.`,
    );
  });
  context.out(context.json ? jsonText(recovery, revokeOthers) : text(recovery, revokeOthers));
  // Every gateway polls for changes: when this command ends, all gateways reject the revoked keys.
  if (revokeOthers && recovery.others.length > 0) await sleep(changesKnownMs);
  return exitCodes.ok;
}

const shownKey = ({ id, name, prefix, last4 }: KeyRecord): string =>
  `  ${formatId('key', id)}  ${prefix}…${last4}  ${name}\n`;

function text({ key, secret, email, others }: Recovery, isRevoked: boolean): string {
  const list = others.map(shownKey).join('');
  const rest =
    others.length === 0
      ? ''
      : isRevoked
        ? `\nRevoked keys; gateways end their running requests before this command ends:\n\n${list}`
        : `\nOther active keys (--revoke-others revokes all, DELETE /v1/keys/{id} revokes one):\n\n${list}`;
  return `A management key of ${email} (${formatId('key', key.id)}); it is shown only once, so store it now:

  ${secret}
${rest}`;
}

function jsonText({ key, secret, email, others }: Recovery, isRevoked: boolean): string {
  const ids = others.map(({ id }) => formatId('key', id));
  const body = {
    object: 'recovered_key',
    id: formatId('key', key.id),
    organization_id: formatId('org', key.organizationId),
    user_email: email,
    secret,
    revoked: isRevoked ? ids : [],
    still_active: isRevoked ? [] : ids,
  };
  return `${JSON.stringify(body, null, 2)}\n`;
}
