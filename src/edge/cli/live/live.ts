import { openBrowser, openCommand } from './open.ts';
import { topCommand } from './top.ts';

export { openBrowser };

/** Commands that show the present state: in a terminal, or in the browser. */
export const liveCommands = [topCommand, openCommand];
