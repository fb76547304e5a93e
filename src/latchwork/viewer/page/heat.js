// Heat maps of states: what is visible is painted on a canvas that stays in place while the stage scrolls.
import { extent } from "./data.js";

export const LABEL = 64; // width of the names at the left
const INK = "#1c2733", LOW = [31, 111, 235], MIDDLE = [247, 248, 250], HIGH = [217, 115, 13];

// A canvas of this size in CSS pixels, ready to be painted on anew.
export function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const size = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) {
    [canvas.width, canvas.height] = size;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, width, height);
  return c;
}

// One pixel a state and step. `scale` "layer": symmetric around zero over the layer; "unit": from lowest to highest.
export function paintStates(layer, order, steps, scale) {
  const image = document.createElement("canvas");
  [image.width, image.height] = [Math.max(1, steps), Math.max(1, order.length)];
  const c = image.getContext("2d");
  const pixels = c.createImageData(image.width, image.height);
  const most = Math.max(...extent(layer.x).map(Math.abs)) || 1;
  order.forEach((row, y) => {
    const values = layer.x[row];
    let [low, high] = [-most, most];
    if (scale === "unit") [low, high] = extent([values]);
    const span = high - low;
    for (let t = 0, at = 4 * y * image.width; t < steps; t += 1, at += 4) {
      const value = values[t];
      const place = value === null || low === high ? 0 : (2 * (value - low)) / span - 1;
      const end = place < 0 ? LOW : HIGH, far = value === null ? 0 : Math.abs(place);
      for (let k = 0; k < 3; k += 1) pixels.data[at + k] = MIDDLE[k] + (end[k] - MIDDLE[k]) * far;
      pixels.data[at + 3] = value === null ? 60 : 255;
    }
  });
  c.putImageData(pixels, 0, 0);
  return { image, low: -most, high: most };
}

// view: left (scrolled), width, w and h of a cell, steps, rows [from, to) that are visible, chosen {step, row}, where row is −1 in the other layers.
export function drawHeat(canvas, map, view) {
  const { w, h, left, width } = view, { order, layer, image, degree } = map;
  const c = prepare(canvas, width, order.length * h);
  const first = Math.max(0, Math.floor(left / w)), last = Math.min(view.steps, Math.ceil((left + width - LABEL) / w));
  const x = (t) => LABEL + t * w - left;
  c.save();
  c.beginPath();
  c.rect(LABEL, 0, width - LABEL, order.length * h);
  c.clip();
  if (last > first) {
    c.imageSmoothingEnabled = false;
    c.drawImage(image, first, 0, last - first, order.length, x(first), 0, (last - first) * w, order.length * h);
    drawLines(c, order.length, degree, h, x(first), x(last));
    drawMarks(c, layer, order, view, first, last, x);
  }
  drawChosen(c, map, view, x);
  c.restore();
  drawNames(c, order, degree, view);
}

function drawLines(c, rows, degree, h, from, to) {
  if (h < 6) return;
  for (let row = 1; row < rows; row += 1) {
    const border = row % degree === 0;
    c.fillStyle = border ? "#fff" : "rgba(255,255,255,.4)";
    c.fillRect(from, row * h - 0.5, to - from, border && degree > 1 ? 2 : 1);
  }
}

function drawMarks(c, layer, order, view, first, last, x) {
  const { w, h } = view;
  if (w < 4) return;
  const size = Math.max(1.5, Math.min(w * 0.3, h * 0.34, 5));
  const [threads, marks] = [new Path2D(), new Path2D()];
  for (let y = view.from; y < Math.min(view.to, order.length); y += 1) {
    const flags = layer.flags[order[y]], middle = (y + 0.5) * h;
    for (let t = first; t < last; t += 1) {
      const at = x(t) + w / 2;
      if (flags[t] === "k") threads.rect(t ? at - w : at - w / 2, middle - 0.5, t ? w : w / 2, 1);
      else if (flags[t] === "s") triangle(marks, at, middle, size, -1);
      else if (flags[t] === "r") triangle(marks, at, middle, size, 1);
      else diamond(marks, at, middle, size);
    }
  }
  c.fillStyle = "rgba(28,39,51,.5)";
  c.fill(threads);
  c.fillStyle = INK;
  c.globalAlpha = w < 8 ? 0.55 : 0.85;
  c.fill(marks);
  c.globalAlpha = 1;
}

function triangle(path, x, y, size, down) {
  path.moveTo(x - size, y - down * size * 0.8);
  path.lineTo(x + size, y - down * size * 0.8);
  path.lineTo(x, y + down * size * 0.8);
  path.closePath();
}

function diamond(path, x, y, size) {
  path.moveTo(x - size, y);
  path.lineTo(x, y - size);
  path.lineTo(x + size, y);
  path.lineTo(x, y + size);
  path.closePath();
}

function drawChosen(c, map, view, x) {
  const { w, h } = view, at = x(view.chosen.step);
  c.strokeStyle = "rgba(28,39,51,.35)";
  c.lineWidth = 1;
  c.strokeRect(at + 0.5, -1, Math.max(1, w - 1), map.order.length * h + 2);
  const y = map.order.indexOf(view.chosen.row);
  if (y < 0) return;
  c.strokeStyle = INK;
  c.lineWidth = 1.5;
  c.strokeRect(x(0), y * h, view.steps * w, h);
  c.lineWidth = 2.5;
  c.strokeRect(at, y * h, Math.max(2, w), h);
}

function drawNames(c, order, degree, view) {
  const { h } = view, every = Math.max(1, Math.ceil(11 / (h * degree)));
  c.font = "10px system-ui, sans-serif";
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillStyle = "#5b6b7b";
  for (let y = 0; y < order.length; y += every * degree) {
    c.fillText(String(order[y] / degree), LABEL - 8, (y + degree / 2) * h + 0.5);
  }
  const unit = Math.floor(view.chosen.row / degree), at = order.indexOf(unit * degree);
  if (at < 0) return;
  const middle = (at + degree / 2) * h;
  c.clearRect(0, middle - 9, LABEL - 4, 18);
  c.fillStyle = INK;
  c.fillText(`unit ${unit}`, LABEL - 8, middle + 0.5);
}
