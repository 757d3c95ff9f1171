// Labels that a person gives: a button per class, and keys 1 to 9.

import { tell } from "./api.js";
import { classColour, element, say, swatch } from "./dom.js";

const MOST_BUTTONS = 12;

// Controls to label one node. Settled is called with the label after it is on the disk.
export function labelControls(model, row, settled = () => {}) {
  if (!model.writable) return element("p", { class: "note" }, "Labels are not taken here.");
  const place = element("div", { class: "labelling", role: "group", "aria-label": `Label ${row.id}` });
  const names = model.classes.map((each) => each.name);

  async function give(label) {
    const held = place.contains(document.activeElement);
    for (const each of place.querySelectorAll("button, select")) each.disabled = true;
    try {
      await tell("/labels", { labels: [{ id: row.id, label }] });
      row.now = label;
      say(label === row.label ? `${row.id} is as before` : `${row.id} is labelled ${label ?? "unknown"}`);
      settled(label);
      show();
    } catch (error) {
      show();
      place.append(element("p", { class: "problem", role: "alert" }, error.message));
    }
    // The controls are new ones; whoever uses the keyboard stays among them.
    if (held) (place.querySelector("[aria-pressed=true]") ?? place.querySelector("button, select")).focus();
  }

  function show() {
    const { now } = row;
    const changed = now !== row.label;
    const pick = names.length <= MOST_BUTTONS ? names.map((name, at) => element("button", {
      type: "button", "aria-pressed": String(now === name), click: () => give(name),
    }, swatch(classColour(at)), name)) : choice(now);
    const back = row.label === null ? "Take it back" : "Keep the old label";
    place.replaceChildren(...pick,
      ...(changed ? [element("button", { type: "button", class: "quiet", click: () => give(row.label) }, back)] : []),
      ...(now !== null && !changed
        ? [element("button", { type: "button", class: "quiet", click: () => give(null) }, "Remove the label")] : []));
  }

  // With a button, because each arrow key in a list chooses already.
  function choice(now) {
    const select = element("select", { "aria-label": "Class" }, element("option", { value: "" }, "choose a class"),
      names.map((name) => element("option", { value: name, selected: name === now }, name)));
    return [select, element("button", { type: "button", click: () => select.value && give(select.value) }, "Label")];
  }

  place.addEventListener("keydown", (event) => {
    const number = Number(event.key);
    if (number >= 1 && number <= Math.min(9, names.length) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      give(names[number - 1]);
    }
  });
  show();
  return place;
}
