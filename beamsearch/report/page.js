"use strict";
const packed = JSON.parse(document.getElementById("texts").textContent);

async function unpacked(name) {
  const bytes = Uint8Array.from(atob(packed[name]), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// Cards: what opens where a candidate is chosen. Their HTML was escaped when the page was made.
const dialog = document.getElementById("card");

async function open(name) {
  const body = document.getElementById("card-body");
  body.innerHTML = await unpacked("card " + name);
  for (const part of body.querySelectorAll("details[data-text]"))
    part.addEventListener("toggle", () => fill(part), { once: true });
  dialog.setAttribute("aria-label", name);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

async function fill(part) {
  const name = part.dataset.text;
  const text = await unpacked(name);
  if (!name.startsWith("text ")) {
    part.insertAdjacentHTML("beforeend", text);
    return;
  }
  const pre = document.createElement("pre");
  pre.className = "prose";
  pre.tabIndex = 0;
  pre.textContent = text;
  part.append(pre);
}

function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  if ("card " + name in packed) open(name);
  else if (dialog?.open) dialog.close();
}
addEventListener("hashchange", follow);

// By a link of the page, a card opens without the page moving to the candidate's place in the tree.
function show(name) {
  history.pushState(null, "", "#" + name);
  follow();
}
document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const place = link?.getAttribute("href") ?? link?.getAttribute("xlink:href") ?? "";
  if (!("card " + place.slice(1) in packed)) return;
  event.preventDefault();
  show(place.slice(1));
});
dialog?.addEventListener("close", () => {
  if ("card " + decodeURIComponent(location.hash.slice(1)) in packed)
    history.replaceState(null, "", location.pathname + location.search);
});
dialog?.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

// The tree, by the keys of the ARIA pattern.
const tree = document.querySelector("[role=tree]");

function shown() {
  const items = [...tree.querySelectorAll("[role=treeitem]")];
  return items.filter((item) => !item.parentElement.closest("[aria-expanded=false]"));
}

function focus(item) {
  tree.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
  item.tabIndex = 0;
  item.focus();
}

function choose(item) {
  tree.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  item.setAttribute("aria-selected", "true");
  focus(item);
  show(item.dataset.card);
}

function turn(item, open) {
  if (item.hasAttribute("aria-expanded")) item.setAttribute("aria-expanded", String(open));
}

function press(event) {
  const item = event.target.closest("[role=treeitem]");
  const items = shown();
  const place = items.indexOf(item);
  const opened = item.getAttribute("aria-expanded");
  const keys = {
    ArrowDown: () => items[place + 1] && focus(items[place + 1]),
    ArrowUp: () => items[place - 1] && focus(items[place - 1]),
    Home: () => focus(items[0]),
    End: () => focus(items.at(-1)),
    ArrowRight: () => (opened === "false" ? turn(item, true) : opened && focus(items[place + 1])),
    ArrowLeft: () => {
      const above = item.parentElement.closest("[role=treeitem]");
      if (opened === "true") turn(item, false);
      else if (above) focus(above);
    },
    Enter: () => choose(item),
    " ": () => choose(item),
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
}

if (tree) {
  tree.querySelector("[role=treeitem]").tabIndex = 0;
  tree.addEventListener("keydown", press);
  tree.addEventListener("click", (event) => {
    const item = event.target.closest("[role=treeitem]");
    const node = event.target.closest(".node");
    const arrow = node && event.clientX < node.getBoundingClientRect().left + 22;
    if (arrow && item.hasAttribute("aria-expanded"))
      turn(item, item.getAttribute("aria-expanded") === "false");
    else if (node) choose(item);
  });
}

// Tables: a column's head sorts by it; numbers as numbers, what has none at the end.
function value(row, column) {
  const cell = row.cells[column];
  const text = (cell.dataset.sort ?? cell.textContent).trim().replace(/(\d),(?=\d{3})/g, "$1");
  const number = text.match(/^[~$]?-?[\d.]+(e[+-]?\d+)?/);
  return text === "" ? null : number ? Number(number[0].replace(/[~$]/, "")) : text;
}

function order(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function sort(table, head) {
  const column = head.cellIndex;
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
  rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * order(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
}

for (const table of document.querySelectorAll("table.sortable"))
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(table, head));
  }

addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("main details")) part.open = true;
});
follow();
