// Joins the parts: what the server sends, the address after #, and the keyboard.

import { byId } from "./dom.js";
import { Detail } from "./detail.js";
import { Live } from "./live.js";
import { Packet } from "./packet.js";
import { Tables } from "./tables.js";
import { Wires } from "./wires.js";

let wires = null;
const tables = new Tables(() => wires?.draw());
wires = new Wires(tables);
const detail = new Detail();
const packet = new Packet(tables);

const live = new Live({
  anew: () => {
    delete document.documentElement.dataset.synced;
    tables.anew();
  },
  rows: (said) => {
    tables.update(said.rows, said.gone);
    if (document.documentElement.dataset.synced) tables.quiet = false;
  },
  state: (said) => {
    byId("cluster").textContent = said.cluster;
    document.title = `${said.cluster} · nodewright`;
    if (said.problems.length) tell("bad", `The API server gives no news, and is tried again: ${said.problems.join("; ")}`);
    else tell(said.synced ? "good" : "waits", said.synced ? "live" : "reading the cluster");
    if (said.synced) document.documentElement.dataset.synced = "yes";
  },
  detail: (said) => detail.heard(said),
  lost: () => tell("bad", "No connection to `nodewright view`; what is shown may be old. Trying again …"),
});

function tell(tone, text) {
  const state = byId("state");
  state.className = `state ${tone}`;
  state.textContent = text;
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const isPacket = path === "packet";
  byId("cluster-view").hidden = isPacket;
  byId("packet-view").hidden = !isPacket;
  byId("to-cluster").toggleAttribute("aria-current", !isPacket);
  byId("to-packet").toggleAttribute("aria-current", isPacket);
  const about = /^(node|pod|service)\/[^/]*\/[^/]+$/.test(path) ? path : "";
  if (about) detail.show(about);
  else detail.hide();
  live.look(about);
  if (isPacket) packet.show(new URLSearchParams(query));
  else wires.draw();
}

addEventListener("hashchange", route);
byId("filter").addEventListener("input", (event) => tables.filter(event.target.value));
addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape") {
    if (!detail.panel.hidden) location.hash = "#/cluster";
    else if (event.target === byId("filter")) {
      event.target.value = "";
      tables.filter("");
      event.target.blur();
    }
  }
});
route();
