"use strict";

const content = JSON.parse(document.getElementById("record").textContent);
const report = document.getElementById("report");
const tip = document.getElementById("tip");

// ---------------------------------------------------------------- building blocks

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// The browser would show an svg's title as a second tooltip over ours, so it steps aside while the pointer is inside.
function picture(width, height, title, ...children) {
  const name = shape("title", {}, title);
  return shape("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title,
    onpointerenter: () => { name.textContent = ""; },
    onpointerleave: () => { name.textContent = title; hideTip(); },
  }, name, children);
}

function panel(name, title, lede, ...controls) {
  const section = element("section", { "data-panel": name },
    element("div", { class: "bar" }, element("div", {}, element("h2", {}, title), lede ? element("p", { class: "lede" }, lede) : null), controls));
  report.append(section);
  return section;
}

function showTip(event, title, lines) {
  tip.replaceChildren(element("b", {}, title), ...lines);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
  tip.style.left = Math.max(6, left) + "px";
  tip.style.top = Math.max(6, Math.min(event.clientY + 14, innerHeight - box.height - 6)) + "px";
}
function hideTip() { tip.hidden = true; }
const tipLine = (index, name, value) =>
  element("div", {}, index === null ? null : swatch(index), element("span", {}, name), element("span", {}, value));
const explained = (node, title, lines) => {
  node.addEventListener("pointermove", (event) => showTip(event, title, lines()));
  node.addEventListener("pointerleave", hideTip);
  return node;
};

// ---------------------------------------------------------------- words and numbers

const known = (value) => typeof value === "number" && Number.isFinite(value);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;
const extent = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const sentence = (words) => words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words[words.length - 1];
const shortened = (text, length) => [...text].length > length ? [...text].slice(0, length - 1).join("") + "…" : text;
const spelled = (value) => typeof value === "string" ? value : JSON.stringify(value);

function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: size >= 1e4 });
}
function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (value >= size) return number(value / size) + " " + unit;
  return number(value) + " B";
}
const seconds = (value) => number(value) + " s";

// ---------------------------------------------------------------- marks: colour, dash and shape tell methods apart together

const DASHES = [null, "7 4", "2 4", "9 3 2 3"];
const colour = (index) => `var(--c${index % 7})`;
const dash = (index) => DASHES[(index + Math.floor(index / 7)) % DASHES.length];
function marker(index, x, y, size) {
  const outlines = [
    null,
    [[-1, -1], [1, -1], [1, 1], [-1, 1]],
    [[0, -1.3], [1.2, 0.9], [-1.2, 0.9]],
    [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
    [[0, 1.3], [1.2, -0.9], [-1.2, -0.9]],
  ];
  const outline = outlines[index % outlines.length];
  const paint = { fill: colour(index), stroke: "var(--paper)", "stroke-width": 1 };
  if (!outline) return shape("circle", { cx: x, cy: y, r: size, ...paint });
  return shape("polygon", { points: outline.map(([dx, dy]) => `${x + dx * size},${y + dy * size}`).join(" "), ...paint });
}
function swatch(index) {
  return shape("svg", { class: "swatch", viewBox: "0 0 30 12", "aria-hidden": "true" },
    shape("line", { x1: 1, x2: 29, y1: 6, y2: 6, stroke: colour(index), "stroke-width": 2.2, "stroke-dasharray": dash(index) }),
    marker(index, 15, 6, 3.6));
}

const dot = (index) => shape("svg", { class: "swatch dot", viewBox: "0 0 12 12", "aria-hidden": "true" }, marker(index, 6, 6, 4));

// ---------------------------------------------------------------- scales

function scale([low, high], [from, to], logarithmic) {
  const turn = logarithmic ? Math.log10 : (value) => value;
  const [first, last] = [turn(low), turn(high)];
  return (value) => last === first ? (from + to) / 2 : from + (turn(value) - first) / (last - first) * (to - from);
}
function ticks([low, high], wanted, logarithmic) {
  if (low === high) return [low];
  if (logarithmic) {
    const exponents = [];
    for (let exponent = Math.ceil(Math.log10(low)); exponent <= Math.log10(high); exponent++) exponents.push(10 ** exponent);
    if (exponents.length >= 2) return exponents.filter((_, place) => place % Math.ceil(exponents.length / wanted) === 0);
    logarithmic = false;
  }
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.8) || rough;
  const result = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9 && result.length < 50; place++) result.push(Number((place * step).toPrecision(12)));
  return result;
}
function padded([low, high], share) {
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  return [low - (high - low) * share, high + (high - low) * share];
}
// Many points are more than a screen can show; the first and the last always stay.
const thinned = (points) => {
  const stride = Math.ceil(points.length / 800);
  return stride < 2 ? points : points.filter((_, place) => place % stride === 0 || place === points.length - 1);
};
const line = (points, x, y) => points.map(([px, py], place) => `${place ? "L" : "M"}${x(px).toFixed(1)},${y(py).toFixed(1)}`).join("");

// Axes, grid and labels around a plot; returns where to draw.
function frame(width, height, options) {
  const { xDomain, yDomain, xWrite, yWrite, xTitle, yTitle, xLog, yLog, right, whole } = options;
  const yTicks = ticks(yDomain, Math.max(2, Math.floor(height / 48)), yLog).filter((value) => !whole || Number.isInteger(value));
  const left = options.left || 12 + 6.6 * Math.max(...yTicks.map((value) => yWrite(value).length), 2);
  const area = { left, right: width - right, top: yTitle ? 24 : 8, bottom: height - (xTitle ? 40 : 22) };
  const x = scale(xDomain, [area.left, area.right], xLog);
  const y = scale(yDomain, [area.bottom, area.top], yLog);
  const parts = [];
  for (const value of options.bare ? [] : yTicks) {
    parts.push(shape("line", { class: "gridline", x1: area.left, x2: area.right, y1: y(value), y2: y(value) }));
    parts.push(shape("text", { x: area.left - 8, y: y(value) + 4, "text-anchor": "end" }, yWrite(value)));
  }
  const widest = Math.max(...ticks(xDomain, 4, xLog).map((value) => xWrite(value).length), 1) * 7 + 26;
  const xTicks = ticks(xDomain, Math.max(2, Math.min(8, Math.floor((area.right - area.left) / widest))), xLog).filter((value) => !options.xWhole || Number.isInteger(value));
  for (const value of xTicks) {
    parts.push(shape("line", { class: "axis", x1: x(value), x2: x(value), y1: area.bottom, y2: area.bottom + 4 }));
    parts.push(shape("text", { x: x(value), y: area.bottom + 17, "text-anchor": "middle" }, xWrite(value)));
  }
  parts.push(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }));
  if (yTitle) parts.push(shape("text", { x: 0, y: 11 }, yTitle));
  if (xTitle) parts.push(shape("text", { x: area.right, y: height - 4, "text-anchor": "end" }, xTitle));
  return { area, x, y, parts };
}

// Moves labels apart until none overlaps, keeping their order.
function spread(labels, gap, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let place = 1; place < labels.length; place++) labels[place].y = Math.max(labels[place].y, labels[place - 1].y + gap);
  const over = labels.length ? labels[labels.length - 1].y - bottom : 0;
  if (over > 0) {
    labels[labels.length - 1].y = bottom;
    for (let place = labels.length - 2; place >= 0; place--) labels[place].y = Math.min(labels[place].y, labels[place + 1].y - gap);
  }
  return labels.filter((label) => label.y >= top - gap);
}

// ---------------------------------------------------------------- points in a plane

const drawable = (place) => place.every(known);

// The plane has one scale for both directions, so that distances look as they are.
function planeFrame(width, places) {
  const [xLow, xHigh] = padded(extent(places.map((place) => place[0])), 0.05), seen = extent(places.map((place) => place[1]));
  // Points on a line stand in the middle of a low picture.
  const low = 0.1 * (xHigh - xLow), [yLow, yHigh] = seen[0] === seen[1] ? [seen[0] - low, seen[1] + low] : padded(seen, 0.07);
  const height = Math.round(Math.max(260, Math.min(560, 60 + (width - 90) * (yHigh - yLow) / (xHigh - xLow))));
  const unit = Math.min((width - 90) / (xHigh - xLow), (height - 64) / (yHigh - yLow));
  const around = (low, high, pixels) => [(low + high - pixels / unit) / 2, (low + high + pixels / unit) / 2];
  return { height, ...frame(width, height, {
    xDomain: around(xLow, xHigh, width - 90), yDomain: around(yLow, yHigh, height - 64), xWrite: number, yWrite: number,
    xTitle: "first principal direction", yTitle: "second principal direction", right: 16, left: 74,
  }) };
}

// Says what is nearest to the pointer.
function nearestTip(svg, width, area, candidates, title, lines) {
  const capture = shape("rect", { class: "capture", x: area.left, y: area.top, width: Math.max(0, area.right - area.left), height: area.bottom - area.top });
  capture.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), ratio = width / box.width;
    const [px, py] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
    let best = null, least = 24 * 24;
    for (const candidate of candidates()) {
      const square = (candidate.at[0] - px) ** 2 + (candidate.at[1] - py) ** 2;
      if (square < least) { least = square; best = candidate; }
    }
    if (best) showTip(event, title(best), lines(best));
    else hideTip();
  });
  capture.addEventListener("pointerleave", hideTip);
  svg.append(capture);
}

// ---------------------------------------------------------------- panels

// A table in a frame of its own that can be scrolled, also by keyboard.
const scrolled = (label, ...children) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, element("table", {}, children));

function masthead(eyebrow, title, deck, facts) {
  document.title = `${title}: Kinfolk report`;
  report.append(element("header", { "data-panel": "masthead" }, element("p", { class: "eyebrow" }, eyebrow), element("h1", {}, title), element("p", { class: "deck" }, deck),
    element("dl", { class: "facts" }, facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, shortened(spelled(value), 240)))))));
}

// Buttons of which one is pressed.
function segments(label, choices, current, choose) {
  const buttons = choices.map(([key, name]) => element("button", { type: "button", "aria-pressed": String(key === current), onclick: (event) => {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button === event.currentTarget)));
    choose(key);
  } }, name));
  return element("span", { class: "segments", role: "group", "aria-label": label }, buttons);
}

// ---------------------------------------------------------------- the page

// Builds the page once, and draws its pictures now and whenever the window gets another width.
function present(build, draw) {
  const beside = `The numbers behind this page are in ${content.numbers ?? "summary.json"} and the csv files beside it.`;
  try {
    build();
    report.append(element("footer", {}, `Written by Kinfolk ${content.version}. ${beside}`));
    draw();
    let width = innerWidth, waiting = 0;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(draw, 120);
    });
    addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    report.prepend(element("p", { class: "fault" }, `This report could not be drawn: ${error.message}. ${beside}`));
    throw error;
  }
}
