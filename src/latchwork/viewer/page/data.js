// The trace that the page holds: columns are added at its end and cut off there.

export function emptyTrace(facts) {
  const rows = facts.units * facts.degree;
  const lists = () => Array.from({ length: rows }, () => []);
  return {
    degree: facts.degree,
    tokens: [],
    top: [],
    targets: facts.regular ? [] : null,
    layers: Array.from({ length: facts.layers }, () => ({
      x: lists(), r: lists(), s: lists(), start: Array(rows).fill(null), flags: Array(rows).fill(""),
    })),
  };
}

// Forget the steps from `length` on.
export function cut(trace, length) {
  if (length >= trace.tokens.length) return;
  for (const list of [trace.tokens, trace.top, trace.targets]) if (list) list.length = length;
  for (const layer of trace.layers) {
    for (const rows of [layer.x, layer.r, layer.s]) for (const row of rows) row.length = length;
    layer.flags = layer.flags.map((flags) => flags.slice(0, length));
  }
}

// Put the columns of an answer after its first step.
export function extend(trace, answer) {
  cut(trace, answer.first);
  const add = (to, from) => { for (const value of from) to.push(value); };
  add(trace.tokens, answer.tokens);
  add(trace.top, answer.top);
  if (trace.targets) add(trace.targets, answer.targets);
  answer.layers.forEach((more, i) => {
    const layer = trace.layers[i];
    for (const name of ["x", "r", "s"]) layer[name].forEach((row, k) => add(row, more[name][k]));
    layer.flags = layer.flags.map((flags, k) => flags + more.flags[k]);
    if (answer.first === 0) layer.start = more.start;
  });
}

// The state before step t.
export function before(layer, row, t) {
  return t > 0 ? layer.x[row][t - 1] : layer.start[row];
}

// The step at which the state that stands after step t came; −1 if it is the start.
export function heldSince(layer, row, t) {
  const flags = layer.flags[row];
  while (t >= 0 && flags[t] === "k") t -= 1;
  return t;
}

// true, false, or null where nothing is asked.
export function isRight(trace, t) {
  const target = trace.targets ? trace.targets[t] : null;
  return target === null ? null : trace.top[t][0][0] === target;
}

// The unit that has held longest what came at some step; of equals the one with the largest state.
export function bestLatch(trace) {
  const t = trace.tokens.length - 1;
  let best = { layer: 0, row: 0, held: -1, size: 0 };
  trace.layers.forEach((layer, l) => layer.x.forEach((values, row) => {
    const since = heldSince(layer, row, t);
    const held = since < 0 ? -1 : t - since;
    const size = Math.abs(values[t] ?? 0);
    if (held > best.held || (held === best.held && size > best.size)) best = { layer: l, row, held, size };
  }));
  return best;
}

// Rows in the order in which they are shown; the states of a unit stay together.
export function orderRows(trace, l, by) {
  const layer = trace.layers[l], n = trace.degree, t = trace.tokens.length - 1;
  const units = Array.from({ length: layer.x.length / n }, (_, u) => u);
  if (by === "held" && t >= 0) {
    const longest = units.map((u) => Math.max(...Array.from({ length: n }, (_, i) => longestHeld(layer.flags[u * n + i]))));
    units.sort((a, b) => longest[b] - longest[a] || a - b);
  }
  return units.flatMap((u) => Array.from({ length: n }, (_, i) => u * n + i));
}

// The length of the longest time that a state which came at some step was kept.
function longestHeld(flags) {
  let longest = 0, run = -Infinity;
  for (const flag of flags) {
    run = flag === "k" ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  return longest;
}

// The lowest and highest finite number.
export function extent(lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const value of list) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 0];
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "?";
  const size = Math.abs(value);
  const text = value === 0 ? "0" : size >= 1e5 || size < 1e-4 ? value.toExponential(1) : String(+value.toPrecision(digits));
  return text.replace("-", "−");
}

export function percent(p) {
  return p === null ? "?" : p >= 0.9995 ? "100%" : p < 0.001 ? "<0.1%" : `${(100 * p).toPrecision(p >= 0.0995 ? 3 : 2)}%`;
}
