// The panel about one object: why a pod waits and how it started, what `service` says, and the object itself.

import { age, amount, byId, clock, duration, el, keepFocus, meter, renew, size, spark } from "./dom.js";
import { coded } from "./code.js";
import { stage } from "./drops.js";
import { waterfall } from "./life.js";
import { byPolicies, linked, toRow } from "./links.js";

const REFUSED = 5; // flows of a pod that are shown
const NAMES = { networkpolicy: "network policy", clusternetworkpolicy: "cluster network policy" };

export class Detail {
  constructor(tables, close) {
    this.tables = tables;
    this.close = close;
    this.panel = byId("detail");
    this.key = "";
    this.said = null;
    this.open = new Set(); // summaries that are open stay so
    setInterval(() => this.tick(), 500);
  }

  show(key) {
    if (key === this.key) return;
    this.key = key;
    this.said = this.costs = this.refused = null;
    this.panel.hidden = !key;
    if (!key) return;
    this.back = document.activeElement;
    this.draw();
    this.panel.scrollTop = 0;
    this.panel.focus();
  }

  hide() {
    if (!this.key) return;
    this.show("");
    if (this.back?.isConnected) this.back.focus();
  }

  heard(said) {
    if (said.key !== this.key) return;
    this.said = said;
    this.draw();
  }

  measured(said) {
    if (said.key !== this.key) return;
    this.costs = said.costs;
    this.part("costs", this.costsPart());
  }

  refusals(said) {
    if (said.key !== this.key) return;
    this.refused = said.refused;
    this.drops();
  }

  drops() {
    if (!this.said?.why) return;
    this.part("head", this.head());
    this.part("refused", this.refusedPart());
  }

  isDropped() {
    return (this.refused ?? []).some((one) => stage(one.last, Date.now() / 1000) === "on");
  }

  // What policies drop of the pod's packets: it may be well, and nobody reaches it.
  refusedPart() {
    const rows = this.tables.rows;
    const now = Date.now() / 1000;
    const every = (this.refused ?? []).filter((one) => stage(one.last, now) !== "gone");
    const parts = every.slice(0, REFUSED).map((one) => {
      const ends = [one.source, one.to].map((end) => toRow(`pod/${end}`, end, rows));
      const goesOn = stage(one.last, now) === "on";
      const when = goesOn ? [", the last ", age(one.last), " ago"] : `, none since ${clock(one.last)}`;
      return el(
        "div", { class: `box ${goesOn ? "bad" : "over"}` },
        el("strong", {}, `${amount(one.count)} packet${one.count === 1 ? "" : "s"} dropped`, when, ": ", ends[0], " → ", ends[1], ` port ${one.port}`),
        el("p", {}, `by ${one.direction} rules of `, byPolicies(one, rows)),
        goesOn && one.remedy ? el("p", { class: "do" }, "It would be allowed by ", coded(one.remedy, rows, true)) : null,
      );
    });
    return every.length > REFUSED ? [...parts, el("p", { class: "space" }, `and ${every.length - REFUSED} more flows; the view Packet lists them.`)] : parts;
  }

  tick() {
    // A step under way grows, and what was dropped gets old. Nothing is asked of the server.
    if (this.refused?.length) this.drops();
    if (this.said?.life?.bars.some((one) => one.end === null)) this.part("life", lifePart(this.said));
  }

  part(name, children) {
    const found = this.panel.querySelector(`[data-part="${name}"]`);
    if (found) keepFocus(found, () => renew(found, children));
  }

  draw() {
    const [kind, namespace, name] = this.key.split("/");
    const scrolled = this.panel.scrollTop;
    const title = el("h2", { id: "detail-title" }, `${NAMES[kind] ?? kind} ${namespace ? `${namespace}/` : ""}${name}`);
    const close = el("button", { class: "close", type: "button", "data-focus": "close", onclick: this.close }, "Close (Esc)");
    const top = el("div", { class: "top" }, title, close);
    keepFocus(this.panel, () => renew(this.panel, [top, ...links(kind, namespace, name), ...this.content()]));
    this.panel.scrollTop = scrolled;
  }

  content() {
    const said = this.said;
    if (!said) return [el("p", { class: "waits" }, "asking …")];
    if (said.gone) return [el("p", { class: "box over" }, el("strong", {}, "It does not exist, or no more."))];
    return [
      said.why ? el("div", { "data-part": "head" }, this.head()) : null,
      said.why ? el("div", { "data-part": "refused" }, this.refusedPart()) : null,
      ...(said.why ? whyMore(said.why) : []),
      said.life?.bars.length ? el("h3", {}, "Its start") : null,
      said.life?.bars.length ? el("div", { "data-part": "life" }, lifePart(said)) : null,
      said.why ? el("div", { "data-part": "costs" }, this.costsPart()) : null,
      ...(said.enforced ? enforcedPart(said.enforced, this.tables.rows) : []),
      ...(said.problems ?? []).map((one) => el("div", { class: "box bad" }, el("strong", {}, coded(one.text, this.tables.rows)), one.action ? el("p", { class: "do" }, coded(one.action, this.tables.rows, true)) : null)),
      said.lines ? el("pre", { tabindex: 0 }, linked(said.lines.join("\n"), this.tables.rows)) : null,
      this.object(said.object),
    ].filter(Boolean);
  }

  head() {
    return whyHead(this.said.why, this.isDropped(), this.tables.rows);
  }

  costsPart() {
    return costsPart(this.costs ?? [], this.tables.rows);
  }

  object(text) {
    const found = el("details", { open: this.open.has("object") }, el("summary", { "data-focus": "object" }, "The object"), el("pre", { tabindex: 0 }, text));
    found.addEventListener("toggle", () => this.open[found.open ? "add" : "delete"]("object"));
    return found;
  }
}

function lifePart(said) {
  return waterfall(said.life, Date.now() / 1000).filter(Boolean);
}

function links(kind, namespace, name) {
  if (NAMES[kind]) return [];
  const place = encodeURIComponent(`${kind === "node" ? "" : `${kind}/`}${namespace}/${name}`); // a pod may be called as a Service is
  const found = kind === "pod" ? [["Trace from here", `#/packet?from=${place}`], ["Trace to here", `#/packet?to=${place}`]] : [["Trace to here", `#/packet?to=${place}`]];
  return [el("p", { class: "links" }, found.map(([text, href]) => el("a", { href }, text)))];
}

const UNITS = {
  cores: (one) => `${one.toFixed(one < 0.1 ? 3 : 2)} cores`,
  share: (one) => `${Math.round(one * 100)} % of the time`,
  bytes: size,
  seconds: duration,
};

// What it uses: the newest figures, and how they went since this view was opened.
function costsPart(costs, rows) {
  if (!costs.length) return [];
  const lines = costs.map((one) =>
    el(
      "tr", {},
      el("th", { scope: "row" }, one.of, el("small", { class: "block" }, one.text), one.action ? el("small", { class: "block waits" }, coded(one.action, rows)) : null),
      el("td", {}, one.series.map(({ name, unit, values }) => plot(name, UNITS[unit] ?? String, values))),
    ),
  );
  return [el("h3", {}, "What it uses"), el("table", { class: "costs", "aria-label": "What it uses" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Container or probe"), el("th", { scope: "col" }, "While this view is open"))), el("tbody", {}, lines))];
}

function plot(name, words, values) {
  if (!values.length) return el("div", { class: "plot" }, el("span", {}, name), el("span", { class: "space" }, "measuring …"));
  const [newest, most] = [words(values.at(-1)), words(Math.max(...values))];
  return el("div", { class: "plot" }, el("span", {}, name), el("b", {}, newest), spark(values, `${name}: now ${newest}, at most ${most}`), el("small", {}, `at most ${most}`));
}

// The rules of a policy where they are, with their counters.
function enforcedPart(enforced, rows) {
  if (enforced.problem) return [el("div", { class: "box over" }, el("strong", {}, "Where it is enforced is not known"), el("p", {}, coded(enforced.problem, rows)))];
  const odd = enforced.problems.map((one) => el("div", { class: "box bad" }, el("strong", {}, "Not understood"), el("p", {}, coded(one, rows))));
  if (!enforced.nodes.length) return [...odd, el("p", { class: "box over" }, el("strong", {}, "No node has rules of it: it selects no pod that runs."))];
  const parts = enforced.nodes.flatMap(({ node, rules }) => [
    el("h3", {}, "Enforced on ", el("a", { href: `#/node//${node}` }, node)),
    el(
      "table", { class: "rules", "aria-label": `Rules on ${node}` },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Rule"), el("th", { scope: "col", class: "took" }, "Packets"))),
      el("tbody", {}, rules.map((one) => el("tr", {}, el("th", { scope: "row", class: "mono" }, el("small", {}, one.chain), one.text, one.comment ? el("small", {}, one.comment) : null), el("td", { class: "took" }, one.packets === null ? "–" : one.packets.toLocaleString("en"))))),
    ),
  ]);
  return [...odd, ...parts];
}

// `dropped`: policies drop packets of it now, so that it is not well, whatever its node says.
function whyHead(why, dropped, rows) {
  if (why.problem) return [el("div", { class: "box bad" }, el("strong", {}, "Why it waits cannot be said"), el("p", {}, coded(why.problem, rows)))];
  const first = why.waits[0]?.text;
  // The summary is its phase and what it waits for first: that is said once, with the error and what to do.
  const at = first ? why.summary.indexOf(first) : -1;
  const well = why.is_well && !dropped;
  const words = well ? `It is well: ${why.summary}` : why.is_well ? `${why.summary}, but packets are dropped` : why.summary;
  const head = at < 0 ? [el("div", { class: `box ${well ? "good" : "waits"}` }, el("strong", {}, words))] : [];
  const waits = why.waits.map((one, number) =>
    el("div", { class: "box bad" }, el("strong", {}, (at > 0 && !number ? why.summary.slice(0, at) : "") + one.text, one.since ? [" (for ", age(one.since), ")"] : null), one.error ? el("p", {}, coded(one.error, rows)) : null, one.share === null ? null : meter(one.share, null, "good", `${Math.round(one.share * 100)} % done`), one.action ? el("p", { class: "do" }, coded(one.action, rows, true)) : null),
  );
  return [...head, ...waits];
}

function whyMore(why) {
  if (why.problem) return [];
  const logs = why.logs.flatMap(([container, lines]) => [el("h3", {}, `The last lines of container ${container}`), el("pre", { tabindex: 0 }, lines.join("\n"))]);
  return [...(why.ends.length ? [el("h3", {}, "Containers that ended"), el("ul", {}, why.ends.map((one) => el("li", {}, one)))] : []), ...logs];
}
