import type { AdmitRequest, AdmitResult } from '#core/admission/contract/types.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import type { TestGateway } from './admission-bench.ts';

/** Sends a gateway so many of the same requests, one after the other; returns those that were admitted. */
export async function ask(
  { admission }: TestGateway,
  times: number,
  make: () => AdmitRequest,
): Promise<{ said: string[]; admitted: AdmitRequest[] }> {
  const said: string[] = [];
  const admitted: AdmitRequest[] = [];
  for (let time = 0; time < times; time += 1) {
    const request = make();
    const result = await admission.admit(request);
    if (result.ok) admitted.push(request);
    said.push(wordOf(result));
  }
  return { said, admitted };
}

export const wordOf = (result: AdmitResult): string => (result.ok ? 'ok' : result.code);
export const count = (said: readonly string[], word = 'ok'): number => said.filter((one) => one === word).length;

/** Redis decides again for a gateway when it says how limits stand. */
export const isBack = ({ admission }: TestGateway, request: AdmitRequest): Promise<unknown> =>
  eventually(async () => {
    const asked = admission.check(request);
    return asked instanceof Promise && (await admission.view(request)).requests !== null;
  });
