// The page: what is typed is traced, what is traced is drawn.
import { bestLatch, cut, emptyTrace, extend, isRight, number, orderRows } from "./data.js";
import { LABEL, drawHeat, paintStates } from "./heat.js";
import { HEIGHT as PLOT, drawPlot } from "./plot.js";
import { drawStrip, element, sentence, stepTable } from "./strip.js";
import { stepCard, tipText, unitCard, unitTitle, verdict } from "./explain.js";
import { ask, commonStart, fillVocabulary, finished, itemsOf } from "./input.js";

const byId = (id) => document.getElementById(id);
const field = byId("tokens"), stage = byId("stage"), tip = byId("tip");
const SMALL_VOCABULARY = 128, LONGEST_ADDRESS = 1500, STRIP = 94;

let facts, names, trace, maps = [], items = [];
let chosen = null; // {layer, row, step}
let cell = { w: 44, h: 11 };
let sample = 0, busy = false, again = false, wanted = false;

// ---- asking

async function update(typing) {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do {
      again = false;
      await traceField(typing);
    } while (again);
  } catch (error) {
    complain(error);
  } finally {
    busy = false;
  }
}

async function traceField(typing) {
  const value = field.value.toWellFormed ? field.value.toWellFormed() : field.value;
  const all = itemsOf(value, facts.text), next = facts.text ? all : finished(all, value, facts.tokens, typing);
  if (next.length > facts.most_tokens) {
    throw new Error(`at most ${facts.most_tokens} tokens of this model are shown, there are ${next.length}`);
  }
  const skip = commonStart(items, next);
  if (next.length > skip) {
    const answer = await ask("api/trace", facts.text ? { text: value, skip } : { tokens: next, skip });
    extend(trace, answer);
  } else cut(trace, next.length);
  const follows = !chosen || chosen.step >= items.length - 1;
  items = next;
  say("");
  remember(value);
  changed(follows);
}

function remember(value) {
  const query = new URLSearchParams({ [facts.text ? "text" : "tokens"]: facts.text ? value : items.join(" ") });
  const address = items.length && String(query).length < LONGEST_ADDRESS ? `?${query}` : location.pathname;
  history.replaceState(null, "", address);
}

function say(text, near = []) {
  byId("message").textContent = text;
  byId("message").className = text ? "error" : "";
  byId("near").replaceChildren(...near.map(({ name, use }) => {
    const button = element("button", "", name);
    button.type = "button";
    button.addEventListener("click", use);
    return button;
  }));
}

function complain(error) {
  const replace = (name) => () => {
    const typed = itemsOf(field.value, false);
    typed[error.position - 1] = name;
    write(typed.join(" "));
  };
  say(error.message, (error.near ?? []).map((name) => ({ name, use: replace(name) })));
}

function write(value) {
  field.value = value;
  update(false);
}

async function example() {
  try {
    const length = Math.min(Math.max(1, Math.floor(+byId("length").value) || 30), facts.most_tokens);
    byId("length").value = length;
    const found = await ask(`api/example?sample=${sample}&length=${length}`);
    sample += 1;
    chosen = null;
    write(facts.text ? found.text : found.tokens.join(" "));
  } catch (error) {
    complain(error);
  }
}

function append(name) {
  if (facts.text) write(field.value + name);
  else write(`${field.value.trim()} ${name}`.trim());
}

function removeLast() {
  if (facts.text) write(Array.from(field.value).slice(0, -1).join(""));
  else write(itemsOf(field.value, false).slice(0, -1).join(" "));
}

// ---- drawing

// The trace is another one: choose a step and a unit, paint the states.
function changed(follows) {
  const steps = trace.tokens.length;
  if (!steps) chosen = null;
  else if (!chosen) chosen = { ...bestLatch(trace), step: steps - 1 };
  else chosen.step = follows ? steps - 1 : Math.min(chosen.step, steps - 1);
  byId("empty").hidden = steps > 0;
  byId("wide").style.visibility = steps ? "visible" : "hidden";
  repaint();
  if (follows && steps) reveal();
  fillTable();
}

function repaint() {
  const steps = trace.tokens.length;
  maps = trace.layers.map((layer, l) => {
    const order = orderRows(trace, l, byId("order").value);
    const painted = paintStates(layer, order, steps, byId("scale").value);
    const each = byId("scale").value === "unit";
    byId(`low-${l}`).textContent = each ? "lowest of the unit" : number(painted.low, 2);
    byId(`high-${l}`).textContent = each ? "highest of the unit" : number(painted.high, 2);
    return { layer, order, degree: facts.degree, ...painted };
  });
  byId("wide").style.width = `${LABEL + steps * cell.w + 12}px`;
  describe();
  draw();
}

function draw() {
  const view = {
    ...cell, left: stage.scrollLeft, width: stage.clientWidth, steps: trace.tokens.length, chosen,
  };
  if (!view.steps || !chosen) return;
  drawStrip(byId("strip-cells"), byId("strip-canvas"), trace, names, view, (step) => choose({ step }));
  const top = stage.scrollTop, bottom = top + stage.clientHeight;
  maps.forEach((map, l) => {
    const canvas = byId(`layer-${l}`), at = canvas.offsetTop, height = map.order.length * cell.h;
    canvas.style.height = `${height}px`;
    if (at > bottom || at + height < top) return;
    const rows = { from: Math.max(0, Math.floor((top - at) / cell.h)), to: Math.ceil((bottom - at) / cell.h) };
    const here = { step: chosen.step, row: chosen.layer === l ? chosen.row : -1 };
    drawHeat(canvas, map, { ...view, ...rows, chosen: here });
  });
  const unit = { layer: chosen.layer, row: chosen.row, title: unitTitle(chosen.layer, chosen.row, facts.degree) };
  drawPlot(byId("plot-canvas"), trace, unit, view);
}

function soon() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => { wanted = false; draw(); });
}

function choose(change) {
  chosen = { ...chosen, ...change };
  describe();
  soon();
}

// The cards at the side, and labels for those who do not see the canvases.
function describe() {
  const cards = [byId("step-card"), byId("unit-card")];
  if (!chosen) { cards.forEach((card) => card.replaceChildren()); return; }
  const { layer: l, row, step } = chosen;
  cards[0].replaceChildren(...stepCard(trace, names, step));
  cards[1].replaceChildren(...unitCard(trace, l, row, step));
  byId("plot-canvas").setAttribute("aria-label", `${unitTitle(l, row, facts.degree)}: state, floor s and ceiling r over ` +
    `${trace.tokens.length} steps. ${sentence(trace, names, step)}. ${verdict(trace.layers[l], row, step, facts.degree) ?? ""}`);
}

function fillTable() {
  byId("table-box").replaceChildren(...(byId("table").open ? [stepTable(trace, names)] : []));
}

// Scroll so that the chosen step and unit are to be seen.
function reveal() {
  const x = chosen.step * cell.w, room = stage.clientWidth - LABEL - 12;
  if (x < stage.scrollLeft) stage.scrollLeft = x;
  else if (x + cell.w > stage.scrollLeft + room) stage.scrollLeft = x + cell.w - room;
  const y = byId(`layer-${chosen.layer}`).offsetTop + maps[chosen.layer].order.indexOf(chosen.row) * cell.h;
  const low = stage.scrollTop + STRIP, high = stage.scrollTop + stage.clientHeight - PLOT;
  if (y < low) stage.scrollTop = y - STRIP - 24;
  else if (y + cell.h > high) stage.scrollTop = y + cell.h - stage.clientHeight + PLOT + 8;
  soon();
}

function zoom(w) {
  const middle = (stage.scrollLeft + (stage.clientWidth - LABEL) / 2) / cell.w;
  cell.w = Math.max(2, Math.min(72, w));
  byId("zoom").value = cell.w;
  byId("wide").style.width = `${LABEL + trace.tokens.length * cell.w + 12}px`;
  stage.scrollLeft = middle * cell.w - (stage.clientWidth - LABEL) / 2;
  soon();
}

// ---- choosing

function placeOf(event, l) {
  const box = event.currentTarget.getBoundingClientRect();
  const step = Math.floor((event.clientX - box.left - LABEL + stage.scrollLeft) / cell.w);
  const row = maps[l]?.order[Math.floor((event.clientY - box.top) / cell.h)];
  const inside = row !== undefined && event.clientX - box.left >= LABEL && step < trace.tokens.length;
  return inside ? { layer: l, row, step } : null;
}

function showTip(event, l) {
  const place = placeOf(event, l);
  tip.hidden = !place;
  if (!place) return;
  tip.textContent = tipText(trace, names, place.layer, place.row, place.step);
  const beyond = event.clientX + tip.offsetWidth + 24 > window.innerWidth;
  tip.style.left = `${beyond ? event.clientX - tip.offsetWidth - 14 : event.clientX + 14}px`;
  tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 6)}px`;
}

function move(event) {
  if (!chosen || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = trace.tokens.length - 1, rows = maps.flatMap((map, layer) => map.order.map((row) => ({ layer, row })));
  const at = rows.findIndex((place) => place.layer === chosen.layer && place.row === chosen.row);
  const changes = {
    ArrowLeft: { step: Math.max(0, chosen.step - 1) },
    ArrowRight: { step: Math.min(last, chosen.step + 1) },
    ArrowUp: rows[Math.max(0, at - 1)],
    ArrowDown: rows[Math.min(rows.length - 1, at + 1)],
    Home: { step: 0 },
    End: { step: last },
  };
  if (!changes[event.key]) return;
  event.preventDefault();
  choose(changes[event.key]);
  reveal();
}

// ---- start

function addLayer(_, l) {
  const section = element("section", "layer"), title = element("h2", "", `Layer ${l + 1}`), scale = element("small");
  const canvas = element("canvas"), low = element("span"), high = element("span");
  [low.id, high.id, canvas.id] = [`low-${l}`, `high-${l}`, `layer-${l}`];
  scale.append(low, element("i"), high);
  title.append(scale);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `States of the units of layer ${l + 1} over time`);
  canvas.addEventListener("pointermove", (event) => showTip(event, l));
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => { const place = placeOf(event, l); if (place) choose(place); });
  section.append(title, canvas);
  return section;
}

// Bytes as people read them.
function readable(name) {
  return { "\\x20": "␣", "\\x0a": "⏎", "\\x09": "⇥" }[name] ?? name;
}

function setUp() {
  const labels = facts.text ? facts.tokens.map(readable) : facts.tokens;
  names = { tokens: labels, classes: facts.text ? facts.classes.map(readable) : facts.classes };
  const rows = facts.units * facts.degree, longest = Math.max(...labels.map((name) => name.length));
  cell = { w: Math.max(38, Math.min(72, 12 + 7.5 * longest)), h: rows <= 56 ? 11 : rows <= 128 ? 8 : 6 };
  byId("zoom").value = cell.w;
  byId("task").textContent = facts.task;
  const units = `${facts.units} units${facts.degree > 1 ? ` of degree ${facts.degree}` : ""}`;
  byId("facts").textContent = `${facts.run} · ${facts.checkpoint} · ${facts.parameters.toLocaleString("en")} parameters · ` +
    `${facts.layers} layer${facts.layers > 1 ? "s" : ""} of ${units}`;
  document.title = `latchwork view: ${facts.task}`;
  byId("tokens-label").textContent = facts.text ? "Text, read as bytes" : "Tokens, by name or number, with spaces between";
  for (const id of ["legend-lowered", "legend-moved"]) byId(id).hidden = (facts.degree > 1) === (id === "legend-lowered");
  byId("name-want").hidden = !facts.regular;
  byId("length").max = facts.most_tokens;
  byId("layers").append(...Array.from({ length: facts.layers }, addLayer));
  if (!facts.text && facts.tokens.length <= SMALL_VOCABULARY) {
    fillVocabulary(byId("vocabulary"), facts.tokens, labels, append);
  }
  trace = emptyTrace(facts);
}

function listen() {
  const on = (id, kind, act) => byId(id).addEventListener(kind, act);
  on("tokens", "input", () => update(true));
  on("tokens", "change", () => update(false));
  on("example", "click", example);
  on("back", "click", removeLast);
  on("clear", "click", () => { write(""); field.focus(); });
  on("zoom", "input", () => zoom(+byId("zoom").value));
  on("fit", "click", () => zoom(Math.floor((stage.clientWidth - LABEL - 12) / Math.max(1, trace.tokens.length))));
  on("scale", "change", repaint);
  on("order", "change", () => { repaint(); if (chosen) reveal(); });
  on("table", "toggle", fillTable);
  stage.addEventListener("scroll", soon);
  stage.addEventListener("keydown", move);
  new ResizeObserver(soon).observe(stage);
}

async function start() {
  facts = await ask("api/model");
  setUp();
  listen();
  changed(false);
  const query = new URLSearchParams(location.search), given = query.get(facts.text ? "text" : "tokens");
  if (given) write(given);
  else await example();
}

start().catch(complain);
