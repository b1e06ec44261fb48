// What is not well, at a glance: a list above the tables. It is made of their rows, and nothing is asked for it.

import { byId, el } from "./dom.js";

const MOST = 12;
const PATIENCE = 10; // seconds that a pod may take to start before it is listed
const KINDS = ["node", "pod", "service"];

export class Troubles {
  // `onMoved`: what stands below has moved.
  constructor(tables, onMoved) {
    this.tables = tables;
    this.onMoved = onMoved;
    this.shown = "";
    setInterval(() => this.draw(), 1000);
  }

  draw() {
    const now = Date.now() / 1000;
    const every = [...this.tables.rows.values()].filter((row) => isTrouble(row, now)).sort((one, other) => (place(one) < place(other) ? -1 : 1));
    const items = every.slice(0, MOST).map((row) => ({ key: row.key, tone: row.tone, name: `${row.kind} ${row.namespace ? `${row.namespace}/` : ""}${row.name}`, state: state(row) }));
    const shown = JSON.stringify([items, every.length]);
    if (shown === this.shown) return;
    this.shown = shown;
    const focused = document.activeElement?.closest("#troubles a")?.getAttribute("href");
    const more = every.length - items.length;
    byId("troubles").hidden = !items.length;
    byId("troubles").replaceChildren(
      el("h2", {}, "Not well", el("small", {}, every.length)),
      el("ul", {}, items.map((one) => el("li", {}, el("a", { href: `#/${one.key}` }, one.name), el("span", { class: one.tone }, `: ${one.state}`)))),
      more ? el("p", { class: "none" }, `and ${more} more`) : "",
    );
    this.onMoved();
    if (focused) [...byId("troubles").querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus({ preventScroll: true });
  }
}

// A pod that starts or ends is none, unless that takes long.
function isTrouble(row, now) {
  if (row.kind === "node") return row.tone !== "good";
  if (row.kind === "service") return row.tone === "bad";
  if (row.kind !== "pod" || row.state === "Terminating") return false;
  return row.tone === "bad" || (row.tone === "waits" && now - row.made > PATIENCE);
}

function state(row) {
  return row.kind === "pod" && row.ready < row.containers ? `${row.state} ${row.ready}/${row.containers}` : row.state;
}

function place(row) {
  return `${KINDS.indexOf(row.kind)} ${row.tone === "bad" ? 0 : 1} ${row.key}`;
}
