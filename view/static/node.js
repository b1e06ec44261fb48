// A node's own work: the newest burst of starts as lanes, images and their disk, how near it is to evicting, its daemons.

import { age, ago, amount, byId, clock, duration, el, keepFocus, meter, size, svg } from "./dom.js";
import { coded } from "./code.js";

const NO_ROWS = new Map(); // of no name in these texts a link is made
const KINDS = ["prepare", "image", "sandbox", "start", "waits"];
const KIND_OF = { admit: "prepare", prepare: "prepare", image: "image", pull: "image", sandbox: "sandbox", start: "start", postStart: "start", ended: "waits", "first probe": "waits" };
const SIGNALS = { "memory.available": "memory", "allocatableMemory.available": "memory for pods", "nodefs.available": "disk of volumes and logs", "nodefs.inodesFree": "its inodes", "imagefs.available": "disk of images", "imagefs.inodesFree": "its inodes", "containerfs.available": "disk of containers", "containerfs.inodesFree": "its inodes", "pid.available": "process numbers" };

export class NodeView {
  constructor(tables) {
    this.tables = tables;
    this.view = byId("node-work");
    this.key = "";
    this.said = null;
    this.open = new Set();
    setInterval(() => this.tick(), 500);
  }

  show(key) {
    this.choices(key);
    if (key === this.key) return;
    this.key = key;
    this.said = null;
    this.draw();
  }

  choices(key = this.key) {
    const rows = [...this.tables.rows.values()].filter((one) => one.kind === "node").sort((one, other) => (one.name < other.name ? -1 : 1));
    keepFocus(byId("node-choice"), () =>
      byId("node-choice").replaceChildren(...rows.map((one) => el("a", { href: `#/${one.key}`, "aria-current": one.key === key ? "page" : undefined, "data-focus": one.key }, el("span", { class: `dot ${one.tone}` }, el("b", {}, one.name)), el("small", {}, `${one.state}, ${one.pods} pod${one.pods === 1 ? "" : "s"}`)))),
    );
  }

  first() {
    return [...this.tables.rows.values()].filter((one) => one.kind === "node").map((one) => one.key).sort()[0] ?? "";
  }

  heard(said) {
    if (said.key !== this.key) return;
    this.said = said;
    this.draw();
  }

  tick() {
    const lanes = this.view.querySelector("#lanes");
    if (lanes && this.said?.work?.lanes?.some((one) => one.ready === null)) keepFocus(lanes, () => lanes.replaceChildren(...lanesPart(this.said.work)));
  }

  draw() {
    keepFocus(this.view, () => this.view.replaceChildren(...this.content()));
  }

  content() {
    const said = this.said;
    if (!said) return [el("p", { class: this.key ? "waits" : "over" }, this.key ? "asking the node …" : "The cluster has no node.")];
    if (said.gone) return [el("p", { class: "box over" }, el("strong", {}, "There is no such node, or no more."))];
    const work = said.work;
    if (work.problem) return [box("The node's work cannot be shown", work.problem), this.more("object", "The object", el("pre", { tabindex: 0 }, said.object))];
    return [
      ...work.silent.map((one) => box("The node does not tell all", one)),
      card("wide", "Starts", startsNote(work), el("div", { id: "lanes" }, lanesPart(work))),
      el("div", { class: "column" }, card("", "How long a step takes", "on average", averagesPart(work)), card("", "Images", "", ...this.imagesPart(work))),
      el("div", { class: "column" }, card("", "Evictions", "what is in use, and the line from which pods are evicted", ...evictionPart(work)), card("", "Who holds the disk", "volumes, logs and files of pods", ...holdersPart(work.holders)), card("", "Daemons", "", daemonsPart(work))),
      ...this.wiredPart(said.wired),
      el("div", { class: "wide" }, this.more("object", "The object", el("pre", { tabindex: 0 }, said.object))),
    ];
  }

  imagesPart(work) {
    const pulls = work.pulls.length
      ? grid("Image pulls", ["Image", "Progress"], work.pulls.map((one) => [podLink(one.pod, one.on), [el("span", {}, one.text || "under way"), one.share === null ? null : meter(one.share, null, "good", `${Math.round(one.share * 100)} %`), one.since ? el("small", {}, "for ", age(one.since)) : null]]))
      : none("No image is being pulled.");
    const disk = work.disk;
    if (!disk) return [pulls, none("What is on the disk is not known.")];
    const used = disk.capacity ? 1 - disk.available / disk.capacity : 0;
    const tone = used * 100 >= disk.high ? "bad" : used * 100 >= disk.low ? "waits" : "good";
    const list = grid("Images on the disk", ["Image", "Size", "Held by"], disk.images.map((one) => [el("span", { class: "mono" }, one.name), size(one.size), one.held || "nothing: it can be removed"]), ["", "narrow", "third"]);
    return [
      pulls,
      el("div", { class: "none" }, meter(used, disk.high < 100 ? disk.high / 100 : null, tone, `${Math.round(used * 100)} % of the disk of images is in use`), disk.words.map((one) => el("p", {}, coded(one, NO_ROWS))), this.more("images", "the largest of them", list)),
    ];
  }

  wiredPart(wired) {
    if (wired.problem) return [card("wide", "How it is wired", "", none(wired.problem))];
    const links = wired.links.map((one) => [
      [el("b", {}, one.name), el("small", {}, one.kind)],
      [el("span", { class: "mono" }, one.addresses.join(" ")), one.behind ? podLink(one.behind, "") : null, one.master ? el("small", {}, `in bridge ${one.master}`) : null],
      el("span", { class: `dot ${one.state === "DOWN" ? "bad" : "good"}` }, one.state.toLowerCase()),
      [`${amount(one.received)} in, ${amount(one.sent)} out`, one.dropped ? el("small", { class: "waits" }, `${amount(one.dropped)} dropped`) : null],
      this.more(`link ${one.name}`, "the link", el("pre", { tabindex: 0 }, one.text)),
    ]);
    const routes = wired.routes.map((one) => [el("span", { class: "mono" }, one.to), one.kind && one.kind !== "unicast" ? one.kind : [one.dev, one.via ? el("small", { class: "mono" }, `via ${one.via}`) : null], [one.leads, one.node ? el("small", {}, `by ${one.node}`) : null]]);
    const sysctls = wired.sysctls.map((one) => [el("span", { class: "mono" }, one.name), el("span", { class: "mono" }, one.value), one.meaning]);
    return [
      card("wide", "How it is wired", "links, as its kernel has them", grid("Links", ["Link", "Addresses, or the pod behind it", "State", "Packets", ""], links, ["links-name", "", "links-state", "links-packets", "links-text"])),
      el("div", { class: "column" }, card("", "Routes", "", grid("Routes", ["To", "By", "Leads to"], routes, ["", "third", "third"]))),
      el("div", { class: "column" }, card("", "Sysctls", "below /proc/sys", grid("Sysctls", ["Name", "Value", "What it means"], sysctls, ["sysctl", "value", ""]))),
    ];
  }

  more(name, title, content) {
    const found = el("details", { open: this.open.has(name) }, el("summary", { "data-focus": name }, title), content);
    found.addEventListener("toggle", () => this.open[found.open ? "add" : "delete"](name));
    return found;
  }
}

function card(name, title, note, ...content) {
  return el("section", { class: `card ${name}` }, el("h2", {}, title, note ? el("small", {}, note) : null), content);
}

function box(title, text) {
  return el("div", { class: "box bad wide" }, el("strong", {}, title), el("p", {}, coded(text, NO_ROWS)));
}

function none(text) {
  return el("p", { class: "none" }, coded(text, NO_ROWS));
}

function grid(caption, heads, rows, widths = []) {
  const head = heads.map((one, at) => el("th", { scope: "col", class: widths[at] || undefined }, one));
  return el("table", { "aria-label": caption }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((one) => el("td", {}, one))))));
}

// `where`: tells links to the same pod apart.
function podLink(key, also = "", where = "") {
  const [, namespace, name] = key.split("/");
  return [el("a", { href: `#/${key}`, "data-focus": `${key} ${also}${where}` }, name), el("span", { class: "space" }, ` ${namespace}`), also ? el("small", {}, also) : null];
}

function startsNote(work) {
  if (!work.lanes.length) return "";
  const begin = Math.min(...work.lanes.map((one) => one.begin));
  const ready = work.lanes.map((one) => one.ready).filter((one) => one !== null);
  const count = work.lanes.length + work.left_out;
  const all = ready.length === work.lanes.length ? `all ready after ${duration(Math.max(...ready) - begin)}` : `${ready.length} of ${work.lanes.length} ready`;
  return `the newest burst: ${count} pod${count === 1 ? "" : "s"} from ${clock(begin)}, ${all}${work.known > count ? ` · ${work.known - count} earlier` : ""}`;
}

function lanesPart(work) {
  if (!work.lanes.length) return [none("The agent has no record of a start: it keeps those of the pods that it started itself.")];
  const now = Date.now() / 1000;
  const begin = Math.min(...work.lanes.map((one) => one.begin));
  const end = Math.max(begin + 0.001, ...work.lanes.map((one) => one.ready ?? Math.max(now, ...one.bars.map((bar) => bar.end ?? now))));
  const legend = el("p", { class: "legend", "aria-hidden": "true" }, KINDS.map((one) => el("span", { class: `key ${one}` }, one === "waits" ? "runs to its end, or waits for a probe" : one)));
  const head = el("tr", {}, el("th", { scope: "col" }, "Pod"), el("th", { scope: "col", class: "scale" }, el("span", {}, el("b", {}, "0"), el("b", {}, duration(end - begin)))), el("th", { scope: "col", class: "took" }, "Ready after"));
  const table = el("table", { class: "life lanes", "aria-label": "Starts of pods, each a lane" }, el("thead", {}, head), el("tbody", {}, work.lanes.map((one) => laneRow(one, begin, end, now))));
  return [legend, table, work.left_out ? none(`and ${work.left_out} more`) : null].filter(Boolean);
}

function laneRow(lane, begin, end, now) {
  const share = (at) => Math.max(0, Math.min(100, ((at - begin) / (end - begin)) * 100));
  const bars = lane.bars.map((one) => {
    const from = Math.min(share(one.begin), 99.6);
    const kind = KIND_OF[one.kind] ?? "waits";
    return svg("rect", { x: `${from.toFixed(2)}%`, y: kind === "image" ? 1 : 3, width: `${Math.max(0.35, share(one.end ?? now) - from).toFixed(2)}%`, height: kind === "image" ? 4 : 9, class: one.tone === "bad" ? "bad" : kind }, svg("title", {}, `${one.name}: ${one.end === null ? "under way" : duration(one.end - one.begin)}`));
  });
  const ready = lane.ready === null ? null : svg("rect", { x: `${Math.min(share(lane.ready), 99.6).toFixed(2)}%`, y: 1, width: 2, height: 13, class: "ready" });
  const words = lane.bars.map((one) => `${one.name} ${one.end === null ? "under way" : duration(one.end - one.begin)}`).join(", ");
  return el(
    "tr", {},
    el("th", { scope: "row" }, podLink(lane.pod)),
    el("td", {}, svg("svg", { role: "img", "aria-label": words }, bars, ready)),
    el("td", { class: "took" }, lane.ready === null ? el("span", { class: "waits" }, `${duration(Math.max(0, now - lane.begin))} …`) : duration(lane.ready - lane.begin)),
  );
}

function averagesPart(work) {
  const every = work.averages.filter((one) => one.seconds > 0 && one.kind !== "ended").sort((one, other) => other.seconds - one.seconds).slice(0, 12);
  if (!every.length) return none("No step is known yet.");
  const most = every[0].seconds;
  return grid("Steps on average", ["Step", "", "Took", "Times"], every.map((one) => [one.kind, meter(one.seconds / most, null, "plain", ""), el("span", { class: "whole" }, duration(one.seconds)), one.count]), ["step", "", "narrow", "narrow"]);
}

function evictionPart(work) {
  const seen = work.thresholds.filter((one) => one.capacity);
  const rows = seen.map((one) => {
    const bytes = !/inodes|pid/.test(one.signal);
    const tone = one.available < one.least ? "bad" : one.available < one.least * 1.5 ? "waits" : "good";
    const left = bytes ? size : amount;
    const words = `${left(one.available)} left of ${left(one.capacity)}`;
    const state = one.since ? `met for ${duration(Math.max(0, Date.now() / 1000 - one.since))}${one.grace ? `, allowed for ${duration(one.grace)}` : ""}` : `evicts below ${left(one.least)}${one.grace ? ` after ${duration(one.grace)}` : ""}`;
    const holder = one.signal === "nodefs.available" ? work.holders.pods[0] : null;
    const most = holder ? el("small", {}, "most of what pods hold: ", podLink(holder.pod, "", "most"), ` ${size(holder.used)}`) : null;
    return [[SIGNALS[one.signal] ?? one.signal, el("small", { class: "mono" }, one.signal)], [meter(1 - one.available / one.capacity, 1 - one.least / one.capacity, tone, words), el("small", { class: tone === "good" ? undefined : tone }, `${words}; ${state}`), most]];
  });
  const evicted = work.evicted.map((one) => el("li", {}, `${clock(one.at)} ${one.pod}: ${one.message}`));
  return [
    rows.length ? grid("Thresholds of evictions", ["What", "In use"], rows, ["third", ""]) : none("The node has not measured itself yet."),
    evicted.length ? el("div", { class: "none" }, el("strong", { class: "bad" }, "Evicted"), el("ul", {}, evicted.reverse())) : none("No pod was evicted since the agent started."),
  ];
}

// The pods that hold most of the disk, beside all that is in use there.
function holdersPart(holders) {
  if (holders.unknown) return [none(`What pods hold is not known: ${holders.unknown}.`)];
  const images = holders.images === null ? "" : `, images ${size(holders.images)}`;
  const all = holders.disk_used === null ? "" : ` In use on the whole disk: ${size(holders.disk_used)}; what neither pods nor images hold is others' on this machine.`;
  const text = none(`Pods of this node hold ${size(holders.used)}${images}.${all}`);
  const whole = holders.disk || Math.max(1, ...holders.pods.map((one) => one.used)); // as the bars of the disk beside it
  const rows = holders.pods.map((one) => [podLink(one.pod, "", "disk"), [meter(one.used / whole, null, "plain", holders.disk ? `${(100 * one.used / whole).toFixed(1)} % of the disk` : ""), el("b", { class: "whole" }, size(one.used)), one.parts.map((part) => el("small", {}, `${part.name}: ${size(part.used)}`))]]);
  return [rows.length ? grid("Who holds the disk", ["Pod", "Holds"], rows, ["third", ""]) : none("No pod holds anything."), holders.left_out ? none(`${holders.left_out} more pod${holders.left_out === 1 ? "" : "s"}, with ${size(holders.left_out_used)}`) : null, text].filter(Boolean);
}

function daemonsPart(work) {
  if (!work.daemons.length) return none("No supervisor of this node is on this machine.");
  const rows = work.daemons.map((one) => [
    one.name,
    el("span", { class: `dot ${one.alive ? "good" : "bad"}` }, one.alive ? "running" : "down"),
    one.alive ? ago(one.age) : "–",
    one.starts > 1 ? [String(one.starts - 1), one.last_exit ? el("small", {}, `the last ended with ${one.last_exit}`) : null] : "–",
  ]);
  return grid("Daemons", ["Daemon", "State", "For", "Restarts"], rows, ["", "fifth", "fifth", "third"]);
}
