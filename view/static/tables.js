// The cluster as it is wired: a table of Services, and one of pods for each node.

import { byId, el } from "./dom.js";
import { coded } from "./code.js";
import { light } from "./lit.js";

const NOWHERE = "";
const MOST_POLICIES = 4; // that are named in the row of one pod
export const POLICIES = ["networkpolicy", "clusternetworkpolicy"];

export class Tables {
  constructor(onDrawn) {
    this.rows = new Map(); // by key, as the server sent them
    this.shown = new Map(); // by key, the elements
    this.cards = new Map(); // by node, its card; pods without a node are under ""
    this.onDrawn = onDrawn;
    this.words = [];
    this.quiet = true; // the first rows are nothing new
    this.services = table("Services", [["Service", ""], ["Address", "svc-address"], ["Endpoints", "svc-state"]]);
    this.servicesHead = el("h2", {}, "Services");
    this.policies = table("Network policies", [["Policy, as they decide", ""], ["Selects", "svc-state"]]);
    this.policiesHead = el("h2", {}, "Network policies");
    this.notes = el("div", {});
    this.policiesCard = el("section", { class: "card", hidden: true }, this.policiesHead, this.policies, this.notes);
    byId("services").append(el("section", { class: "card" }, this.servicesHead, this.services), this.policiesCard);
    this.wiring = {}; // by node, as its kernel says
  }

  anew() {
    for (const key of [...this.rows.keys()]) this.drop(key);
    this.quiet = true;
  }

  update(rows, gone) {
    for (const key of gone) this.drop(key);
    const touched = new Map(); // by body of a table, its rows that have no place yet
    let wired = gone.length > 0; // whether a line may lead elsewhere
    for (const row of rows) {
      this.rows.set(row.key, row);
      const placed = this.put(row);
      if (placed && !touched.has(placed.body)) touched.set(placed.body, []);
      if (placed) touched.get(placed.body).push(placed.element);
      wired ||= placed !== null || row.kind === "service";
    }
    for (const [body, fresh] of touched) insert(body, fresh);
    if (touched.size || gone.length) this.count();
    this.isolates(rows, gone);
    if (wired) this.onDrawn();
  }

  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [key, element] of this.shown) element.hidden = !this.fits(this.rows.get(key));
    this.count();
    this.onDrawn();
  }

  fits(row) {
    if (!row || row.kind === "node") return true;
    const text = [row.namespace, row.name, row.state, row.node ?? "", ...row.addresses, ...row.labels].join(" ").toLowerCase();
    return this.words.every((word) => text.includes(word));
  }

  // What cannot be shown, and why.
  said(notes) {
    this.notes.replaceChildren(...notes.map((one) => el("p", { class: "none" }, coded(one, this.rows))));
    this.showPolicies();
  }

  put(row) {
    if (row.kind === "node") {
      head(this.card(row.name), row);
      this.wire(row.name);
      return null;
    }
    const old = this.shown.get(row.key);
    const element = row.kind === "pod" ? podRow(row, this.veth(row)) : row.kind === "service" ? serviceRow(row) : policyRow(row, 0);
    const body = row.kind === "pod" ? this.card(row.node || NOWHERE).body : (row.kind === "service" ? this.services : this.policies).tBodies[0];
    element.hidden = !this.fits(row);
    element.dataset.key = row.key;
    element.dataset.order = order(row);
    if (old?.parentElement === body && old.dataset.order === element.dataset.order) {
      // The row stays, and so does the focus; only cells that differ are replaced.
      replaceCells(old, element);
      if (!this.quiet) light(old);
      old.hidden = element.hidden;
      return null;
    }
    old?.remove();
    this.shown.set(row.key, element);
    if (!this.quiet) light(element);
    return { body, element };
  }

  drop(key) {
    const row = this.rows.get(key);
    this.rows.delete(key);
    this.shown.get(key)?.remove();
    this.shown.delete(key);
    if (row?.kind === "node") {
      this.cards.get(row.name)?.section.remove();
      this.cards.delete(row.name);
    }
  }

  card(node) {
    let found = this.cards.get(node);
    if (!found) {
      const pods = table(node ? `Pods on ${node}` : "Pods without a node", [["Pod", ""], ["Address", "pod-address"], ["State", "pod-state"], ["Restarts", "pod-again"]]);
      const none = el("p", { class: "none" }, "no pods");
      const title = el("h2", {}, node ? `node ${node}` : "Not on a node yet");
      const wiring = el("div", { class: "wiring", hidden: true });
      const section = el("section", { class: "card" }, title, wiring, pods, none);
      section.dataset.node = node || "\uffff";
      found = { section, title, wiring, pods, none, body: pods.tBodies[0] };
      this.cards.set(node, found);
      const parent = byId("nodes");
      const next = [...parent.children].find((one) => one.dataset.node > section.dataset.node);
      parent.insertBefore(section, next ?? null);
    }
    return found;
  }

  // What the kernels of the nodes say, by node.
  wired(nodes) {
    this.wiring = nodes;
    for (const [key, element] of this.shown) {
      const row = this.rows.get(key);
      if (row.kind === "pod") replaceCells(element, podRow(row, this.veth(row)));
    }
    for (const node of this.cards.keys()) if (node !== NOWHERE) this.wire(node);
    this.onDrawn();
  }

  veth(row) {
    return this.wiring[row.node]?.links?.find((one) => one.behind === row.key)?.name ?? "";
  }

  wire(node) {
    const known = this.wiring[node];
    const parts = known && !known.problem ? wiringParts(known, node) : [];
    const { wiring } = this.card(node);
    wiring.hidden = !parts.length;
    wiring.replaceChildren(...parts);
  }

  // How many pods each policy selects is known of the pods' rows.
  isolates(rows, gone) {
    if (!gone.length && !rows.some((one) => POLICIES.includes(one.kind) || one.kind === "pod")) return;
    const counts = new Map();
    for (const row of this.rows.values()) if (row.kind === "pod") for (const one of row.policies) counts.set(one.policy, (counts.get(one.policy) ?? 0) + 1);
    for (const element of this.policies.tBodies[0].rows) replaceCells(element, policyRow(this.rows.get(element.dataset.key), counts.get(element.dataset.key) ?? 0));
    this.showPolicies();
  }

  showPolicies() {
    this.policies.hidden = !this.policies.tBodies[0].rows.length;
    this.policiesCard.hidden = this.policies.hidden && !this.notes.children.length;
  }

  count() {
    for (const [node, { section, none, pods, body }] of this.cards) {
      const every = [...body.rows];
      const seen = every.filter((one) => !one.hidden).length;
      none.hidden = seen > 0;
      pods.hidden = seen === 0;
      none.textContent = every.length ? "no pod fits the filter" : "no pods";
      section.hidden = node === NOWHERE && !seen;
    }
    const every = [...this.services.tBodies[0].rows];
    const seen = every.filter((one) => !one.hidden).length;
    this.servicesHead.replaceChildren("Services", el("small", {}, seen === every.length ? seen : `${seen} of ${every.length}`));
    const policies = [...this.policies.tBodies[0].rows];
    const fit = policies.filter((one) => !one.hidden).length;
    this.policiesHead.replaceChildren("Network policies", el("small", {}, fit === policies.length ? fit : `${fit} of ${policies.length}`));
  }
}

function table(caption, columns) {
  const heads = columns.map(([name, width]) => el("th", { scope: "col", class: width || undefined }, name));
  return el("table", { "aria-label": caption }, el("thead", {}, el("tr", {}, heads)), el("tbody"));
}

function head(card, row) {
  card.title.replaceChildren(
    el("a", { href: `#/${row.key}` }, `node ${row.name}`),
    el("small", { class: "mono" }, row.addresses.join(" ")),
    el("span", { class: `tone dot ${row.tone}` }, row.state),
    el("small", {}, [row.podCIDRs.length ? `pods ${row.podCIDRs.join(" ")}` : "", row.version, `${row.pods} pod${row.pods === 1 ? "" : "s"}`].filter(Boolean).join(" · ")),
  );
}

function serviceRow(row) {
  const ends = row.endpoints.slice(0, 6).map((one) => el("small", { class: `mono ${one.ready ? "" : "bad"}` }, one.address + (one.ready ? "" : one.terminating ? " ends" : " not ready")));
  if (row.total > 6) ends.push(el("small", {}, `and ${row.total - 6} more`));
  return el(
    "tr", {},
    name(row, row.type === "ClusterIP" ? "" : row.type),
    el("td", { class: "mono" }, row.addresses.join(" ") || "–", row.ports.map((one) => el("small", {}, one))),
    el("td", {}, el("span", { class: `dot ${row.tone}` }, row.state), ends),
  );
}

function policyRow(row, count) {
  return el("tr", {}, name(row, ""), el("td", {}, el("span", { class: `dot ${count ? "good" : "over"}` }, `${count} pod${count === 1 ? "" : "s"}`), el("small", {}, row.how)));
}

function replaceCells(old, fresh) {
  for (const [at, cell] of [...fresh.cells].entries()) if (!cell.isEqualNode(old.cells[at])) old.cells[at].replaceWith(cell);
}

// The bridge with its pods' links, and the ways to the pods of other nodes.
function wiringParts(known, node) {
  const bridges = known.links.filter((one) => one.kind === "bridge");
  const tunnels = known.links.filter((one) => ["vxlan", "ipip", "wireguard", "geneve"].includes(one.kind));
  const ways = known.routes.filter((one) => one.leads && one.node && one.node !== node);
  const ports = (bridge) => known.links.filter((one) => one.master === bridge.name).length;
  return [
    ...bridges.map((one) => el("span", { class: "chip" }, el("b", {}, one.name), ` bridge ${one.addresses.join(" ")}, ${ports(one)} link${ports(one) === 1 ? "" : "s"}`)),
    ...tunnels.map((one) => el("span", { class: "chip" }, el("b", {}, one.name), ` ${one.kind}`)),
    ...ways.map((one) => el("span", { class: "chip" }, el("b", {}, one.to), ` → ${one.node} by ${one.dev}`)),
    el("a", { href: `#/node//${node}` }, "all links and routes"),
  ];
}

function podRow(row, veth) {
  const ready = row.containers > 1 || row.ready < row.containers ? ` ${row.ready}/${row.containers}` : "";
  return el(
    "tr", {},
    name(row, "", row.policies.slice(0, MOST_POLICIES).map((one) => el("small", { class: "block" }, one.tier ? "under " : "isolated by ", el("a", { href: `#/${one.policy}` }, one.name), one.tier ? ` (tier ${one.tier}: ${one.how})` : ` (${one.how})`)).concat(row.policies.length > MOST_POLICIES ? [el("small", { class: "block" }, `and ${row.policies.length - MOST_POLICIES} more policies`)] : [])),
    el("td", { class: "mono" }, row.addresses[0] ?? "–", row.hostNetwork ? el("small", {}, "the node's own") : veth ? el("small", {}, veth) : null),
    el("td", {}, el("span", { class: `dot ${row.tone}` }, row.state + ready)),
    el("td", {}, row.restarts || "–"),
  );
}

function name(row, also, more = []) {
  return el("th", { scope: "row" }, el("a", { href: `#/${row.key}`, title: row.labels.join("\n") || undefined }, row.name), el("span", { class: "space" }, ` ${row.namespace}`), also ? el("small", {}, ` · ${also}`) : null, more);
}

// Rows come to their places, and those that are there stay: moving them all would lay out the whole table anew.
function insert(body, fresh) {
  const placed = [...body.rows];
  let at = 0;
  for (const row of fresh.sort(byOrder)) {
    at = after(placed, row, at);
    body.insertBefore(row, placed[at] ?? null);
  }
}

// Where the first row stands, from `low` on, that comes after this one.
function after(placed, row, low) {
  let high = placed.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (byOrder(placed[middle], row) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

function byOrder(one, other) {
  return one.dataset.order < other.dataset.order ? -1 : 1;
}

// Policies are in the order in which they decide: tier Admin, NetworkPolicies, tier Baseline.
function order(row) {
  if (row.kind !== "clusternetworkpolicy") return `1 ${row.key}`;
  return `${row.tier === "Admin" ? 0 : 2} ${String(row.priority).padStart(5, "0")} ${row.key}`;
}
