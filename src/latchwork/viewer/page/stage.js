// The stage: heat maps that scroll together, what is chosen in them, and the cards beside them.
import { app, byId, element } from "./app.js";
import { bestLatch, number, orderRows } from "./data.js";
import { LABEL, drawHeat, paintStates } from "./heat.js";
import { HEIGHT as PLOT, drawPlot } from "./plot.js";
import { drawStrip, sentence, stepTable } from "./strip.js";
import { stepCard, tipText, unitCard, unitTitle, verdict } from "./explain.js";

const stage = byId("stage"), tip = byId("tip");
const STRIP = 94, NARROWEST = 2, WIDE = 56, WIDEST = 72;
let asked = false; // whether a frame is to be drawn

export function setUpStage() {
  byId("layers").append(...Array.from({ length: app.facts.layers }, (_, l) => layerSection(l)));
  const on = (id, kind, act) => byId(id).addEventListener(kind, act);
  on("zoom", "input", () => zoom(+byId("zoom").value));
  on("fit", "click", () => zoom(fitting()));
  on("scale", "change", repaint);
  on("order", "change", () => { repaint(); reveal(); });
  on("table", "toggle", fillTable);
  on("stage", "scroll", soon);
  on("stage", "keydown", move);
  new ResizeObserver(soon).observe(stage);
}

function layerSection(l) {
  const section = element("section", "layer"), title = element("h2", "", `Layer ${l + 1}`), scale = element("small");
  const canvas = element("canvas"), low = element("span"), high = element("span");
  [low.id, high.id, canvas.id] = [`low-${l}`, `high-${l}`, `layer-${l}`];
  scale.append(low, element("i"), high);
  title.append(scale);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `States of the units of layer ${l + 1} over time`);
  canvas.addEventListener("pointermove", (event) => showTip(event, l));
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => choose(placeOf(event, l)));
  section.append(title, canvas);
  return section;
}

// The trace is another one. `follows`: go to its last step.
export function changed(follows) {
  const steps = app.trace.tokens.length;
  if (!steps) app.chosen = null;
  else if (!app.chosen) app.chosen = { ...bestLatch(app.trace), step: steps - 1 };
  else {
    app.chosen.step = follows ? steps - 1 : Math.min(app.chosen.step, steps - 1);
    const { layer, row, step } = app.chosen;
    if (!app.picked && app.trace.layers[layer].flags[row][step] !== "k") Object.assign(app.chosen, bestLatch(app.trace));
  }
  byId("empty").hidden = steps > 0;
  byId("wide").style.visibility = steps ? "visible" : "hidden";
  repaint();
  if (follows) reveal();
  fillTable();
}

function repaint() {
  const steps = app.trace.tokens.length, scale = byId("scale").value;
  app.maps = app.trace.layers.map((layer, l) => {
    const order = orderRows(app.trace, l, byId("order").value);
    const painted = paintStates(layer, order, steps, scale);
    byId(`low-${l}`).textContent = scale === "unit" ? "lowest of the unit" : number(painted.low, 2);
    byId(`high-${l}`).textContent = scale === "unit" ? "highest of the unit" : number(painted.high, 2);
    return { layer, order, degree: app.facts.degree, ...painted };
  });
  setWidth();
  describe();
  draw();
}

// The width of columns that fill the stage.
function fitting() {
  return Math.floor((stage.clientWidth - LABEL - 12) / Math.max(1, app.trace.tokens.length));
}

function setWidth() {
  if (!app.zoomed) app.cell.w = Math.max(app.narrowest, Math.min(WIDE, fitting()));
  byId("zoom").value = app.cell.w;
  byId("wide").style.width = `${LABEL + app.trace.tokens.length * app.cell.w + 12}px`;
}

function draw() {
  const { trace, chosen, cell, maps } = app;
  const view = { ...cell, left: stage.scrollLeft, width: stage.clientWidth, steps: trace.tokens.length, chosen };
  if (!chosen) return;
  drawStrip(byId("strip-cells"), byId("strip-canvas"), trace, app.names, view, (step) => choose({ step }));
  const top = stage.scrollTop, bottom = top + stage.clientHeight;
  maps.forEach((map, l) => {
    const canvas = byId(`layer-${l}`), height = map.order.length * cell.h;
    canvas.style.height = `${height}px`;
    const at = canvas.offsetTop;
    if (at > bottom || at + height < top) return;
    const rows = { from: Math.max(0, Math.floor((top - at) / cell.h)), to: Math.ceil((bottom - at) / cell.h) };
    const here = { step: chosen.step, row: chosen.layer === l ? chosen.row : -1 };
    drawHeat(canvas, map, { ...view, ...rows, chosen: here });
  });
  drawPlot(byId("plot-canvas"), trace, { ...chosen, title: unitTitle(chosen.layer, chosen.row, trace.degree) }, view);
}

function soon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function choose(change) {
  if (!change) return;
  app.chosen = { ...app.chosen, ...change };
  app.picked ||= "row" in change;
  describe();
  soon();
}

// The cards at the side, and labels for those who do not see the canvases.
function describe() {
  const { trace, chosen, names } = app, cards = [byId("step-card"), byId("unit-card")];
  if (!chosen) {
    cards.forEach((card) => card.replaceChildren());
    return;
  }
  const { layer, row, step } = chosen, title = unitTitle(layer, row, trace.degree);
  cards[0].replaceChildren(...stepCard(trace, names, step));
  cards[1].replaceChildren(...unitCard(trace, layer, row, step));
  const done = verdict(trace.layers[layer], row, step, trace.degree);
  byId("plot-canvas").setAttribute("aria-label", `${title} over ${trace.tokens.length} steps. At step ${step + 1}: ${done}`);
}

function fillTable() {
  byId("table-box").replaceChildren(...(byId("table").open ? [stepTable(app.trace, app.names)] : []));
}

// Scroll so that the chosen step and unit are to be seen.
function reveal() {
  if (!app.chosen) return;
  const { chosen, cell } = app, x = chosen.step * cell.w, room = stage.clientWidth - LABEL - 12;
  if (x < stage.scrollLeft) stage.scrollLeft = x;
  else if (x + cell.w > stage.scrollLeft + room) stage.scrollLeft = x + cell.w - room;
  const y = byId(`layer-${chosen.layer}`).offsetTop + app.maps[chosen.layer].order.indexOf(chosen.row) * cell.h;
  const low = stage.scrollTop + STRIP, high = stage.scrollTop + stage.clientHeight - PLOT;
  if (y < low) stage.scrollTop = y - STRIP - 24;
  else if (y + cell.h > high) stage.scrollTop = y + cell.h - stage.clientHeight + PLOT + 3 * cell.h;
  soon();
}

// Columns of another width; the middle of what is seen stays where it is.
function zoom(w) {
  const half = (stage.clientWidth - LABEL) / 2, middle = (stage.scrollLeft + half) / app.cell.w;
  app.zoomed = true;
  app.cell.w = Math.max(NARROWEST, Math.min(WIDEST, w));
  setWidth();
  stage.scrollLeft = middle * app.cell.w - half;
  soon();
}

function placeOf(event, l) {
  const box = event.currentTarget.getBoundingClientRect(), right = event.clientX - box.left - LABEL;
  const step = Math.floor((right + stage.scrollLeft) / app.cell.w);
  const row = app.maps[l].order[Math.floor((event.clientY - box.top) / app.cell.h)];
  return row !== undefined && right >= 0 && step < app.trace.tokens.length ? { layer: l, row, step } : null;
}

function showTip(event, l) {
  const place = placeOf(event, l);
  tip.hidden = !place;
  if (!place) return;
  tip.textContent = tipText(app.trace, app.names, place.layer, place.row, place.step);
  const beyond = event.clientX + tip.offsetWidth + 24 > window.innerWidth;
  tip.style.left = `${beyond ? event.clientX - tip.offsetWidth - 14 : event.clientX + 14}px`;
  tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 6)}px`;
}

function move(event) {
  if (!app.chosen || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = app.trace.tokens.length - 1, { layer, row, step } = app.chosen;
  const places = app.maps.flatMap((map, l) => map.order.map((r) => ({ layer: l, row: r })));
  const at = places.findIndex((place) => place.layer === layer && place.row === row);
  const change = {
    ArrowLeft: { step: Math.max(0, step - 1) },
    ArrowRight: { step: Math.min(last, step + 1) },
    ArrowUp: places[Math.max(0, at - 1)],
    ArrowDown: places[Math.min(places.length - 1, at + 1)],
    Home: { step: 0 },
    End: { step: last },
  }[event.key];
  if (!change) return;
  event.preventDefault();
  choose(change);
  reveal();
}
