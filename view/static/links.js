// Texts of the server whose names of objects lead to these, as long as there are such objects.

import { el } from "./dom.js";

const NAMED = /\b(pod|Service|node|ClusterNetworkPolicy|NetworkPolicy|isolated by) ([\w-][\w.-]*(?:\/[\w.-]+)?)/g;
const KINDS = { pod: "pod/", Service: "service/", node: "node//", ClusterNetworkPolicy: "clusternetworkpolicy//", NetworkPolicy: "networkpolicy/", "isolated by": "networkpolicy/" };

// Text nodes and links, for el().
export function linked(text, rows) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(NAMED)) {
    const name = found[2].replace(/\.+$/, "");
    const link = toRow(`${KINDS[found[1]]}${name}`, name, rows);
    if (typeof link === "string") continue;
    const begin = found.index + found[0].length - found[2].length;
    parts.push(text.slice(at, begin), link);
    at = begin + name.length;
  }
  return [...parts, text.slice(at)];
}

// The name, as a link if there is such an object.
export function toRow(key, name, rows) {
  return rows.has(key) ? el("a", { href: `#/${key}`, class: "name" }, name) : name;
}

// Who dropped packets: each policy as a link where it is known which they are, otherwise in the words of the node.
export function byPolicies(refused, rows) {
  const names = refused.policies.map((one) => one.split("/").slice(1).filter(Boolean).join("/"));
  if (names.length && refused.by === names.join(", ")) return names.map((name, at) => [at ? ", " : "", toRow(refused.policies[at], name, rows)]);
  return linked(refused.by, rows);
}
