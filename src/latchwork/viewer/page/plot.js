// The line plot of one unit: its state between the floor s and the ceiling r, on the time axis of the heat maps.
import { LABEL, prepare } from "./heat.js";
import { extent, number } from "./data.js";

export const HEIGHT = 136;
const TOP = 26, BOTTOM = 10, X = "#1c2733", R = "#d9730d", S = "#1f6feb";

// unit: {layer, row, title}; view as for drawHeat.
export function drawPlot(canvas, trace, unit, view) {
  const c = prepare(canvas, view.width, HEIGHT);
  const { w, left, width } = view, layer = trace.layers[unit.layer], n = trace.degree;
  const first = Math.max(0, Math.floor(left / w)), last = Math.min(view.steps, Math.ceil((left + width - LABEL) / w));
  const ceilings = n === 1 ? [layer.r[unit.row]] : Array.from({ length: n }, (_, k) => layer.r[unit.row].map((r) => r[k]));
  const floor = layer.s[unit.row], states = layer.x[unit.row];
  const [low, high] = plotRange(states, layer.start[unit.row], floor, ceilings);
  const y = (v) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (Math.min(high, Math.max(low, v)) - low) / (high - low));
  const x = (t) => LABEL + t * w - left;
  c.save();
  c.beginPath();
  c.rect(LABEL, 0, width - LABEL, HEIGHT);
  c.clip();
  if (n === 1) fillBetween(c, floor, ceilings[0], first, last, x, y, w);
  for (const ceiling of ceilings) steps(c, ceiling, null, first, last, x, y, w, R, n === 1 ? 1.5 : 1);
  steps(c, states, layer.start[unit.row], first, last, x, y, w, X, 3.5);
  steps(c, floor, null, first, last, x, y, w, S, 1.5); // over x, so that both are to be seen where they are one
  c.strokeStyle = "rgba(28,39,51,.35)";
  c.lineWidth = 1;
  c.strokeRect(x(view.chosen.step) + 0.5, TOP - 6, Math.max(1, w - 1), HEIGHT);
  c.restore();
  drawAxis(c, low, high, y, width);
  drawTitle(c, unit.title, n);
}

// All of x; r and s as far as they come near it, since a ceiling far away says no more than that it is far.
function plotRange(states, start, floor, ceilings) {
  const [low, high] = extent([states, [start]]);
  const margin = Math.max(high - low, 0.25 * Math.max(Math.abs(low), Math.abs(high)), 1e-3);
  const [least, most] = extent([states, [start], floor, ...ceilings]);
  const range = [Math.max(least, low - margin), Math.min(most, high + margin)];
  const rest = 0.08 * (range[1] - range[0]) || 1;
  return [range[0] - rest, range[1] + rest];
}

function fillBetween(c, floor, ceiling, first, last, x, y, w) {
  c.fillStyle = "rgba(31,111,235,.10)";
  for (let t = first; t < last; t += 1) {
    if (floor[t] === null || ceiling[t] === null || floor[t] > ceiling[t]) continue;
    const top = y(ceiling[t]);
    c.fillRect(x(t), top, w, Math.max(1, y(floor[t]) - top));
  }
}

// A line with one level a step.
function steps(c, values, start, first, last, x, y, w, colour, thick) {
  c.strokeStyle = colour;
  c.lineWidth = thick;
  c.lineJoin = "round";
  c.beginPath();
  let open = false;
  if (first === 0 && start !== null) {
    c.moveTo(x(0) - 6, y(start));
    c.lineTo(x(0), y(start));
    open = true;
  }
  for (let t = first; t < last; t += 1) {
    if (values[t] === null) open = false;
    else {
      c[open ? "lineTo" : "moveTo"](x(t), y(values[t]));
      c.lineTo(x(t) + w, y(values[t]));
      open = true;
    }
  }
  c.stroke();
}

function drawAxis(c, low, high, y, width) {
  c.font = "10px system-ui, sans-serif";
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillStyle = "#5b6b7b";
  const ends = [low + 0.07 * (high - low), high - 0.07 * (high - low)];
  const middle = low < 0 && high > 0 ? 0 : (low + high) / 2;
  const room = ends.every((value) => Math.abs(y(value) - y(middle)) > 11);
  for (const value of room ? [middle, ...ends] : ends) c.fillText(number(value, 2), LABEL - 8, y(value));
  c.fillStyle = "#dde3ea";
  c.fillRect(LABEL - 1, TOP - 6, 1, HEIGHT);
  if (low < 0 && high > 0) c.fillRect(LABEL, y(0) - 0.5, width, 1);
}

function drawTitle(c, title, n) {
  c.textAlign = "left";
  c.font = "600 12px system-ui, sans-serif";
  c.fillStyle = X;
  c.fillText(title, 12, 12);
  let at = 26 + c.measureText(title).width;
  c.font = "12px system-ui, sans-serif";
  for (const [colour, name] of [[X, "state x"], [S, "floor s"], [R, n === 1 ? "ceiling r" : "row of R"]]) {
    c.fillStyle = colour;
    c.fillRect(at, 10.5, 16, 3);
    c.fillStyle = "#5b6b7b";
    c.fillText(name, at + 21, 12);
    at += 36 + c.measureText(name).width;
  }
  if (n > 1) return;
  c.fillStyle = "rgba(31,111,235,.15)";
  c.fillRect(at, 7, 16, 10);
  c.fillStyle = "#5b6b7b";
  c.fillText("between them x is kept", at + 21, 12);
}
