// A pod's start as a waterfall: a table with a bar in each row, so that it reads as a table too.

import { clock, duration, el, svg } from "./dom.js";

export function waterfall(life, now) {
  const begin = life.exact ? Math.min(...life.bars.map((one) => one.begin)) : life.begin;
  const ready = life.marks.find((one) => one.name === "Ready")?.at ?? 0;
  const lasts = life.bars.filter((one) => one.end !== null).map((one) => one.end);
  const open = life.bars.some((one) => one.end === null) && !ready;
  const marks = life.exact ? [] : life.marks.map((one) => one.at);
  const end = Math.max(begin + 0.001, ...lasts, ...marks, ...(open ? [now] : []));
  const share = (at) => `${Math.max(0, Math.min(100, ((at - begin) / (end - begin)) * 100)).toFixed(2)}%`;
  const rows = life.bars.map((one) => barRow(one, begin, end, share, now, one.name === life.slowest[0]));
  const long = life.slowest.map((name) => life.bars.find((one) => one.name === name)).map((one) => `${one.name}, ${duration(one.end - one.begin)}`);
  return [
    long.length ? el("p", { class: "slowest" }, el("b", {}, "Took longest: "), long.join("; "), ".") : null,
    el(
      "table", { class: "life", "aria-label": "The start of the pod, step by step" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Step"), el("th", { scope: "col", class: "scale" }, el("span", {}, el("b", {}, "0"), el("b", {}, duration(end - begin)))), el("th", { scope: "col", class: "took" }, "Took"))),
      el("tbody", {}, rows),
    ),
    life.left_out ? el("p", { class: "space" }, `${life.left_out} later steps are not shown.`) : null,
    el("h3", {}, "Milestones"),
    el(
      "table", { class: "marks", "aria-label": "Milestones" },
      el("tbody", {}, life.marks.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), el("td", { class: one.at ? "good" : "waits" }, one.at ? `${clock(one.at)}, ${one.at - life.begin < 1 ? "within 1 s" : `after ${duration(one.at - life.begin)}`}` : `not yet${one.note ? `: ${one.note}` : ""}`)))),
    ),
    el("p", { class: "space" }, life.source, life.bars.some((one) => one.average) ? " Below each duration: the average of its kind of step on this node." : null),
  ];
}

function barRow(one, begin, end, share, now, slowest) {
  const until = one.end ?? Math.min(now, Math.max(end, one.begin));
  const from = parseFloat(share(one.begin));
  const wide = Math.max(0.6, parseFloat(share(until)) - from);
  const took = one.end === null ? `${duration(Math.max(0, now - one.begin))} …` : duration(one.end - one.begin);
  const bar = svg("svg", { role: "img", "aria-label": `begins after ${duration(Math.max(0, one.begin - begin))}` }, svg("rect", { x: `${Math.min(from, 99.4)}%`, y: 2, width: `${wide}%`, height: 10, rx: 2, class: one.tone }));
  return el("tr", { class: one.part ? "part" : slowest ? "longest" : undefined }, el("th", { scope: "row" }, one.name, one.note ? el("small", { class: one.tone === "bad" ? "bad" : undefined }, ` ${one.note}`) : null), el("td", {}, bar), el("td", { class: "took" }, took, one.average ? el("small", { title: "on average on this node" }, `avg ${duration(one.average)}`) : null));
}
