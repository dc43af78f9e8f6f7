import { systemClock } from '#base/clock.ts';
import { ConfigError } from '#base/config-error.ts';
import { readAddress } from '#base/config/config.ts';
import { readTime } from '#base/database/database.ts';
import { createLog } from '#base/log.ts';
import { openSteadyClock } from '#base/steady-clock.ts';
import { createAudit } from '#core/audit/audit.ts';
import { makeSignInLink } from '#core/sessions/sessions.ts';
import { type CommandContext, exitCodes } from '#edge/cli/cli.ts';
import { withGatewayDatabase } from './books-database.ts';
import { welcomeLink } from './welcome.ts';

/** Runs `headgate welcome`: creates a sign-in link. Requires access to the database, as `keys recover` does. */
export async function runWelcome(context: CommandContext): Promise<number> {
  const link = await withGatewayDatabase({ whileRunning: true }, async ({ db, variable, dataDir }) => {
    // The gateway uses PostgreSQL's clock, which may differ from this machine's.
    const askTime = (): Promise<number> => readTime(db);
    const clock = await openSteadyClock({ clock: systemClock, askTime, log: createLog('silent') });
    const made = await makeSignInLink({ db, clock, audit: createAudit({ clock }) });
    if (made !== null) return { ...made, noted: readAddress(dataDir) };
    throw new ConfigError(
      `${variable}: the database has no platform administrator; the first start of a gateway on it creates one.`,
    );
  });
  const { url, environment } = context.config;
  const isNamed = (environment['HEADGATE_URL'] ?? '') !== '';
  const address = welcomeLink(isNamed ? url : (link.noted ?? url), link.token);
  const expiresAt = new Date(link.expiresAtMs).toISOString();
  const body = { object: 'sign_in_link', url: address, user_email: link.email, expires_at: expiresAt };
  context.out(
    context.json
      ? `${JSON.stringify(body, null, 2)}\n`
      : `Open this in a browser to sign in as ${link.email}; it works once, within ten minutes, until ${expiresAt.slice(0, 19).replace('T', ' ')} UTC:\n\n  ${address}\n`,
  );
  return exitCodes.ok;
}
