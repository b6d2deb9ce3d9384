"use strict";
// Everything from the run goes into the page as text (textContent), never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const name = (text) => make("bdi", {}, text);
const whole = (number) => number.toLocaleString("en");
const signed = (number) => (number > 0 ? "+" : number < 0 ? "−" : "") + Math.abs(number).toFixed(3);
const narrow = matchMedia("(max-width: 640px)").matches;
const counted = (number, noun, plural) => `${whole(number)} ${number === 1 ? noun : plural}`;

/* Colours, and the copy button */

const theme = document.getElementById("theme");
const THEMES = { "": "as the system", light: "light", dark: "dark" };
theme.hidden = false;
theme.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length];
  document.documentElement.dataset.theme = next;
  theme.textContent = `Colours: ${THEMES[next]}`;
});

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.of);
    let done = false;
    try {
      await navigator.clipboard.writeText(source.textContent);
      done = true;
    } catch {
      getSelection().selectAllChildren(source); // where the browser keeps its clipboard from files
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected: copy it with the keyboard";
    setTimeout(() => (button.textContent = "Copy the signature"), 2500);
  });
}

/* Lists that are shown a page at a time */

function pager(size, show) {
  const before = make("button", { type: "button", onclick: () => go(at - 1) }, "Previous");
  const after = make("button", { type: "button", onclick: () => go(at + 1) }, "Next");
  const where = make("span", { role: "status" });
  const bar = make("nav", { class: "pager" }, before, where, after);
  let at = 0;
  let rows = [];
  let noun = ["row", "rows"];
  function go(page) {
    const pages = Math.max(1, Math.ceil(rows.length / size));
    at = Math.min(Math.max(page, 0), pages - 1);
    before.disabled = at === 0;
    after.disabled = at === pages - 1;
    before.hidden = after.hidden = pages === 1;
    const total = counted(rows.length, ...noun);
    where.textContent = pages === 1 ? total : `${total}, page ${whole(at + 1)} of ${whole(pages)}`;
    show(rows.slice(at * size, (at + 1) * size));
  }
  return {
    bar,
    fill(found, words = noun) {
      rows = found;
      noun = words;
      go(0);
    },
  };
}

const folded = (text) => text.normalize("NFC").toLowerCase();

/* Tables: sorted by any column, searched by their texts */

function table(place, columns, rows, title) {
  const n = rows[columns[0].key].length;
  const texts = columns.filter((column) => column.text).map((column) => column.key);
  const haystack = Array.from({ length: n }, (_, row) => folded(texts.map((key) => rows[key][row]).join(" ")));
  const search = make("input", { type: "search", oninput: () => refresh() });
  const body = make("tbody");
  let by = null;
  let down = false;
  const heads = columns.map((column) => {
    const button = make("button", { type: "button", onclick: () => sort(column) }, column.title);
    return make("th", { scope: "col", class: column.text || column.bar ? null : "number" }, column.sort === false ? column.title : button);
  });
  const pages = pager(data.kind === "run" ? 12 : 25, (shown) => {
    body.replaceChildren(...shown.map((row) => make("tr", {}, ...columns.map((column, at) => cell(column, row, at)))));
  });
  pages.bar.setAttribute("aria-label", `Pages of the table ${title}`);
  function cell(column, row, at) {
    const value = rows[column.key][row];
    const tag = at === 0 ? "th" : "td";
    const attributes = at === 0 ? { scope: "row" } : { class: column.text ? "text" : column.bar ? "bars" : "number" };
    if (column.show) return make(tag, attributes, column.show(value, row));
    if (value === null) return make(tag, attributes, "–");
    if (column.bar) {
      const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
      bar.firstChild.style.width = `${100 * value}%`;
      return make(tag, attributes, narrow ? value.toFixed(3) : bar, narrow ? bar : value.toFixed(3));
    }
    return make(tag, attributes, column.text ? name(value || "(no label)") : column.signed ? signed(value) : column.digits ? value.toFixed(column.digits) : whole(value));
  }
  function sort(column) {
    down = by === column ? !down : !column.text;
    by = column;
    heads.forEach((head, at) => {
      if (columns[at] === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    refresh();
  }
  function refresh() {
    const wanted = folded(search.value);
    const found = [];
    for (let row = 0; row < n; row++) if (!wanted || haystack[row].includes(wanted)) found.push(row);
    if (by) {
      const values = rows[by.key];
      const order = by.text ? (a, b) => (values[a] < values[b] ? -1 : values[a] > values[b] ? 1 : 0) : (a, b) => values[a] - values[b];
      found.sort((a, b) => {
        if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
        return down ? order(b, a) : order(a, b);
      });
    }
    pages.fill(found, ["row", "rows"]);
  }
  const scroll = make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body),
  );
  if (n > 12) place.append(make("div", { class: "controls" }, make("label", {}, "Search", search)));
  place.append(scroll, pages.bar);
  refresh();
}

function jump(text) {
  return make("button", { type: "button", onclick: () => window.explorer && window.explorer.showLabel(text) }, name(text || "(no label)"));
}

function spark(values) {
  const known = values.map((value, at) => [at, value]).filter(([, value]) => value !== null);
  const x = ([at]) => 4 + (132 * at) / Math.max(values.length - 1, 1);
  const y = ([, value]) => 22 - 18 * value;
  const words = `over the steps: ${values.map((value) => (value === null ? "none" : value.toFixed(2))).join(", ")}`;
  const svg = draw("svg", { viewBox: "0 0 140 26", class: "spark", role: "img", "aria-label": words });
  svg.append(draw("path", { class: "floor", d: "M4 22.5H136" }));
  if (!known.length) return svg;
  svg.append(draw("path", { d: "M" + known.map((point) => `${x(point).toFixed(1)},${y(point).toFixed(1)}`).join("L") }));
  const last = known[known.length - 1];
  svg.append(draw("circle", { cx: x(last), cy: y(last), r: 2.5 }));
  return svg;
}

function labelColumns() {
  const label = { key: "label", title: "label", text: true };
  if (data.kind === "history") {
    return [
      label,
      { key: "first", title: "first", digits: 3 },
      { key: "last", title: "last", digits: 3 },
      { key: "change", title: "change", signed: true },
      { key: "over", title: "over the steps, 0 to 1", show: spark, sort: false, bar: true },
    ];
  }
  label.show = (text) => jump(text);
  if (data.kind === "compare") {
    const columns = [label, { key: "n", title: "queries" }];
    data.systems.forEach((system, at) => {
      columns.push({ key: `value${at}`, title: system.name, bar: true });
      if (at) columns.push({ key: `change${at}`, title: data.systems.length > 2 ? `change of ${system.name}` : "change", signed: true });
    });
    return columns;
  }
  const columns = [label, { key: "low", title: `recall@${Math.min(...data.ks)}`, bar: true }];
  if (data.ks.length > 1) columns.push({ key: "high", title: `recall@${Math.max(...data.ks)}`, digits: 3 });
  columns.push({ key: "n", title: "queries" });
  if (data.tables.labels.excluded.some(Boolean)) columns.push({ key: "excluded", title: "excluded" });
  return [...columns, { key: "rank", title: "median rank", digits: 1 }];
}

const TABLES = {
  labels: () => labelColumns(),
  confusions: () => [
    { key: "label", title: "label of the query", text: true },
    { key: "retrieved", title: "retrieved instead", text: true },
    { key: "count", title: "times" },
    {
      key: "example",
      title: "for example",
      text: true,
      show: (other, row) => {
        const { label, retrieved } = data.tables.confusions;
        const { id, pictures: both } = window.explorer.example(label[row], retrieved[row], other);
        return make("div", { class: "pair" }, ...both, make("button", { type: "button", onclick: () => window.explorer.showId(id) }, name(id)));
      },
    },
  ],
};

/* The queries */

const pictures = data.pictures || {};
const folder = document.querySelector('meta[name="recallatk-pictures"]').content;
const labelsOf = (item) => [data.items.label[item]].flat().map((code) => data.labels[code]);
const labelOf = (item) => labelsOf(item).join(", ");
const address = (item) => (folder ? `${folder}/${pictures[item]}` : pictures[item]);

function badge(kind) {
  const svg = draw("svg", { viewBox: "0 0 20 20", class: `badge ${kind}`, "aria-hidden": "true" });
  if (kind === "hit") svg.append(draw("circle", { cx: 10, cy: 10, r: 9 }), draw("path", { d: "M5 10l4 4 6-8" }));
  else svg.append(draw("rect", { x: 1, y: 1, width: 18, height: 18 }), draw("path", { d: "M5 5l10 10M15 5L5 15" }));
  return svg;
}

function picture(item, kind, what) {
  const box = make("div", { class: `picture ${kind}` });
  const note = data.notes && data.notes[item];
  if (item in pictures) {
    const image = make("img", { src: address(item), alt: `${what} ${data.items.id[item]}` });
    image.addEventListener("error", () => image.replaceWith(make("span", { class: "none" }, "picture missing: its file is not beside the page")));
    box.append(image);
    if (note) box.title = note;
  } else if (data.texts && item in data.texts) {
    const text = data.texts[item];
    box.classList.add("words");
    box.append(make("span", { class: "none", dir: "auto" }, text));
    box.title = note ? `${note}: ${text}` : text;
  } else box.append(make("span", { class: "none" }, note ? `missing: ${note}` : name(data.items.id[item])));
  if (kind === "hit" || kind === "miss") box.append(badge(kind));
  return box;
}

function Explorer(place) {
  const n = data.queries.item.length;
  const systems = data.systems;
  const smallest = Math.min(...data.ks);
  const chosen = new Set(data.chosen);
  const ids = data.queries.item.map((item) => data.items.id[item]);
  const idText = ids.map(folded);
  const labelText = data.queries.item.map((item) => folded(labelOf(item) || ""));
  const value = (system, k, row) => system.value[k][row];
  const miss = (system, k, row) => value(system, k, row) !== null && value(system, k, row) < 1;
  const hit = (system, k, row) => value(system, k, row) === 1;
  const margin = (system, row) => (system.wrong && system.wrong[row] !== null && system.similarity[row] !== null ? system.wrong[row] - system.similarity[row] : null);
  const rank = (system, row) => (system.best[row] < 0 ? Infinity : system.ahead[row] + 1);

  // Confident misses: the quarter of misses whose wrong neighbour is nearest, compared with the best positive.
  const confident = new Map(
    systems.map((system) => {
      const margins = [];
      for (let row = 0; row < n; row++) if (miss(system, smallest, row) && margin(system, row) !== null) margins.push(margin(system, row));
      margins.sort((a, b) => b - a);
      return [system, margins.length ? margins[Math.ceil(margins.length / 4) - 1] : null];
    }),
  );

  const filters = [["all", "all queries", () => true]];
  if (systems.length > 1) {
    for (const other of systems.slice(1)) {
      const [a, b] = [systems[0], other];
      filters.push(
        [`won:${b.name}`, `${a.name} right, ${b.name} wrong`, (row) => hit(a, smallest, row) && miss(b, smallest, row)],
        [`lost:${b.name}`, `${b.name} right, ${a.name} wrong`, (row) => hit(b, smallest, row) && miss(a, smallest, row)],
      );
    }
    filters.push(
      ["wrong", systems.length > 2 ? "all wrong" : "both wrong", (row) => systems.every((system) => miss(system, smallest, row))],
      ["right", systems.length > 2 ? "all right" : "both right", (row) => systems.every((system) => hit(system, smallest, row))],
    );
  } else {
    const one = systems[0];
    for (const k of data.ks) filters.push([`miss:${k}`, `misses at ${k}`, (row) => miss(one, k, row)]);
    filters.push(["near", `near misses (a positive within the first ${2 * smallest})`, (row) => miss(one, smallest, row) && rank(one, row) <= 2 * smallest]);
    if (confident.get(one) !== null) {
      filters.push(["confident", "confident misses (the quarter with the nearest wrong item)", (row) => miss(one, smallest, row) && margin(one, row) !== null && margin(one, row) >= confident.get(one)]);
    }
    filters.push(
      ["tied", "decided by ties", (row) => data.ks.some((k) => one.tied[row] > 0 && one.ahead[row] < k && one.ahead[row] + one.tied[row] >= k)],
      ["hit", `hits at ${smallest}`, (row) => hit(one, smallest, row)],
      ["excluded", "excluded: no positive", (row) => value(one, smallest, row) === null],
    );
  }

  const count = (test) => {
    let found = 0;
    for (let row = 0; row < n; row++) if (test(row)) found++;
    return found;
  };
  const options = filters.map(([key, words, test]) => [key, words, count(test)]);
  const show = make(
    "select",
    { onchange: () => refresh() },
    ...options.map(([key, words, found]) => make("option", { value: key }, `${words}: ${whole(found)}`)),
  );
  const start = options.find(([key, , found]) => found && (key.startsWith("miss:") || key.startsWith("won:") || key.startsWith("lost:")));
  show.value = start ? start[0] : "all";
  const order = make(
    "select",
    { onchange: () => refresh() },
    make("option", { value: "hardest" }, "hardest first"),
    systems.some((system) => system.wrong) ? make("option", { value: "confident" }, "most confident wrong first") : "",
    make("option", { value: "random" }, "random"),
    make("option", { value: "id" }, "by id"),
  );
  const seed = make("input", { type: "number", min: "0", step: "1", value: data.seed, oninput: () => refresh() });
  const seedBox = make("label", { hidden: true }, "Seed", seed);
  // What a button led to: this very label or id, not all that contain it (and fields drop the ends of lines).
  let led = null;
  const search = () => make("input", { type: "search", oninput: () => refresh((led = null)) });
  const [label, id] = [search(), search()];
  const only = make("input", { type: "checkbox", onchange: () => refresh() });
  const list = make("div");
  const pages = pager(10, (rows) => list.replaceChildren(...rows.map(card)));
  pages.bar.setAttribute("aria-label", "Pages of queries");
  const some = chosen.size < n;
  if (!Object.keys(pictures).length && !Object.keys(data.notes || {}).length) place.className = "no-pictures";
  // Of a comparison: who is right, as buttons that lead to these queries.
  const outcomes = systems.length < 2 ? [] : options.slice(1).map(([key, words, found]) => {
    const choose = () => {
      show.value = key;
      refresh();
    };
    return make("button", { type: "button", value: key, onclick: choose }, make("strong", {}, whole(found)), make("bdi", {}, words));
  });
  if (outcomes.length) place.append(make("div", { class: "outcomes", role: "group", "aria-label": `Who is right at ${smallest}` }, ...outcomes));
  const left = data.total - n;
  place.append(
    left ? make("p", { class: "notice" }, `${whole(left)} of ${whole(data.total)} queries do not fit in this page (--max-size). What is counted and listed here are the other ${whole(n)}; the numbers and tables above and below are of all.`) : "",
    make(
      "div",
      { class: "controls", role: "search", "aria-label": "Queries" },
      make("label", {}, "Show", show),
      make("label", {}, "Order", order),
      seedBox,
      make("label", {}, "Label contains", label),
      make("label", {}, "Id contains", id),
      some && systems.some((system) => system.lists) ? make("label", { class: "tick" }, only, `Only the ${whole(chosen.size)} with neighbours`) : "",
    ),
    pages.bar,
    systems.some((system) => system.lists) ? make("p", { class: "legend" }, "Left to right, the nearest gallery items of each query, with rank, similarity and label. ✓ right: it shares a label; ✗ wrong.") : "",
    list,
  );

  function refresh() {
    const test = filters.find(([key]) => key === show.value)[2];
    for (const one of outcomes) one.setAttribute("aria-pressed", String(one.value === show.value));
    const [wantedLabel, wantedId] = led ? ["", ""] : [folded(label.value), folded(id.value)];
    seedBox.hidden = order.value !== "random";
    const found = [];
    for (let row = 0; row < n; row++) {
      if (test(row) && (!only.checked || chosen.has(row)) && (!led || led.is(row)) && (!wantedLabel || labelText[row].includes(wantedLabel)) && (!wantedId || idText[row].includes(wantedId))) found.push(row);
    }
    const keys = sortKeys();
    found.sort((a, b) => keys[b] - keys[a] || (ids[a] < ids[b] ? -1 : 1));
    const of = led ? ` ${led.words}` : "";
    pages.fill(found, [`query${of}`, `queries${of}`]);
  }

  function sortKeys() {
    const keys = new Float64Array(n);
    // Splitmix: the same seed gives the same order in every browser.
    const random = (row) => {
      let z = (row + 1 + 0x9e3779b9 * (Number(seed.value) + 1)) | 0;
      z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
      z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
      return (z ^ (z >>> 16)) >>> 0;
    };
    for (let row = 0; row < n; row++) {
      if (order.value === "hardest") keys[row] = Math.max(...systems.map((system) => (value(system, smallest, row) === null ? -1 : Math.min(rank(system, row), 1e15))));
      else if (order.value === "confident") keys[row] = Math.max(...systems.map((system) => margin(system, row) ?? -Infinity));
      else if (order.value === "random") keys[row] = random(row);
    }
    return keys;
  }

  function state(system, row) {
    const at = value(system, smallest, row);
    if (at === null) return ["excluded", "excluded: no positive in the gallery"];
    if (at === 1) return ["hit", `hit at ${smallest}`];
    return at === 0 ? ["miss", `miss at ${smallest}`] : ["miss", `ties decide at ${smallest}: counts ${at}`];
  }

  function where(system, row) {
    if (system.best[row] < 0) return "no positive";
    const first = system.ahead[row] + 1;
    const tied = system.tied[row] ? ` to ${whole(first + system.tied[row])} (tied)` : "";
    return `best positive at rank ${whole(first)}${tied} of ${whole(system.candidates[row])}`;
  }

  function neighbour(item, kind, rankText, similarity) {
    const right = kind === "hit";
    return make(
      "li",
      {},
      picture(item, kind, right ? "right:" : "wrong:"),
      make(
        "div",
        { class: "caption", title: data.items.id[item] },
        make(
          "div",
          { class: "top" },
          make("span", {}, make("span", { class: `mark ${kind}` }, right ? "✓" : "✗", make("span", { class: "said" }, right ? " right" : " wrong")), ` ${rankText}`),
          similarity === null ? "" : make("span", { class: "under", title: "similarity" }, make("span", { class: "said" }, "similarity "), similarity.toFixed(3)),
        ),
        name(labelOf(item) || data.items.id[item]),
      ),
    );
  }

  function strip(system, row) {
    const { start, item, similarity, rank: ranks, flags } = system.lists;
    const figures = [];
    let best = false;
    for (let at = start[row]; at < start[row + 1]; at++) {
      const right = (flags[at] & 1) === 1;
      best = best || right;
      figures.push(neighbour(item[at], right ? "hit" : "miss", `#${whole(ranks[at])}${flags[at] & 2 ? " tied" : ""}`, similarity[at]));
    }
    if (!figures.length) return null;
    if (!best && system.best[row] >= 0) {
      const far = neighbour(system.best[row], "hit", `#${whole(system.ahead[row] + 1)}`, system.similarity[row]);
      far.className = "far";
      far.lastChild.append(make("div", { class: "under" }, "best right"));
      figures.push(far);
    }
    return make("ol", { tabindex: "0", "aria-label": `Nearest gallery items in ${system.name}` }, ...figures);
  }

  function card(row) {
    const item = data.queries.item[row];
    const parts = [];
    for (const system of systems) {
      const [kind, words] = state(system, row);
      const mark = make("span", { class: `mark ${kind}` }, `${kind === "hit" ? "●✓" : kind === "miss" ? "■✗" : "○"} ${words}`);
      const found = system.lists ? strip(system, row) : null;
      const best = !found && system.best[row] >= 0 ? [": ", name(data.items.id[system.best[row]])] : [];
      const about = make("p", { class: "about" }, mark, `; ${where(system, row)}`, ...best, `; ${counted(system.positives[row], "positive", "positives")}`);
      if (systems.length > 1) parts.push(make("h4", {}, name(system.name)));
      parts.push(about);
      if (found) parts.push(found);
      else if (system.lists && systems.length === 1) parts.push(make("p", { class: "about" }, "Its neighbours are not in this page (--num-queries)."));
    }
    const text = labelOf(item);
    const head = make("h3", {}, name(ids[row]), text ? make("span", { class: "label" }, name(text)) : "");
    const right = make("div", {}, ...parts);
    const shown = item in pictures || (data.notes && data.notes[item]) || (data.texts && item in data.texts) || chosen.has(row);
    const body = shown ? make("div", { class: "strip" }, make("div", { class: "query-box" }, picture(item, "query-picture", "query")), right) : right;
    return make("article", { class: "query" }, head, body);
  }

  function reset() {
    show.value = "all";
    label.value = id.value = "";
    led = null;
    only.checked = false;
  }
  function reveal() {
    refresh();
    document.getElementById("queries").scrollIntoView();
    show.focus({ preventScroll: true });
  }
  // For a confusion, a query with its picture and that of the nearest wrong item, where the page has both.
  const wrongAt = (row) => {
    const { start, flags, item } = systems[0].lists;
    for (let at = start[row]; at < start[row + 1]; at++) if (!(flags[at] & 1)) return item[at];
    return -1;
  };
  const mistakes = new Map();
  if (systems[0].lists) {
    for (const row of data.chosen) {
      const wrong = wrongAt(row);
      if (!miss(systems[0], smallest, row) || !(wrong in pictures) || !(data.queries.item[row] in pictures)) continue;
      const pair = JSON.stringify([labelOf(data.queries.item[row]), labelOf(wrong)]);
      if (!mistakes.has(pair)) mistakes.set(pair, [row, wrong]);
    }
  }
  this.example = (label, retrieved, other) => {
    const [row, wrong] = mistakes.get(JSON.stringify([label, retrieved])) || [];
    const shown = row === undefined ? [] : [data.queries.item[row], wrong];
    return {
      id: row === undefined ? other : ids[row],
      pictures: shown.map((item, second) => make("img", { src: address(item), alt: "", class: second ? "miss-edge" : null })),
    };
  };
  this.showLabel = (text) => {
    reset();
    label.value = text;
    led = { words: "of exactly this label", is: (row) => labelsOf(data.queries.item[row]).includes(text) };
    reveal();
  };
  this.showId = (text) => {
    reset();
    id.value = text;
    led = { words: "of exactly this id", is: (row) => ids[row] === text };
    reveal();
  };
  refresh();
}

/* The map */

function map(place) {
  const { item, x, y, state } = data.map;
  const svg = draw("svg", { viewBox: "-1.05 -0.63 2.1 1.26", tabindex: "0", role: "img", "aria-label": "Map of the queries; the arrow keys go from point to point, the line below the map says which, and Enter opens the query" });
  const words = ["hit", "miss", "excluded"];
  const points = item.map((one, at) => {
    const [cx, cy] = [x[at], -0.6 * y[at]];
    if (state[at] === 1) {
      const d = 0.009;
      return draw("path", { class: "miss-point", d: `M${cx - d},${cy - d}l${2 * d},${2 * d}M${cx + d},${cy - d}l${-2 * d},${2 * d}`, "vector-effect": "non-scaling-stroke" });
    }
    return draw("circle", { class: state[at] ? "excluded-point" : "point", cx, cy, r: 0.009 });
  });
  const ring = draw("circle", { class: "chosen", r: 0.018, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  svg.append(...points, ring);
  const tip = make("div", { class: "tip", hidden: true });
  const said = make("p", { class: "counts", role: "status" });
  const label = make("input", { type: "search", oninput: dim });
  const order = item.map((_, at) => at).sort((a, b) => x[a] - x[b]);
  let current = -1;
  function dim() {
    const wanted = folded(label.value);
    points.forEach((point, at) => point.classList.toggle("dim", Boolean(wanted) && !folded(labelOf(item[at]) || "").includes(wanted)));
  }
  function tell(at, spoken) {
    ring.setAttribute("cx", x[at]);
    ring.setAttribute("cy", -0.6 * y[at]);
    ring.setAttribute("visibility", "visible");
    const text = [name(data.items.id[item[at]]), make("br"), name(labelOf(item[at]) || ""), `, ${words[state[at]]}`];
    tip.replaceChildren(...(item[at] in pictures ? [make("img", { src: address(item[at]), alt: "" })] : []), ...text);
    tip.hidden = false;
    const area = svg.getBoundingClientRect();
    const screen = ring.getBoundingClientRect();
    const left = screen.left - area.left + 18;
    tip.style.left = `${Math.max(0, left + 160 > area.width ? left - 196 : left)}px`;
    tip.style.top = `${Math.max(0, Math.min(screen.top - area.top, area.height - tip.offsetHeight))}px`;
    if (spoken) said.textContent = `${data.items.id[item[at]]}: ${labelOf(item[at]) || "no label"}, ${words[state[at]]}`;
  }
  function away() {
    tip.hidden = true;
    ring.setAttribute("visibility", "hidden");
  }
  svg.addEventListener("pointermove", (event) => {
    const found = near(event);
    if (found < 0) away();
    else tell(found, false);
  });
  function near(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let [found, least] = [-1, 0.05 ** 2];
    for (let one = 0; one < item.length; one++) {
      const distance = (x[one] - at.x) ** 2 + (-0.6 * y[one] - at.y) ** 2;
      if (distance < least) [found, least] = [one, distance];
    }
    return found;
  }
  const open = (at) => at >= 0 && window.explorer && window.explorer.showId(data.items.id[item[at]]);
  svg.addEventListener("click", (event) => open(near(event)));
  svg.addEventListener("pointerleave", away);
  svg.addEventListener("blur", away);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Enter") open(current);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    current = (current + step + order.length) % order.length;
    tell(order[current], true);
  });
  place.append(
    make("div", { class: "controls" }, make("label", {}, "Highlight labels that contain", label)),
    make("p", { class: "counts" }, make("span", { class: "dot" }, "●"), " hit, ", make("span", { class: "mark miss" }, "✗"), " miss, pale: excluded. Point at a mark, or use the arrow keys; a click or Enter opens the query."),
    make("div", { class: "plane" }, svg, tip),
    said,
  );
}

const explorerPlace = document.getElementById("explorer");
if (explorerPlace && data.queries) window.explorer = new Explorer(explorerPlace);
for (const place of document.querySelectorAll("[data-table]")) {
  const key = place.dataset.table;
  if (data.tables[key]) table(place, TABLES[key](), data.tables[key], key === "labels" ? "Labels" : "Confusions");
}
const mapPlace = document.getElementById("map");
if (mapPlace && data.map) map(mapPlace);
