// The lines from Services to the pods behind them, and from policies to the pods that they isolate.

import { byId, svg } from "./dom.js";

const MOST = 400; // lines at once; with more only those of the Service in question are drawn

export class Wires {
  constructor(tables) {
    this.tables = tables;
    this.hot = "";
    this.asked = false;
    new ResizeObserver(() => this.draw()).observe(byId("nodes"));
    for (const event of ["pointerover", "focusin"]) byId("cluster-view").addEventListener(event, (one) => this.heat(one.target.closest("tr")?.dataset.key ?? ""));
  }

  heat(key) {
    if (key === this.hot) return;
    this.hot = key;
    this.draw();
  }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.now();
    });
  }

  now() {
    const board = byId("wires");
    const ends = this.ends();
    // A policy of the cluster may have a line to every pod: those of Services are worth more.
    const fewer = ends.length <= MOST ? ends : ends.filter((one) => one.hot || !one.from.dataset.key.startsWith("cluster"));
    const few = fewer.length <= MOST ? fewer : ends.filter((one) => one.hot);
    const origin = board.getBoundingClientRect();
    for (const one of document.querySelectorAll("tr.linked")) one.classList.remove("linked");
    board.replaceChildren(...(origin.width ? few.map((one) => wire(one, origin)) : []));
    for (const one of few) if (one.hot) for (const row of [one.from, one.to]) row.classList.add("linked");
  }

  ends() {
    const found = [];
    const crowded = this.tables.shown.size > MOST; // then not even made, but for the one in question
    for (const [key, from] of this.tables.shown) {
      const row = this.tables.rows.get(key);
      if (row.kind === "pod" && !from.hidden)
        for (const one of row.policies) {
          if (crowded && one.tier && this.hot !== key && this.hot !== one.policy) continue;
          const policy = this.tables.shown.get(one.policy);
          if (policy && !policy.hidden) found.push({ from: policy, to: from, kind: "policy", hot: this.hot === key || this.hot === one.policy });
        }
      if (row.kind !== "service" || from.hidden) continue;
      for (const one of row.endpoints) {
        const to = this.tables.shown.get(one.pod);
        if (to && !to.hidden) found.push({ from, to, kind: one.ready ? "" : "unready", hot: this.hot === key || this.hot === one.pod });
      }
    }
    return found;
  }
}

function wire({ from, to, kind, hot }, origin) {
  const [left, right] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
  const [x1, y1] = [left.right - origin.left, left.top + left.height / 2 - origin.top];
  const [x2, y2] = [right.left - origin.left, right.top + right.height / 2 - origin.top];
  const bend = (x2 - x1) / 2;
  return svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, class: [kind, hot ? "hot" : ""].join(" ") });
}
