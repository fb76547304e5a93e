// Tokens and predictions above the heat maps: text where columns are wide enough, colours where they are not.
import { element } from "./app.js";
import { LABEL, prepare } from "./heat.js";
import { isRight, percent } from "./data.js";

const READABLE = 24, HEIGHT = 93;

// What a step says, for people who do not see it.
export function sentence(trace, names, t) {
  const [best, p] = trace.top[t][0], right = isRight(trace, t);
  const verdict = right === null ? "" : right ? ", right" : `, wrong: it is ${names.classes[trace.targets[t]]}`;
  return `step ${t + 1}: token ${names.tokens[trace.tokens[t]]}, predicts ${names.classes[best]} with ${percent(p)}${verdict}`;
}

// cells: the element for readable columns; canvas for narrow ones; choose(t) is called for a click.
export function drawStrip(cells, canvas, trace, names, view, choose) {
  const { w, left, width, steps } = view, readable = w >= READABLE;
  const first = Math.max(0, Math.floor(left / w)), last = Math.min(steps, Math.ceil((left + width - LABEL) / w));
  const c = prepare(canvas, width, HEIGHT);
  cells.parentElement.classList.toggle("narrow", !readable);
  cells.replaceChildren(...(readable ? range(first, last).map((t) => column(trace, names, view, t, choose)) : []));
  if (!readable) narrow(c, trace, view, first, last);
}

function range(first, last) {
  return Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
}

function column(trace, names, view, t, choose) {
  const right = isRight(trace, t), chosen = view.chosen?.step === t;
  const cell = element("div", `col${right === null ? "" : right ? " right" : " wrong"}${chosen ? " chosen" : ""}`);
  cell.setAttribute("role", "listitem");
  cell.setAttribute("aria-label", sentence(trace, names, t));
  cell.title = sentence(trace, names, t);
  cell.style.left = `${LABEL + t * view.w}px`;
  cell.style.width = `${view.w}px`;
  const [best, p] = trace.top[t][0], target = trace.targets?.[t];
  const mark = right === null || view.w < 40 ? "" : right ? "✓" : "✗";
  const want = target === null || target === undefined ? "" : names.classes[target];
  const texts = { t: t + 1, tok: names.tokens[trace.tokens[t]], says: names.classes[best] + mark, p: percent(p), want };
  for (const [name, text] of Object.entries(texts)) cell.append(element("span", name, String(text)));
  cell.addEventListener("click", () => choose(t));
  return cell;
}

function narrow(c, trace, view, first, last) {
  const { w, left, width } = view;
  c.save();
  c.beginPath();
  c.rect(LABEL, 0, width - LABEL, HEIGHT);
  c.clip();
  for (let t = first; t < last; t += 1) {
    const right = isRight(trace, t);
    c.fillStyle = right === null ? "#dde3ea" : right ? "#4caf7a" : "#d9483b";
    c.fillRect(LABEL + t * w - left, 43, Math.max(1, w - (w > 4 ? 1 : 0)), right === false ? 26 : 14);
  }
  c.fillStyle = "#5b6b7b";
  c.font = "10.5px system-ui, sans-serif";
  c.textAlign = "center";
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((count) => count * w >= 40) ?? 1000;
  for (let t = Math.ceil((first + 1) / every) * every - 1; t < last; t += every) {
    c.fillText(String(t + 1), LABEL + (t + 0.5) * w - left, 16);
  }
  c.restore();
}

// Every step as a row of a plain table.
export function stepTable(trace, names) {
  const table = element("table"), head = element("tr");
  const titles = ["step", "token", "predicts", "with", ...(trace.targets ? ["right is", ""] : [])];
  head.append(...titles.map((title) => element("th", "", title)));
  table.append(head);
  trace.tokens.forEach((token, t) => {
    const [best, p] = trace.top[t][0], right = isRight(trace, t), row = element("tr");
    const texts = [t + 1, names.tokens[token], names.classes[best], percent(p)];
    if (trace.targets) {
      texts.push(trace.targets[t] === null ? "–" : names.classes[trace.targets[t]], right === null ? "" : right ? "✓" : "✗");
    }
    row.append(...texts.map((text) => element("td", "", String(text))));
    table.append(row);
  });
  return table;
}
