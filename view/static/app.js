// Joins the parts: what the server sends, the address after #, and the keyboard.

import { byId, grow } from "./dom.js";
import { coded } from "./code.js";
import { Detail } from "./detail.js";
import { Live } from "./live.js";
import { NodeView } from "./node.js";
import { Packet } from "./packet.js";
import { Tables } from "./tables.js";
import { Troubles } from "./troubles.js";
import { Wires } from "./wires.js";

let wires = null;
const tables = new Tables(() => wires?.draw());
wires = new Wires(tables);
const troubles = new Troubles(tables, () => wires.draw());
const detail = new Detail(tables, () => back());
const packet = new Packet(tables, (asked) => live.look("packet", asked));
const nodes = new NodeView(tables);

const live = new Live({
  anew: () => {
    delete document.documentElement.dataset.synced;
    tables.anew();
  },
  rows: (said) => {
    tables.update(said.rows, said.gone);
    if (document.documentElement.dataset.synced) troubles.draw();
    if (!byId("node-view").hidden && (said.gone.length || said.rows.some((one) => one.kind === "node"))) route();
  },
  state: (said) => {
    byId("cluster").textContent = said.cluster;
    document.title = `${said.cluster} · nodewright`;
    if (said.problems.length) tell("bad", `The API server gives no news, and is tried again: ${said.problems.join("; ")}`);
    else tell(said.synced ? "good" : "waits", said.synced ? "live" : "reading the cluster");
    tables.said(said.notes);
    if (said.synced) {
      document.documentElement.dataset.synced = "yes";
      tables.quiet = false;
      troubles.draw();
    }
  },
  detail: (said) => (said.kind === "node" ? nodes : detail).heard(said),
  refusals: (said) => detail.refusals(said),
  costs: (said) => detail.measured(said),
  wiring: (said) => tables.wired(said.nodes),
  walk: (said) => packet.walked(said),
  drops: (said) => troubles.dropped(said.drops),
  refused: (said) => packet.refused(said),
  lost: () => tell("bad", "No connection to `nodewright view`; what is shown may be old. Trying again …"),
});

function tell(tone, text) {
  const state = byId("state");
  state.className = `state ${tone}`;
  state.replaceChildren(...coded(text, tables.rows).flat().filter(Boolean));
}

const VIEWS = ["cluster", "node", "packet"];
let view = "cluster";
let behind = "#/cluster"; // where closing leads
const back = () => (location.hash = behind);

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const about = path === "node" ? nodes.first() : /^(node|pod|service|networkpolicy|clusternetworkpolicy)\/[^/]*\/[^/]+$/.test(path) ? path : "";
  const kind = path.split("/")[0];
  const shown = kind === "packet" || kind === "node" ? kind : "cluster";
  if (shown !== view) unfilter();
  view = shown;
  byId("filter").closest("label").hidden = shown !== "cluster";
  for (const one of VIEWS) {
    byId(`${one}-view`).hidden = one !== shown;
    if (one === shown) byId(`to-${one}`).setAttribute("aria-current", "page");
    else byId(`to-${one}`).removeAttribute("aria-current");
  }
  if (!about || shown === "node") behind = location.hash || "#/cluster";
  if (about && shown === "cluster") detail.show(about);
  else detail.hide();
  if (shown !== "packet") live.look(about || (shown === "cluster" ? "wiring" : ""));
  if (shown === "packet") packet.show(new URLSearchParams(query));
  else if (shown === "node") nodes.show(about);
  else wires.draw();
}

// Only the view of the cluster has what is filtered, and it is never found with rows missing.
function unfilter() {
  byId("filter").value = "";
  tables.filter("");
}

addEventListener("hashchange", route);
setInterval(grow, 500);
byId("filter").addEventListener("input", (event) => tables.filter(event.target.value));
addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && view === "cluster") {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape") {
    if (!detail.panel.hidden) back();
    else if (event.target === byId("filter")) {
      unfilter();
      event.target.blur();
    }
  }
});
route();
