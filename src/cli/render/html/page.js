"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // The theme: the system's, until somebody says otherwise.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = $("#theme");
  const show = (name) => {
    document.documentElement.dataset.theme = name;
    theme.textContent = name === "dark" ? "Light" : "Dark";
    theme.setAttribute("aria-label", name === "dark" ? "Use light colours" : "Use dark colours");
  };
  show(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => show(dark.matches ? "dark" : "light"));
  theme.addEventListener("click", () => show(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  theme.hidden = false;

  // What a cell is sorted by: its figure, else its words.
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return "";
    const text = cell.dataset.v ?? cell.textContent.trim();
    return text !== "" && !isNaN(text) ? Number(text) : text.toLowerCase();
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    // What has no figure comes last.
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a < b ? -1 : a > b ? 1 : 0;
  };
  const sort = (table, header) => {
    const column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, key: key(row, column) }));
    rows.sort((a, b) => (down ? compare(b.key, a.key) : compare(a.key, b.key)) || a.place - b.place);
    $$("th", table.tHead).forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(({ row }) => row));
    table.dispatchEvent(new Event("sorted"));
  };
  for (const table of $$("table.sortable")) {
    for (const header of $$("thead th:not(.plain)", table)) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, header));
      header.append(button);
    }
  }

  // The trials: words that must all be there, verdicts of which one must, and no more rows than a browser likes.
  const ROWS_AT_FIRST = 400;
  const table = $("#rows");
  const more = $("#more");
  if (table) {
    const box = $("#trials .filter");
    const input = $("#filter");
    const output = $("output", box);
    const buttons = $$("button[data-verdict]", box);
    let all = false;
    const words = new WeakMap();
    const text = (row) => {
      if (!words.has(row)) words.set(row, row.textContent.toLowerCase());
      return words.get(row);
    };
    const apply = () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const verdicts = buttons.filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.dataset.verdict);
      let found = 0;
      for (const row of table.tBodies[0].rows) {
        const verdict = row.cells[0].textContent.trim().split(/\s+/)[1];
        const fits = (verdicts.length === 0 || verdicts.includes(verdict)) && wanted.every((word) => text(row).includes(word));
        if (fits) found += 1;
        row.hidden = !fits || (!all && found > ROWS_AT_FIRST);
      }
      const hidden = all ? 0 : Math.max(0, found - ROWS_AT_FIRST);
      more.hidden = hidden === 0;
      output.textContent = `${found} of ${table.tBodies[0].rows.length} trials` + (hidden ? `, the first ${ROWS_AT_FIRST} shown` : "");
    };
    const reset = () => {
      input.value = "";
      buttons.forEach((button) => button.setAttribute("aria-pressed", "false"));
    };
    input.addEventListener("input", apply);
    for (const button of buttons) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "true" ? "false" : "true");
        apply();
      });
    }
    $("button", more).addEventListener("click", () => { all = true; apply(); table.focus(); });
    table.addEventListener("sorted", apply);
    box.hidden = false;
    apply();
    addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) {
        event.preventDefault();
        input.focus();
      }
      if (event.key === "Escape" && document.activeElement === input) { reset(); apply(); }
    });
    // A link to a row that is filtered away takes the filter off.
    addEventListener("hashchange", () => {
      const row = aim();
      if (row?.hidden) { reset(); all = true; apply(); row.scrollIntoView({ block: "center" }); }
    });
  }

  // What a link leads to is opened.
  const aim = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    for (let at = target?.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    return target;
  };
  addEventListener("hashchange", aim);
  const first = aim();
  if (first?.hidden) dispatchEvent(new Event("hashchange"));
  else first?.scrollIntoView();

  // The evidence: items that hold the words are shown, with the words marked.
  const find = $("#find");
  if (find) {
    const box = find.closest(".filter");
    const pieces = $$("#evidence pre").map((pre) => ({ pre, text: pre.textContent }));
    const mark = ({ pre, text }, wanted) => {
      pre.textContent = "";
      let count = 0;
      let from = 0;
      const lower = text.toLowerCase();
      for (let at = lower.indexOf(wanted); at >= 0 && count < 200; at = lower.indexOf(wanted, from)) {
        const hit = document.createElement("mark");
        hit.textContent = text.slice(at, at + wanted.length);
        pre.append(text.slice(from, at), hit);
        from = at + wanted.length;
        count += 1;
      }
      pre.append(text.slice(from));
      return count;
    };
    find.addEventListener("input", () => {
      const wanted = find.value.toLowerCase();
      let count = 0;
      for (const piece of pieces) {
        const hits = wanted.length > 1 ? mark(piece, wanted) : ((piece.pre.textContent = piece.text), 0);
        count += hits;
        piece.pre.closest("figure").hidden = wanted.length > 1 && hits === 0;
      }
      for (const boot of $$("#evidence details.said")) {
        const open = $$("figure", boot).some((figure) => !figure.hidden);
        if (wanted.length > 1) boot.open = open;
        boot.hidden = !open;
      }
      $("output", box).textContent = wanted.length > 1 ? `${count} places` : "";
    });
    box.hidden = false;
  }

  // Where the reader is.
  const links = $$("nav a");
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  const watch = new IntersectionObserver(() => {
    const passed = sections.map((section, index) => (section.getBoundingClientRect().top < 120 ? index : -1));
    const at = Math.max(0, ...passed);
    links.forEach((link, index) => {
      if (index === at) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  }, { rootMargin: "-100px 0px -60% 0px", threshold: [0, 1] });
  sections.forEach((section) => watch.observe(section));
})();
