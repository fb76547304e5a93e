// The page: what is typed is traced, what is traced is drawn.
import { app, button, byId } from "./app.js";
import { cut, emptyTrace, extend } from "./data.js";
import { ask, commonStart, fillVocabulary, finished, itemsOf } from "./input.js";
import { changed, setUpStage } from "./stage.js";

const field = byId("tokens");
const LARGEST_VOCABULARY = 128, LONGEST_ADDRESS = 1500;

let items = []; // what has been traced
let sample = 0; // the next example
let busy = false, again = false, typing = false;

// Trace what is in the field; while an answer is awaited, the newest content waits.
async function update(whileTyping) {
  typing = whileTyping;
  again = true;
  if (busy) return;
  busy = true;
  while (again) {
    again = false;
    await traceField().catch((error) => say(error.message));
  }
  busy = false;
}

async function traceField() {
  const { facts, trace, chosen } = app;
  const value = field.value.toWellFormed ? field.value.toWellFormed() : field.value;
  const all = itemsOf(value, facts.text), next = facts.text ? all : finished(all, value, facts.tokens, typing);
  if (next.length > facts.most_tokens) {
    throw new Error(`at most ${facts.most_tokens} tokens of this model are shown, these are ${next.length}`);
  }
  const skip = commonStart(items, next);
  let problem = null;
  if (next.length > skip) {
    const answer = await ask("api/trace", facts.text ? { text: value, skip } : { tokens: next, skip, partial: true });
    extend(trace, answer);
    problem = answer.problem;
  } else cut(trace, next.length);
  const follows = !chosen || chosen.step >= items.length - 1;
  items = next.slice(0, trace.tokens.length);
  if (problem) explain(problem);
  else say("");
  remember(value);
  changed(follows);
}

// In the address, so that it can be passed on.
function remember(value) {
  const query = new URLSearchParams(app.facts.text ? { text: value } : { tokens: items.join(" ") }).toString();
  const short = items.length && query.length < LONGEST_ADDRESS;
  history.replaceState(null, "", short ? `?${query}` : location.pathname);
}

// A token that is none, and buttons with what may be meant.
function explain({ problem, position, near }) {
  const use = (name) => () => {
    const typed = itemsOf(field.value, false);
    typed[position - 1] = name;
    write(typed.join(" "));
  };
  say(`${problem}${near.length ? "; did you mean" : ""}`, near.map((name) => button(name, use(name))));
}

function say(text, choices = []) {
  byId("message").textContent = text;
  byId("message").className = text ? "error" : "";
  byId("near").replaceChildren(...choices);
}

function write(value) {
  field.value = value;
  return update(false);
}

async function example() {
  const length = Math.min(Math.max(1, Math.floor(+byId("length").value) || 1), app.facts.most_tokens);
  byId("length").value = length;
  try {
    const found = await ask(`api/example?sample=${sample}&length=${length}`);
    sample += 1;
    [app.chosen, app.picked] = [null, false];
    await write(app.facts.text ? found.text : found.tokens.join(" "));
  } catch (error) {
    say(error.message);
  }
}

function append(name) {
  write(`${field.value.trim()} ${name}`.trim());
}

function removeLast() {
  if (app.facts.text) write(Array.from(field.value).slice(0, -1).join(""));
  else write(itemsOf(field.value, false).slice(0, -1).join(" "));
}

// Bytes as people read them.
function readable(name) {
  return { "\\x20": "␣", "\\x0a": "⏎", "\\x09": "⇥" }[name] ?? name;
}

function setUp() {
  const { facts } = app, labels = facts.text ? facts.tokens.map(readable) : facts.tokens;
  app.names = { tokens: labels, classes: facts.text ? facts.classes.map(readable) : facts.classes };
  app.trace = emptyTrace(facts);
  const rows = facts.units * facts.degree;
  const longest = facts.text ? 4 : Math.max(...[...facts.tokens, ...facts.classes].map((name) => name.length));
  app.narrowest = Math.max(38, Math.min(72, 14 + 7.5 * longest));
  app.cell.h = rows <= 56 ? 11 : rows <= 128 ? 8 : 6;
  byId("task").textContent = facts.task;
  document.title = `latchwork view: ${facts.task}`;
  const units = `${facts.units} units${facts.degree > 1 ? ` of degree ${facts.degree}` : ""}`;
  const layers = `${facts.layers} layer${facts.layers > 1 ? "s" : ""} of ${units}`;
  const parameters = `${facts.parameters.toLocaleString("en")} parameters`;
  byId("facts").textContent = [facts.run, facts.checkpoint, parameters, layers].join(" · ");
  byId("tokens-label").textContent = facts.text ? "Text, read as bytes" : "Tokens, by name or number";
  byId("legend-lowered").hidden = facts.degree > 1;
  byId("legend-moved").hidden = facts.degree === 1;
  byId("how-vector").hidden = facts.degree === 1;
  byId("name-want").hidden = !facts.regular;
  byId("length").max = facts.most_tokens;
  if (!facts.text && facts.tokens.length <= LARGEST_VOCABULARY) fillVocabulary(byId("vocabulary"), facts.tokens, append);
}

function listen() {
  const on = (id, kind, act) => byId(id).addEventListener(kind, act);
  on("tokens", "input", () => update(true));
  on("tokens", "change", () => update(false));
  on("example", "click", example);
  on("back", "click", removeLast);
  on("clear", "click", () => {
    write("");
    field.focus();
  });
}

async function start() {
  app.facts = await ask("api/model");
  setUp();
  setUpStage();
  listen();
  changed(false);
  const given = new URLSearchParams(location.search).get(app.facts.text ? "text" : "tokens");
  if (given) await write(given);
  else await example();
}

start().catch((error) => say(error.message));
