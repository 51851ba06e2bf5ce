// The pages as a person meets them. PAGES is the directory of the pages, SCREENSHOTS that of the pictures.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { PAGES, SCREENSHOTS } = process.env;
const NAMES = ["board", "seed", "compare"];

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
    ],
  });
});
after(() => browser?.close());

/// A page, opened; it fails the test if it says anything on the console or asks for anything but itself.
const open = async (name, options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const said = [];
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => { said.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith("file:")) said.push(`request: ${request.url()}`); });
  await page.goto(pathToFileURL(join(PAGES, `${name}.html`)).href + (options.hash ?? ""));
  return { page, said, close: () => context.close() };
};

const violations = async (page) => {
  // The page forbids scripts of others, and the debugger is not bound by that.
  await page.evaluate(axe);
  const result = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
  return result.violations.map((violation) =>
    `${violation.id}: ${violation.help}\n    ${violation.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join("\n    ")}`);
};

for (const name of NAMES) {
  for (const [look, options] of [
    ["light", { colorScheme: "light" }],
    ["dark", { colorScheme: "dark" }],
    ["narrow", { colorScheme: "light", viewport: { width: 390, height: 844 } }],
  ]) {
    test(`${name} ${look}: it is quiet, readable by everybody, and fits`, async () => {
      const { page, said, close } = await open(name, options);
      await page.evaluate(() => document.querySelectorAll("details").forEach((details, index) => {
        if (index < 12) details.open = true;
      }));
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-${look}.png`), fullPage: true });
      assert.deepEqual(await violations(page), []);
      const width = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(width[0] <= width[1], `it is ${width[0]} wide in a window of ${width[1]}`);
      assert.deepEqual(said, []);
      await close();
    });
  }

  test(`${name}: every link inside leads somewhere`, async () => {
    const { page, close } = await open(name);
    const dead = await page.evaluate(() =>
      [...document.querySelectorAll("a[href^='#']")]
        .filter((link) => !document.getElementById(link.hash.slice(1)))
        .map((link) => link.outerHTML.slice(0, 100)));
    assert.deepEqual(dead, []);
    assert.equal(await page.locator("a:not([href^='#'])").count(), 0);
    await close();
  });

  test(`${name}: it can be printed`, async () => {
    const { page, said, close } = await open(name);
    const pdf = await page.pdf({ format: "A4", path: join(SCREENSHOTS, `${name}.pdf`) });
    assert.ok(pdf.length > 10_000);
    assert.deepEqual(said, []);
    await close();
  });
}

const shown = (page) => page.locator("#rows tbody tr:not([hidden])").count();

test("trials are filtered by words and verdicts, with the keyboard alone", async () => {
  const { page, said, close } = await open("board");
  const all = await shown(page);
  await page.keyboard.press("/");
  await page.keyboard.type("batch=8 cuda-error");
  const some = await shown(page);
  assert.ok(some > 0 && some < all, `${some} of ${all}`);
  assert.match(await page.locator("#trials output").first().textContent(), new RegExp(`^${some} of ${all} trials`));
  await page.keyboard.press("Escape");
  assert.equal(await shown(page), all);
  await page.locator("button[data-verdict=reboot]").focus();
  await page.keyboard.press("Enter");
  const reboots = await shown(page);
  const text = await page.locator("#rows tbody tr:not([hidden]) td:first-child").allTextContents();
  assert.ok(reboots > 0 && text.every((words) => words.includes("reboot")), text.join());
  await page.keyboard.press("Enter");
  assert.equal(await shown(page), all);
  assert.deepEqual(said, []);
  await close();
});

test("tables are sorted by their figures, up and down, and say so", async () => {
  const { page, close } = await open("board");
  const header = page.locator("#rates table.sortable th", { hasText: "Faults" });
  const rates = () => page.locator("#rates table.sortable tbody td[data-v]:nth-of-type(1)").evaluateAll(
    (cells) => cells.map((cell) => Number(cell.dataset.v)));
  await header.getByRole("button").click();
  assert.equal(await header.getAttribute("aria-sort"), "ascending");
  const up = await rates();
  assert.deepEqual(up, [...up].sort((a, b) => a - b));
  await header.getByRole("button").press("Enter");
  assert.equal(await header.getAttribute("aria-sort"), "descending");
  assert.deepEqual(await rates(), [...up].reverse());
  await close();
});

test("a tile leads to its cell, a mark of a boot to its trial, a trial to its close look", async () => {
  const { page, close } = await open("board");
  await page.locator("a.tile").nth(2).click();
  assert.ok(await page.locator("tr:target").isVisible());
  await page.locator("#filter").fill("no such trial");
  await page.locator(".marks a.f").first().click();
  await page.waitForFunction(() => document.querySelector("tr:target:not([hidden])"));
  await page.locator("tr:target a").click();
  await page.waitForFunction(() => document.querySelector("details.close:target[open]"));
  assert.ok(await page.locator("details:target .why").isVisible());
  await close();
});

test("an address with a trial in it opens that trial", async () => {
  const { page, close } = await open("board");
  const id = await page.locator("details.others details.close").last().getAttribute("id");
  await close();
  const again = await open("board", { hash: `#${id}` });
  assert.ok(await again.page.locator(`#${id} .why`).isVisible());
  await again.close();
});

test("evidence is searched, and what a program printed is text", async () => {
  const { page, said, close } = await open("board");
  await page.locator("#find").fill("nvgpu");
  assert.ok(await page.locator("#evidence mark").count() > 0);
  assert.ok(await page.locator("#evidence mark").first().isVisible());
  await page.locator("#find").fill("nothing says this");
  assert.equal(await page.locator("#evidence details.said:visible").count(), 0);
  await page.locator("#find").fill("");
  assert.equal(await page.locator("img, script:not(:last-child)").count(), 0);
  assert.ok((await page.locator("#close pre").allTextContents()).some((text) => text.includes("<script>alert('owned')")));
  assert.deepEqual(said, []);
  await close();
});

test("the theme is the system's until somebody says otherwise", async () => {
  const { page, close } = await open("board", { colorScheme: "dark" });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  await page.locator("#theme").click();
  assert.notEqual(await background(), dark);
  assert.equal(await page.locator("#theme").textContent(), "Dark");
  await close();
});

test("without scripts everything is there", async () => {
  const { page, close } = await open("board", { javaScriptEnabled: false });
  assert.ok(await page.locator("#rows tbody tr").count() > 50);
  assert.ok(await page.locator("#rows tbody tr").last().isVisible());
  await close();
});
