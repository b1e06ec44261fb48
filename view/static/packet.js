// A packet's way: from where, to where, and the walk through the rules and routes of each node.

import { byId, el } from "./dom.js";

export class Packet {
  constructor(tables) {
    this.tables = tables;
    this.asked = 0;
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      const wanted = new URLSearchParams({ from: byId("from").value.trim(), to: byId("to").value.trim() });
      if (byId("protocol").value) wanted.set("protocol", byId("protocol").value);
      const hash = `#/packet?${wanted}`;
      if (hash === location.hash) this.show(wanted);
      else location.hash = hash;
    });
  }

  show(wanted) {
    this.choices();
    for (const name of ["from", "to", "protocol"]) if (wanted.has(name)) byId(name).value = wanted.get(name);
    if (wanted.get("from") && wanted.get("to")) this.ask(wanted);
    else byId(wanted.get("from") ? "to" : "from").focus();
  }

  choices() {
    const rows = [...this.tables.rows.values()];
    const option = (value) => el("option", { value });
    const pods = rows.filter((one) => one.kind === "pod").map((one) => `${one.namespace}/${one.name}`);
    const nodes = rows.filter((one) => one.kind === "node").map((one) => one.name);
    const services = rows.filter((one) => one.kind === "service").map((one) => `${one.namespace}/${one.name}`);
    byId("senders").replaceChildren(...["outside", ...nodes, ...pods].map(option));
    byId("targets").replaceChildren(...[...services, ...pods].map(option));
  }

  async ask(wanted) {
    const number = ++this.asked;
    byId("walk").replaceChildren(el("p", { class: "waits" }, "reading the rules and routes of the nodes …"));
    let found;
    try {
      const address = new URL("trace", location.href);
      address.hash = "";
      address.search = wanted;
      found = await (await fetch(address)).json();
    } catch {
      found = { problem: "The page has no connection to `nodewright view`. Is it still running?" };
    }
    if (number === this.asked) byId("walk").replaceChildren(...(found.problem ? [el("div", { class: "box bad" }, el("strong", {}, "No answer"), el("p", {}, found.problem))] : drawn(found)));
  }
}

function drawn(found) {
  const [verdict, ...why] = found.verdict;
  const arrives = found.ways.some((one) => one.arrives);
  return [
    el("p", { class: `verdict ${arrives ? "good" : "bad"}` }, verdict),
    ...why.map((one) => el("p", {}, one.trim())),
    el("p", { class: "mono" }, `${found.come} → ${found.to}`),
    ...found.notes.map((one) => el("p", { class: "space" }, one)),
    ...found.ways.flatMap((way, at) => wayParts(way, at, found.ways.length)),
  ];
}

function wayParts(way, at, count) {
  const legs = way.legs.map(legPart);
  if (count === 1) return legs;
  return [el("details", { open: at === 0 }, el("summary", {}, `possible way ${at + 1} of ${count}: ${way.end}`), legs)];
}

function legPart(leg) {
  const shown = leg.hops.filter((one) => one.decides || one.meaning);
  const steps = [
    el("li", {}, leg.interface ? `comes in by ${leg.interface}` : "is sent by the node itself, or by a pod on it", el("small", {}, `${leg.source} → ${leg.destination}`)),
    ...shown.map((one) => el("li", { class: one.decides ? undefined : "quiet" }, (one.certain ? "" : "perhaps: ") + (one.meaning || "a rule that is not ours matches"), el("small", {}, ruleText(one)))),
    leg.route ? el("li", {}, `route: ${leg.route}`) : null,
    el("li", {}, leg.end),
  ];
  const all = el("details", {}, el("summary", {}, `all ${leg.hops.length + leg.left_out} rules that match`), el("pre", { tabindex: 0 }, leg.hops.map(ruleText).join("\n") || "none"));
  return el("section", { class: "card leg" }, el("h2", {}, `on node ${leg.node}`), el("ol", { class: "walk" }, steps), el("div", { class: "none" }, all));
}

function ruleText(one) {
  return `${one.table} ${one.chain}: ${one.rule}${one.packets === null ? "" : ` [${one.packets} packets]`}`;
}
