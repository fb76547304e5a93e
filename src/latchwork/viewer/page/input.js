// From the text field to the server and back.
import { button } from "./app.js";

// The units of input: names for tokens, bytes for text.
export function itemsOf(value, isText) {
  if (isText) return Array.from(new TextEncoder().encode(value), String);
  return value.split(/\s+/).filter(Boolean);
}

// Without a last name that is still being typed.
export function finished(items, value, names, typing) {
  const last = items[items.length - 1];
  const open = typing && last !== undefined && !/\s$/.test(value) && !names.includes(last) && !/^\d+$/.test(last);
  return open && names.some((name) => name.startsWith(last)) ? items.slice(0, -1) : items;
}

export function commonStart(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length += 1;
  return length;
}

// The answer of the server; throws an Error with its message.
export async function ask(path, question) {
  const options = question && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question),
  };
  let response, content;
  try {
    response = await fetch(path, options);
    content = await response.json();
  } catch {
    throw new Error("the server does not answer; is latchwork view still running?");
  }
  if (!response.ok) throw new Error(content.error);
  return content;
}

// A toolbar of tokens; one of them takes the focus, arrow keys move it.
export function fillVocabulary(box, names, append) {
  names.forEach((name, i) => {
    const node = button(name, () => append(name));
    node.tabIndex = i ? -1 : 0;
    node.setAttribute("aria-label", `Append ${name}`);
    box.append(node);
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = [...box.children].indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = box.children[(at + step + names.length) % names.length];
    box.children[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  box.hidden = false;
}
