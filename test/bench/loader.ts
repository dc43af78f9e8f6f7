import { fork, type ChildProcess } from 'node:child_process';
import type { LoadJob, LoadMessage, LoadReport, LoadRequest, Window } from './load-protocol.ts';

/** The load process, from its parent's side. */
export interface Loader {
  readonly pid: number;
  run(job: LoadJob): Promise<LoadReport>;
  /** Returns the results since the last call. */
  window(): Promise<Window>;
  stop(): void;
}

export function startLoader(): Loader {
  const child: ChildProcess = fork(new URL('load.ts', import.meta.url));
  const { pid } = child;
  if (pid === undefined) throw new Error('the load process did not start');

  function next<K extends LoadMessage['kind']>(kind: K, request: LoadRequest): Promise<LoadMessage & { kind: K }> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        child.off('message', onMessage);
        child.off('exit', onExit);
      };
      const onMessage = (message: LoadMessage): void => {
        if (!isKind(message, kind)) return;
        leave();
        resolve(message);
      };
      const onExit = (): void => {
        leave();
        reject(new Error('the load process ended'));
      };
      child.on('message', onMessage);
      child.on('exit', onExit);
      child.send(request);
    });
  }

  return {
    pid,
    run: async (job) => (await next('report', { kind: 'job', job })).report,
    window: async () => (await next('window', { kind: 'window' })).window,
    stop: () => void child.kill('SIGTERM'),
  };
}

function isKind<K extends LoadMessage['kind']>(message: LoadMessage, kind: K): message is LoadMessage & { kind: K } {
  return message.kind === kind;
}
