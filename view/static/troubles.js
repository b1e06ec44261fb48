// What is not well, at a glance: a list above the tables. It is made of their rows, and of the packets that are
// dropped as nodes tell; nothing is asked for it.

import { byId, el } from "./dom.js";
import { byPolicies } from "./links.js";

const MOST = 12;
const PATIENCE = 10; // seconds that a pod may take to start before it is listed
const DROPPED = 60; // seconds for which a pod is listed whose packet was dropped
const KINDS = ["node", "pod", "service"];

export class Troubles {
  // `onMoved`: what stands below has moved.
  constructor(tables, onMoved) {
    this.tables = tables;
    this.onMoved = onMoved;
    this.shown = "";
    this.drops = new Map(); // by pod, the newest
    setInterval(() => this.draw(), 1000);
  }

  dropped(every) {
    this.drops = new Map(every.map((one) => [one.pod, one]));
    this.draw();
  }

  draw() {
    if (!document.documentElement.dataset.synced) return;
    const now = Date.now() / 1000;
    const drop = (row) => (now - (this.drops.get(row.key)?.last ?? 0) < DROPPED ? this.drops.get(row.key) : null);
    const every = [...this.tables.rows.values()].filter((row) => isTrouble(row, now) || drop(row)).sort((one, other) => (place(one) < place(other) ? -1 : 1));
    const items = every.slice(0, MOST).map((row) => ({ key: row.key, tone: row.tone, name: `${row.kind} ${row.namespace ? `${row.namespace}/` : ""}${row.name}`, state: isTrouble(row, now) ? state(row) : "", drop: of(drop(row)) }));
    const shown = JSON.stringify([items, every.length]);
    if (shown === this.shown) return;
    this.shown = shown;
    const focused = document.activeElement?.closest("#troubles a")?.getAttribute("href");
    const more = every.length - items.length;
    byId("troubles").hidden = !items.length;
    byId("troubles").replaceChildren(
      el("h2", {}, "Not well", el("small", {}, every.length)),
      el("ul", {}, items.map((one) => el("li", {}, el("a", { href: `#/${one.key}` }, one.name), ": ", one.state ? el("span", { class: one.tone }, one.state) : null, one.drop ? [one.state ? ", " : "", el("span", { class: "bad" }, `packets to ${one.drop.to} dropped by `, byPolicies(one.drop, this.tables.rows))] : null))),
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

// What is shown of a drop: its time is not.
function of(drop) {
  return drop && { to: drop.to, by: drop.by, policies: drop.policies };
}

function state(row) {
  return row.kind === "pod" && row.ready < row.containers ? `${row.state} ${row.ready}/${row.containers}` : row.state;
}

function place(row) {
  return `${KINDS.indexOf(row.kind)} ${row.tone === "bad" ? 0 : 1} ${row.key}`;
}
