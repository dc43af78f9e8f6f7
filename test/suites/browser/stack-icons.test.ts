import { deflateSync, crc32 } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

/** Icons of stacks stay in their square, whatever shape or font they have; images are whole. */

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** An image of one colour. */
function png(width: number, height: number): string {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width);
  head.writeUInt32BE(height, 4);
  head.set([8, 0], 8);
  const rows = Buffer.alloc(height * (width + 1), 128);
  for (let row = 0; row < height; row += 1) rows[row * (width + 1)] = 0;
  const magic = Buffer.from('89504e470d0a1a0a', 'hex');
  const parts = [chunk('IHDR', head), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))];
  return `data:image/png;base64,${Buffer.concat([magic, ...parts]).toString('base64')}`;
}

const icons = {
  wide: png(400, 40),
  tall: png(40, 400),
  tiny: png(8, 8),
  family: '👨‍👩‍👧‍👦',
  flag: '🏳️‍🌈',
  heart: '❤',
  none: null,
};

/** How far what is drawn goes beyond its square, in pixels, and how much an image is distorted. */
function measure(): { readonly beyond: number; readonly distorted: boolean }[] {
  interface Box {
    readonly left: number;
    readonly right: number;
    readonly top: number;
    readonly bottom: number;
  }
  interface Drawn {
    getBoundingClientRect(): Box;
    querySelector(name: string): Drawn | null;
  }
  interface Page {
    querySelectorAll(name: string): Iterable<Drawn>;
    createRange(): Drawn & { selectNodeContents(node: Drawn): void };
  }
  const { document, getComputedStyle } = globalThis as unknown as {
    document: Page;
    getComputedStyle: (this: void, node: Drawn) => { readonly objectFit: string; readonly overflow: string };
  };
  return [...document.querySelectorAll('.icon')].map((icon) => {
    const range = document.createRange();
    range.selectNodeContents(icon);
    const image = icon.querySelector('img');
    const [outer, inner] = [icon.getBoundingClientRect(), (image ?? range).getBoundingClientRect()];
    const beyond = Math.max(
      outer.left - inner.left,
      inner.right - outer.right,
      outer.top - inner.top,
      inner.bottom - outer.bottom,
    );
    return {
      beyond: image === null && getComputedStyle(icon).overflow === 'hidden' ? 0 : Math.max(0, beyond),
      distorted: image !== null && getComputedStyle(image).objectFit !== 'contain',
    };
  });
}

it("shows stack icons within their square, undistorted, in the catalog and on the stack's page", async () => {
  const main = 'output "said" { value = "hello" }';
  for (const [name, icon] of Object.entries(icons)) {
    const manifest = JSON.stringify({ name: `icon-${name}`, title: name, category: 'Icons', ...(icon && { icon }) });
    const form = new FormData();
    form.set('file', new Blob([packOf({ 'main.tf': main, 'manifest.json': manifest })]), 'stack.zip');
    const headers = { authorization: `Bearer ${gateway.key}` };
    const pushed = await fetch(`${gateway.url}/v1/stacks`, { method: 'POST', headers, body: form });
    expect(pushed.status).toBe(201);
  }
  const { page } = person;
  const expectFitted = async (path: string, count: number): Promise<void> => {
    await page.goto(new URL(path, gateway.url).href);
    const seen = await page.evaluate(measure);
    expect(seen.length, path).toBe(count);
    expect(seen, path).toEqual(seen.map(() => ({ beyond: 0, distorted: false })));
  };
  await expectFitted('/portal/stacks?category=Icons', Object.keys(icons).length);
  await expectPresentable(page, 'stack-icons');
  for (const name of Object.keys(icons)) await expectFitted(`/portal/stacks/icon-${name}`, 1);
  expect(person.complaints).toEqual([]);
});
