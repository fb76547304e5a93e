// What happened at one step, in words.
import { element } from "./app.js";
import { before, heldSince, number, percent } from "./data.js";

// The likeliest classes after step t.
export function stepCard(trace, names, t) {
  const title = element("h3", "", `Step ${t + 1}: token `);
  title.append(element("code", "", names.tokens[trace.tokens[t]]));
  const bars = element("dl", "bars"), target = trace.targets?.[t];
  for (const [c, p] of trace.top[t]) {
    const right = c === target ? "right" : "", bar = element("div", "bar");
    bar.style.width = `${100 * (p ?? 0)}%`;
    const track = element("dd");
    track.append(bar);
    bars.append(element("dt", right, names.classes[c]), track, element("dd", right, percent(p)));
  }
  const nodes = [title, bars];
  if (trace.targets) {
    const asked = target !== null && target !== undefined;
    nodes.push(element("p", "", asked ? `The right answer is ${names.classes[target]}.` : "Nothing is asked at this step."));
  }
  return nodes;
}

// What unit and state `row` of a layer did at step t.
export function unitCard(trace, l, row, t) {
  const layer = trace.layers[l], n = trace.degree;
  const title = element("h3", "", `${unitTitle(l, row, n)}, step ${t + 1}`);
  return [title, ...(n === 1 ? scalarLines(layer, row, t) : vectorLines(layer, row, t, n)), heldLine(layer, row, t)];
}

export function unitTitle(l, row, n) {
  const state = n === 1 ? "" : `, state ${row % n}`;
  return `Layer ${l + 1}, unit ${Math.floor(row / n)}${state}`;
}

export function verdict(layer, row, t, n) {
  const [x, r, s] = [before(layer, row, t), layer.r[row][t], layer.s[row][t]];
  const flag = layer.flags[row][t];
  if (flag === "k") return n === 1 ? "Kept: the state lies between s and r and is copied, exactly." : "Kept, exactly.";
  if (flag === "s" && n === 1 && r < s) return "Set: r is below s, so the state becomes s, whatever it was.";
  if (flag === "s") return n === 1 && x < s ? "Set: s is above the state and lifts it." : "Set to s.";
  if (flag === "r") return "Lowered: r is below the state and caps it.";
  return null;
}

function scalarLines(layer, row, t) {
  const [x, old, r, s] = [layer.x[row][t], before(layer, row, t), layer.r[row][t], layer.s[row][t]].map((v) => number(v));
  const lines = element("div", "equation");
  lines.append(element("div", "", "x ← max(min(r, x), s)"));
  lines.append(element("div", "", `  = max(min(${r}, ${old}), ${s})`), element("div", "", `  = ${x}`));
  return [lines, element("p", "verdict", verdict(layer, row, t, 1) ?? "None of x, r and s is a number.")];
}

function vectorLines(layer, row, t, n) {
  const first = row - (row % n), x = layer.x[row][t], table = element("table"), head = element("tr");
  head.append(...["from", "x", "R", "min"].map((name) => element("th", "", name)));
  table.append(head);
  const parts = Array.from({ length: n }, (_, k) => [before(layer, first + k, t), layer.r[row][t][k]]);
  parts.forEach(([old, r], k) => {
    const line = element("tr");
    line.append(...[`state ${k}`, number(old), number(r), number(Math.min(old, r))].map((text) => element("td", "", text)));
    table.append(line);
  });
  const lines = element("div", "equation", `max(largest min, s = ${number(layer.s[row][t])}) = ${number(x)}`);
  const from = parts.findIndex(([old, r]) => old === x && old <= r);
  const moved = from >= 0 ? `Moved: it is what state ${from} was, exactly.` : "Lowered to a number of R.";
  return [table, lines, element("p", "verdict", verdict(layer, row, t, n) ?? moved)];
}

function heldLine(layer, row, t) {
  const since = heldSince(layer, row, t), steps = t - since;
  if (since === t) return element("p", "", "The state is new at this step.");
  const place = since < 0 ? "the start, before the first step" : `step ${since + 1}`;
  return element("p", "", `It has been held for ${steps} step${steps === 1 ? "" : "s"}, since ${place}.`);
}

// What is shown beside the pointer.
export function tipText(trace, names, l, row, t) {
  const layer = trace.layers[l], n = trace.degree;
  const r = n === 1 ? number(layer.r[row][t]) : `[${layer.r[row][t].map((v) => number(v)).join(", ")}]`;
  const done = { k: "kept", s: "set to s", r: "lowered to r", m: "moved" }[layer.flags[row][t]];
  return `${unitTitle(l, row, n)} · step ${t + 1}: ${names.tokens[trace.tokens[t]]}\n` +
    `x = ${number(layer.x[row][t])}  ${done}\nr = ${r}  s = ${number(layer.s[row][t])}`;
}
