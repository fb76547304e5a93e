// What all parts of the page share.
export const app = {
  facts: null, // what the server says about the model
  names: null, // how tokens and classes are read
  trace: null, // see data.js
  maps: [], // of each layer: the order of its rows and the picture of its states
  chosen: null, // {layer, row, step}
  picked: false, // whether a person chose the unit
  cell: { w: 44, h: 11 }, // size of a state at a step, in pixels
  narrowest: 44, // width at which tokens are still to be read
  zoomed: false, // whether a person chose the width
};

export const byId = (id) => document.getElementById(id);

export function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function button(text, act) {
  const node = element("button", "", text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}
