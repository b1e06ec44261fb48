// Texts in which commands and the like stand between backticks: these are set as code, and can be copied.

import { el } from "./dom.js";
import { linked } from "./links.js";

const CODE = /`([^`\n]+)`/;
const SHOWN = 1500; // milliseconds for which a button says what it did

// Text nodes, links and code, for el(). `copy`: with a button after each.
export function coded(text, rows, copy = false) {
  // Of what is split by one group, every second part is that group.
  return text.split(CODE).map((part, at) => (at % 2 ? [el("code", {}, part), copy ? copying(part) : null] : linked(part, rows)));
}

function copying(text) {
  const button = el("button", { class: "copy", type: "button", "aria-label": `Copy ${text}`, "data-focus": `copy ${text}`, onclick: () => copied() }, "copy");
  const say = (word) => {
    button.textContent = word;
    setTimeout(() => (button.textContent = "copy"), SHOWN);
  };
  const copied = () => navigator.clipboard.writeText(text).then(() => say("copied"), () => say("not allowed"));
  return button;
}
