import { describe, expect, it } from 'vitest';
import { cardShare, gpusOfRows, isSlice } from '#core/fleet/drivers/nvidia-smi.ts';

/** As NVIDIA's MIG User Guide prints it. */
const listing = `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
  MIG 1c.3g.20gb  Device  2: (UUID: MIG-1e99852c-e624-574a-9b5c-ce0aa0c2a9e9)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c)`.split('\n');

describe('the GPUs that nvidia-smi lists', () => {
  const card = 'GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c';
  const divided = 'GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77';
  const row = (id: string, mode: string) => [id, '40960', 'NVIDIA A100-SXM4-40GB', '0', mode];
  const rows = [row(divided, 'Enabled'), row(card, 'Disabled')];
  const whole = (id: string) => ({ id, memoryBytes: 40_960 * 2 ** 20, profile: 'NVIDIA A100-SXM4-40GB' });

  it('are cards, and slices in the place of a card that is divided', () => {
    const slice = (id: string, gb: number, size: string) => ({
      id,
      memoryBytes: gb * 1e9,
      profile: `NVIDIA A100-SXM4-40GB MIG ${size}`,
    });
    expect(gpusOfRows(rows, listing)).toEqual([
      slice('MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f', 5, '1g.5gb'),
      slice('MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb', 5, '1g.5gb+me'),
      slice('MIG-1e99852c-e624-574a-9b5c-ce0aa0c2a9e9', 20, '1c.3g.20gb'),
      whole(card),
    ]);
  });

  it('are not cards in MIG mode without slices, which run no program', () => {
    expect(gpusOfRows(rows, [])).toEqual([whole(card)]);
    expect(gpusOfRows(rows, ['No devices were found'])).toEqual([whole(card)]);
    const withoutMig = [row(divided, '[N/A]'), row(card, 'Disabled')];
    expect(gpusOfRows(withoutMig, [])).toEqual([whole(divided), whole(card)]);
  });

  it('are slices of the card above them, whatever lines are between', () => {
    const [first = '', ...others] = listing;
    const warning = 'WARNING: infoROM is corrupted at gpu 0000:07:00.0';
    expect(gpusOfRows(rows, [first, warning, ...others])).toEqual(gpusOfRows(rows, listing));
    const lost = 'GPU 0: Unable to determine the device handle for gpu 0000:07:00.0';
    expect(gpusOfRows([row(card, 'Enabled')], [`GPU 1: A100 (UUID: ${card})`, lost, ...others.slice(0, 3)])).toEqual(
      [],
    );
  });

  it.each([
    [null, 28],
    ['NVIDIA H100 80GB HBM3', 28],
    ['NVIDIA H100 80GB HBM3 MIG 3g.40gb', 12],
    ['NVIDIA A100-SXM4-40GB MIG 1g.5gb+me', 4],
    ['NVIDIA A100-SXM4-40GB MIG 7g.40gb', 28],
    ['NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb', 4],
    ['NVIDIA A30 MIG 2g.12gb', 14],
    ['NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb', 7],
    ['NVIDIA RTX PRO 5000 Blackwell MIG 1g.24gb', 14],
    ['NVIDIA RTX PRO 4500 Blackwell MIG 2g.32gb', 28],
  ])('are a part of a card: %s, in 28ths: %s', (profile, share) => {
    expect(cardShare(profile)).toBe(share);
  });

  it('are slices by UUID or by the name that CDI gives them', () => {
    const slices = ['MIG-c6d4f1ef', 'MIG-GPU-c6d4/1/0', '0:1', 'nvidia.com/gpu=MIG-c6d4f1ef', 'nvidia.com/gpu=0:1'];
    for (const id of slices) expect(isSlice(id), id).toBe(true);
    for (const id of ['GPU-1', '0', 'nvidia.com/gpu=0', 'intel.com/gpu=0000:03:00.0', 'renderD128']) {
      expect(isSlice(id), id).toBe(false);
    }
  });
});
