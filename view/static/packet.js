// A packet's way: the walk through the rules and routes of each node, with counters that move, and what policies drop.

import { byId, clock, el, keepFocus, spark } from "./dom.js";
import { coded } from "./code.js";
import { counted } from "./counters.js";
import { byPolicies, linked, toRow } from "./links.js";
import { light } from "./lit.js";

export class Packet {
  constructor(tables, look) {
    this.tables = tables;
    this.look = look; // what the server is to follow
    this.asked = 0;
    this.wanted = ""; // whose readings are shown
    this.last = ""; // what was asked last, as in the address
    this.stands = false; // its answer is still there
    this.counters = new Map(); // by rule
    this.open = new Set();
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      const wanted = new URLSearchParams({ from: byId("from").value.trim(), to: byId("to").value.trim() });
      if (byId("protocol").value) wanted.set("protocol", byId("protocol").value);
      const hash = `#/packet?${wanted}`;
      this.stands = false;
      if (hash === location.hash) this.show(wanted);
      else location.hash = hash;
    });
    for (const one of [byId("from"), byId("to")]) writeOver(one);
  }

  show(wanted) {
    this.choices();
    if (this.last && !wanted.size) return location.replace(`#/packet?${this.last}`); // back to the last answer
    for (const name of ["from", "to", "protocol"]) if (wanted.has(name)) byId(name).value = wanted.get(name);
    if (this.stands && String(wanted) === this.last) this.look(Object.fromEntries(wanted));
    else if (wanted.get("from") && wanted.get("to")) this.ask(wanted);
    else {
      this.asked++;
      this.wanted = this.last = "";
      this.say([], "");
      this.look({});
      byId(wanted.get("from") ? "to" : "from").focus();
    }
  }

  choices() {
    const rows = [...this.tables.rows.values()];
    const option = (value) => el("option", { value });
    const isService = (row) => this.tables.rows.has(`service/${row.namespace}/${row.name}`);
    const pods = rows.filter((one) => one.kind === "pod").map((one) => `${one.namespace}/${one.name}`);
    const nodes = rows.filter((one) => one.kind === "node").map((one) => one.name);
    const services = rows.filter((one) => one.kind === "service").map((one) => `${one.namespace}/${one.name}`);
    byId("senders").replaceChildren(...["outside", ...nodes, ...pods].map(option));
    const targets = rows.filter((one) => one.kind === "pod").map((one) => `${isService(one) ? "pod/" : ""}${one.namespace}/${one.name}`);
    byId("targets").replaceChildren(...[...services, ...targets].map(option));
  }

  async ask(wanted) {
    const number = ++this.asked;
    this.wanted = "";
    this.last = String(wanted);
    this.stands = false;
    this.counters.clear();
    this.look({});
    this.say([el("p", { class: "waits" }, "reading the rules and routes of the nodes …")], "");
    let found;
    try {
      const address = new URL("trace", location.href);
      address.hash = "";
      address.search = wanted;
      found = await (await fetch(address)).json();
    } catch {
      found = { problem: "The page has no connection to `nodewright view`. Is it still running?" };
    }
    if (number !== this.asked) return;
    this.draw(found);
    if (found.problem) return;
    this.stands = true;
    this.wanted = named(wanted.get("from"), wanted.get("to"), wanted.get("protocol") ?? "");
    if (!byId("packet-view").hidden) this.look(Object.fromEntries(wanted));
  }

  // The same walk, read again.
  walked(said) {
    if (named(said.asked.from, said.asked.to, said.asked.protocol) === this.wanted) this.draw(said.found);
  }

  draw(found) {
    if (found.problem) {
      this.say([el("div", { class: "box bad" }, el("strong", {}, "No answer"), el("p", {}, coded(found.problem, this.tables.rows)))], "");
      return;
    }
    this.count(found);
    const [verdict, ...why] = found.verdict;
    const failing = decidingAgainst(found.ways);
    const arrives = found.ways.some((one) => one.arrives);
    this.say(
      [
        ...failing.map(({ hop, leg }) => this.decided(hop, leg)),
        ...why.map((one) => one.trim()).filter((one) => !failing.some(({ hop }) => hop.meaning === one)).map((one) => el("p", one.startsWith("do: ") ? { class: "do" } : {}, coded(one.replace(/^do: /, ""), this.tables.rows, one.startsWith("do: ")))),
        el("p", { class: "mono" }, `${found.source} → ${found.to}`),
        ...found.notes.map((one) => el("p", { class: "space" }, coded(one, this.tables.rows))),
        el("p", { class: "space" }, "Counters are read again every few seconds. Each counts all packets that its rule has met, those of others too."),
        ...found.ways.flatMap((way, at) => this.way(way, at, found.ways.length)),
      ],
      verdict,
      arrives,
    );
  }

  // The rule that ends the packet's way, before all those that it has passed.
  decided(hop, leg) {
    return el("div", { class: "box bad" }, el("strong", {}, linked(hop.meaning || "a rule that is not ours", this.tables.rows), " – on node ", toRow(`node//${leg.node}`, leg.node, this.tables.rows)), el("p", { class: "mono" }, ruleText(hop)));
  }

  say(parts, verdict, arrives) {
    const head = byId("verdict");
    head.className = `verdict ${arrives ? "good" : "bad"}`;
    if (head.textContent !== verdict) head.textContent = verdict; // read aloud when it changes
    keepFocus(byId("walk"), () => byId("walk").replaceChildren(...parts));
  }

  count(found) {
    const now = performance.now() / 1000;
    const seen = new Set();
    for (const way of found.ways)
      for (const leg of way.legs)
        for (const hop of leg.hops) {
          hop.id = `${leg.node} ${hop.table} ${hop.chain} ${hop.rule}`;
          if (hop.packets === null || seen.has(hop.id)) continue;
          seen.add(hop.id);
          this.counters.set(hop.id, counted(this.counters.get(hop.id), now, hop.packets));
        }
    for (const id of [...this.counters.keys()]) if (!seen.has(id)) this.counters.delete(id);
  }

  way(way, at, count) {
    const legs = way.legs.map((leg) => this.leg(leg, at));
    if (count === 1) return legs;
    return [this.fold(`way ${at}`, `possible way ${at + 1} of ${count}: ${way.end}`, legs, at === 0)];
  }

  // What was opened or closed stays so when it is drawn anew.
  fold(id, title, content, open = false) {
    const found = el("details", { open: this.open.has(id) !== open }, el("summary", { "data-focus": id }, title), content);
    found.addEventListener("toggle", () => this.open[found.open !== open ? "add" : "delete"](id));
    return found;
  }

  leg(leg, at) {
    const shown = leg.hops.filter((one) => one.decides || one.meaning);
    const against = decidingHop(leg);
    const steps = [
      el("li", {}, leg.interface ? `comes in by ${leg.interface}` : "is sent by the node itself, or by a pod on it", el("small", {}, linked(`${leg.source} → ${leg.destination}`, this.tables.rows))),
      ...shown.map((one) => el("li", { class: one === against ? "against" : one.decides ? undefined : "quiet" }, one.certain ? "" : "perhaps: ", linked(one.meaning || "a rule that is not ours matches", this.tables.rows), this.policies(one), this.moving(one), el("small", {}, ruleText(one)))),
      leg.route ? el("li", {}, "route: ", linked(leg.route, this.tables.rows)) : null,
      el("li", { class: against ? "against" : undefined }, linked(leg.end, this.tables.rows)),
    ];
    const all = this.fold(`rules ${leg.node} ${at}`, `all ${leg.hops.length + leg.left_out} rules that match`, el("pre", { tabindex: 0 }, leg.hops.map(ruleText).join("\n") || "none"));
    return el("section", { class: "card leg" }, el("h2", {}, `on node ${leg.node}`), el("ol", { class: "walk" }, steps), el("div", { class: "none" }, all));
  }

  // Links to those that its meaning does not name in full, and that are still there.
  policies(hop) {
    const named = (one) => one.split("/").slice(1).filter(Boolean).join("/");
    const there = hop.policies.filter((one) => this.tables.rows.has(one) && !hop.meaning.includes(named(one)));
    return there.map((one) => [" ", el("a", { href: `#/${one}`, class: "name" }, `see ${named(one)}`)]);
  }

  moving(hop) {
    const { more, rates } = this.counters.get(hop.id) ?? { rates: [] };
    if (!rates.length) return null;
    if (!more) return el("span", { class: "live over" }, "no packet since");
    const rate = rates.at(-1);
    return el("span", { class: `live ${rate ? "good" : "over"}` }, `+${more.toLocaleString("en")}`, el("span", { class: "rate" }, `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s`), spark(rates, `${more} packets since this view was opened, ${rate.toFixed(1)} a second now`));
  }

  refused(said) {
    const problems = Object.entries(said.problems).map(([node, text]) => el("p", { class: "none" }, coded(node ? `${node}: ${text}` : text, this.tables.rows)));
    const none = said.refused.length || said.problems[""] ? null : el("p", { class: "none" }, "No packet was dropped since the policy daemons started.");
    keepFocus(byId("refused"), () => byId("refused").replaceChildren(el("h2", {}, "Dropped packets", el("small", {}, "by network policies, as it happens")), ...problems, said.refused.length ? this.table(said.refused) : none ?? ""));
  }

  table(every) {
    const heads = [["When", "when"], ["From, to", ""], ["Dropped by, and what would have allowed it", "remedy"], ["Packets", "count"]];
    const before = this.latest ?? Infinity;
    this.latest = Math.max(...every.map((one) => one.last));
    const rows = every.map((one) => {
      const [source, target] = [one.source, one.to].map((end) => (end.includes("/") ? `pod/${end}` : end)); // not the Service of that name
      const to = /^\d/.test(one.port) ? `${target.includes(":") ? `[${target}]` : target}:${one.port.split("/")[0]}` : target;
      const protocol = one.port.split("/")[1]?.toLowerCase();
      const way = new URLSearchParams({ from: source, to, ...(["tcp", "udp"].includes(protocol) ? { protocol } : {}) });
      const row = el(
        "tr", {},
        el("th", { scope: "row" }, one.last ? clock(one.last) : "–", el("small", {}, one.node)),
        el("td", {}, toRow(`pod/${one.source}`, one.source, this.tables.rows), el("span", { class: "space" }, " → "), toRow(`pod/${one.to}`, one.to, this.tables.rows), el("small", {}, one.port, " · ", el("a", { class: "name way", href: `#/packet?${way}`, "data-focus": `${one.node} ${one.direction} ${way}` }, "trace it"))),
        el("td", {}, byPolicies(one, this.tables.rows), el("small", {}, one.direction), one.remedy ? el("small", {}, "would have allowed it: ", coded(one.remedy, this.tables.rows)) : null),
        el("td", {}, one.count.toLocaleString("en")),
      );
      if (one.last > before) light(row);
      return row;
    });
    return el("table", { "aria-label": "Dropped packets" }, el("thead", {}, el("tr", {}, heads.map(([name, width]) => el("th", { scope: "col", class: width || undefined }, name)))), el("tbody", {}, rows));
  }
}

// What stands in a field that one comes to is selected: what is typed takes its place.
function writeOver(field) {
  let fresh = false; // a click comes after the focus, and undoes the selection
  field.addEventListener("focus", () => {
    fresh = true;
    field.select();
  });
  field.addEventListener("keydown", () => (fresh = false));
  field.addEventListener("click", () => {
    if (fresh && field.selectionStart === field.selectionEnd) field.select();
    fresh = false;
  });
}

function named(from, to, protocol) {
  return JSON.stringify([from, to, protocol]);
}

// The rule by which a node ends the packet's way; none where no rule does.
function decidingHop(leg) {
  const last = leg.hops.at(-1);
  return leg.refused && !leg.left_out && last?.decides ? last : null;
}

function decidingAgainst(ways) {
  const found = new Map();
  for (const way of ways.filter((one) => !one.arrives && one.legs.length)) {
    const leg = way.legs.at(-1);
    const hop = decidingHop(leg);
    if (hop) found.set(hop.id, { hop, leg });
  }
  return [...found.values()];
}

function ruleText(one) {
  return `${one.table} ${one.chain}: ${one.rule}${one.packets === null ? "" : ` [${one.packets} packets]`}`;
}
