// What the reader has chosen.
const chosen = { axis: "round", seed: null, hidden: new Set() };

// ---------------------------------------------------------------- words and numbers

const isShare = (metric) => metric === "accuracy" || metric === "row_error";
const score = (metric) => isShare(metric) ? (value) => known(value) ? (100 * value).toFixed(2) + " %" : "–" : number;
const scoreTick = (metric) => isShare(metric) ? (value) => number(100 * value) + " %" : number;

const AXES = {
  round: { name: "Rounds", title: "round", of: (point) => point.round, write: number, tip: (value) => "round " + number(value) },
  bytes: { name: "Bytes", title: "bytes to and from clients", of: (point) => point.bytes, write: bytes, tip: bytes },
  seconds: { name: "Seconds", title: "seconds of training", of: (point) => point.seconds, write: seconds, tip: seconds },
};

// ---------------------------------------------------------------- pictures

const ended = (repeat) => repeat.summary.status === "done" || repeat.summary.status === "not-converged";

// One line a method: the mean over its seeds, round by round, and the seeds themselves.
function curvesOf(field, axis) {
  return content.methods.map((method, index) => {
    const seeds = method.repeats.filter(ended).map((repeat) => repeat.rounds
      .filter((point) => known(point[field]) && known(axis.of(point)))
      .map((point) => ({ round: point.round, x: axis.of(point), y: point[field] }))).filter((points) => points.length);
    const byRound = new Map();
    for (const point of seeds.flat()) byRound.set(point.round, [...(byRound.get(point.round) || []), point]);
    const rounds = [...byRound.entries()].sort((a, b) => a[0] - b[0]);
    // A round only some seeds reached would bend the mean by who is missing, not by what happened.
    const complete = rounds.filter(([, points]) => points.length === seeds.length);
    const points = (complete.length ? complete : rounds).map(([, points]) => [mean(points.map((point) => point.x)), mean(points.map((point) => point.y))]);
    return { method, index, points: thinned(points), seeds: seeds.length > 1 ? seeds.map((points) => thinned(points.map((point) => [point.x, point.y]))) : [] };
  }).filter((curve) => curve.points.length);
}

function curveChart(host, field, title, yTick, yWrite) {
  const axis = AXES[chosen.axis];
  const curves = curvesOf(field, axis).filter((curve) => !chosen.hidden.has(curve.index));
  host.replaceChildren(element("figcaption", {}, element("h3", {}, title), element("span", {}, curves.some((curve) => curve.seeds.length) ? "bold: mean over seeds, faint: each seed" : "")));
  if (!curves.length) { host.append(element("p", { class: "aside" }, "Every method is switched off.")); return; }
  const width = Math.max(280, host.clientWidth), height = Math.round(Math.max(230, Math.min(380, width * 0.46)));
  const all = curves.flatMap((curve) => [curve.points, ...curve.seeds]).flat();
  const [low, high] = extent(all.map((point) => point[1]));
  const yLog = field === "loss" && low > 0 && high / low > 50;
  const labelled = width > 520 && curves.length <= 12;
  const { area, x, y, parts } = frame(width, height, {
    xDomain: (([first, last]) => first === last ? padded([first, last]) : [Math.min(first, chosen.axis === "round" ? first : 0), last])(extent(all.map((point) => point[0]))),
    yDomain: yLog ? [low, high] : padded([low, high], 0.06), yLog,
    xWrite: axis.write, yWrite: yTick, xTitle: axis.title, xWhole: chosen.axis === "round", right: labelled ? 122 : 14,
  });
  for (const curve of curves) for (const points of curve.seeds) parts.push(shape("path", { class: "seed", d: line(points, x, y), stroke: colour(curve.index) }));
  const labels = [];
  for (const curve of curves) {
    parts.push(shape("path", { class: "mean", "data-label": curve.method.label, d: line(curve.points, x, y), stroke: colour(curve.index), "stroke-dasharray": dash(curve.index) }));
    const marked = curve.points.length <= 16 ? curve.points : [curve.points[curve.points.length - 1]];
    for (const [px, py] of marked) parts.push(marker(curve.index, x(px), y(py), 3.6));
    const [endX, endY] = curve.points[curve.points.length - 1];
    labels.push({ curve, y: y(endY) + 4, x: x(endX), from: y(endY) });
  }
  if (labelled) for (const label of spread(labels, 15, area.top, area.bottom)) {
    const moved = Math.abs(label.y - 4 - label.from) > 2;
    const aside = label.x > area.right - 60, at = aside ? area.right + 16 : label.x + 14;
    if (moved) parts.push(marker(label.curve.index, at, label.y - 4, 3.2));
    parts.push(shape("text", { class: "strong halo", x: moved || aside ? at + 9 : at, y: label.y }, shortened(label.curve.method.label, 15)));
  }
  const hair = shape("line", { class: "crosshair", y1: area.top, y2: area.bottom, visibility: "hidden" });
  const capture = shape("rect", { class: "capture", x: area.left, y: area.top, width: Math.max(0, area.right - area.left), height: area.bottom - area.top });
  const svg = picture(width, height, `${title} against ${axis.title}, ${plural(curves.length, "method")}`, parts, hair, capture);
  capture.addEventListener("pointermove", (event) => {
    const place = (event.clientX - svg.getBoundingClientRect().left) * width / svg.getBoundingClientRect().width;
    const at = curves.flatMap((curve) => curve.points).reduce((best, point) => Math.abs(x(point[0]) - place) < Math.abs(x(best[0]) - place) ? point : best)[0];
    hair.setAttribute("x1", x(at)); hair.setAttribute("x2", x(at)); hair.setAttribute("visibility", "visible");
    // Methods are measured at different bytes and seconds: each shows what it had reached by then.
    const reached = (curve) => curve.points.filter((point) => point[0] <= at).pop();
    showTip(event, "by " + axis.tip(at), curves.map((curve) => tipLine(curve.index, curve.method.label, reached(curve) ? yWrite(reached(curve)[1]) : "–")));
  });
  capture.addEventListener("pointerleave", () => { hair.setAttribute("visibility", "hidden"); hideTip(); });
  host.append(svg);
}

function communicationChart(host, metric) {
  const points = content.methods.map((method, index) => {
    const seeds = method.repeats.filter((repeat) => ended(repeat) && repeat.summary.metric && known(repeat.summary.metric.mean))
      .map((repeat) => [repeat.summary.bytes_down + repeat.summary.bytes_up, repeat.summary.metric.mean]);
    return seeds.length ? { method, index, seeds, x: mean(seeds.map((seed) => seed[0])), y: mean(seeds.map((seed) => seed[1])) } : null;
  }).filter((point) => point && point.method.metric === metric && !chosen.hidden.has(point.index));
  host.replaceChildren();
  if (!points.length) { host.append(element("p", { class: "aside" }, "Every method is switched off.")); return; }
  const width = Math.max(280, host.clientWidth), height = Math.round(Math.max(240, Math.min(360, width * 0.42)));
  const [least, most] = extent(points.flatMap((point) => point.seeds.map((seed) => seed[0])));
  const xLog = least > 0 && most / least > 30;
  const { area, x, y, parts } = frame(width, height, {
    xDomain: xLog ? [least / 1.5, most * 1.5] : [-0.02 * (most || 1), most > 0 ? most * 1.04 : 1], xLog,
    yDomain: padded(extent(points.flatMap((point) => point.seeds.map((seed) => seed[1]))), 0.12),
    xWrite: bytes, yWrite: scoreTick(metric), xTitle: "bytes to and from clients, whole run", yTitle: metric, right: 24,
  });
  const labels = [];
  for (const point of points) {
    if (point.seeds.length > 1) for (const seed of point.seeds) parts.push(shape("circle", { cx: x(seed[0]), cy: y(seed[1]), r: 2.5, fill: colour(point.index), opacity: 0.4 }));
    const mark = marker(point.index, x(point.x), y(point.y), 6);
    mark.setAttribute("data-label", point.method.label);
    parts.push(explained(mark, point.method.label, () => [tipLine(null, metric, score(metric)(point.y)), tipLine(null, "to and from clients", bytes(point.x))]));
    labels.push({ point, y: y(point.y) + 4, end: x(point.x) > width - 150 });
  }
  for (const label of spread(labels, 15, area.top, area.bottom)) {
    const at = x(label.point.x);
    parts.push(shape("text", { class: "strong halo", x: label.end ? at - 12 : at + 12, y: label.y, "text-anchor": label.end ? "end" : "start" }, shortened(label.point.method.label, 22)));
  }
  host.append(picture(width, height, `${metric} against bytes to and from clients, ${plural(points.length, "method")}`, parts));
}

// More clusters than this are not told apart by eye: bands are folded, rows and columns cut, and it is said.
const BANDS = 30, CELLS = 60;

// Sizes of the clusters as steps: a size holds from its round to the next.
function formationChart(host, method, index, repeat) {
  const sized = thinned(repeat.rounds.filter((point) => point.sizes.length));
  const most = extent(sized.map((point) => point.sizes.length))[1], clusters = Math.min(most, BANDS);
  const bands = sized.map(({ sizes }) => sizes.length <= BANDS ? sizes : [...sizes.slice(0, BANDS - 1), sum(sizes.slice(BANDS - 1))]);
  const called = (cluster) => most > BANDS && cluster === BANDS - 1 ? "rest" : cluster;
  const last = sized[sized.length - 1];
  host.replaceChildren(element("figcaption", {}, swatch(index), element("h3", {}, method.label),
    element("span", {}, `${plural(last.sizes.filter((size) => size > 0).length, "cluster")} in the end: ${shortened(last.sizes.join(", "), 60)} clients`)));
  const switches = repeat.rounds.filter((point) => known(point.switched));
  const width = Math.max(280, host.clientWidth), lower = switches.length ? 74 : 0, height = 236 + lower;
  const total = Math.max(1, extent(bands.map(sum))[1]);
  const begin = Math.min(sized[0].round, switches.length ? switches[0].round : Infinity);
  const final = Math.max(last.round, switches.length ? switches[switches.length - 1].round : 0) + 1;
  const { area, x, y, parts } = frame(width, 236, { xDomain: [begin - 0.5, final - 0.5], yDomain: [0, total], xWrite: number, yWrite: number, xTitle: lower ? "" : "round", yTitle: "clients", xWhole: true, whole: true, right: 52 });
  const from = (place) => x(sized[place].round - 0.5), until = (place) => x((place + 1 < sized.length ? sized[place + 1].round : final) - 0.5);
  const floor = sized.map(() => 0);
  for (let cluster = 0; cluster < clusters; cluster++) {
    const ceiling = bands.map((sizes, place) => floor[place] + (sizes[cluster] || 0));
    let upper = "", back = "";
    sized.forEach((_, place) => {
      upper += `${place ? "L" : "M"}${from(place).toFixed(1)},${y(ceiling[place]).toFixed(1)}L${until(place).toFixed(1)},${y(ceiling[place]).toFixed(1)}`;
      back = `L${until(place).toFixed(1)},${y(floor[place]).toFixed(1)}L${from(place).toFixed(1)},${y(floor[place]).toFixed(1)}` + back;
    });
    parts.push(shape("path", { class: "cluster", "data-cluster": cluster, d: upper + back + "Z", fill: colour(cluster), "fill-opacity": 0.82 }));
    parts.push(shape("path", { class: "edge", d: upper }));
    const end = sized.length - 1, tall = y(floor[end]) - y(ceiling[end]);
    if (tall >= 12) parts.push(shape("text", { class: "strong", x: area.right + 7, y: (y(floor[end]) + y(ceiling[end])) / 2 + 4 }, called(cluster)));
    ceiling.forEach((value, place) => { floor[place] = value; });
  }
  if (area.top < 30) parts.push(shape("text", { x: area.right + 7, y: 11 }, "cluster"));
  if (lower) {
    const peak = Math.max(1, extent(switches.map((point) => point.switched))[1]), base = height - 24, top = 256;
    const high = scale([0, peak], [base, top]);
    parts.push(shape("text", { x: 0, y: top - 6 }, `clients that switched`), shape("text", { x: area.left - 8, y: top + 8, "text-anchor": "end" }, peak));
    parts.push(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: base, y2: base }));
    const wide = Math.max(1, Math.min(14, (x(begin + 1) - x(begin)) * 0.7));
    for (const point of switches) if (point.switched > 0) parts.push(shape("rect", { class: "switched", x: x(point.round) - wide / 2, y: high(point.switched), width: wide, height: base - high(point.switched), fill: "var(--soft)" }));
    parts.push(shape("text", { x: area.right, y: height - 6, "text-anchor": "end" }, "round"));
  }
  const capture = shape("rect", { class: "capture", x: area.left, y: area.top, width: area.right - area.left, height: height - area.top - 20 });
  const svg = picture(width, height, `Cluster sizes of ${method.label} over the rounds, seed ${repeat.summary.seed}`, parts, capture);
  capture.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), place = (event.clientX - box.left) * width / box.width;
    const round = begin - 0.5 + (place - area.left) / (area.right - area.left) * (final - begin);
    const at = sized.filter((point) => point.round - 0.5 <= round).pop() || sized[0];
    const shown = at.sizes.slice(0, 14).map((size, cluster) => tipLine(null, "cluster " + cluster, plural(size, "client")));
    if (at.sizes.length > shown.length) shown.push(tipLine(null, `and ${at.sizes.length - shown.length} more`, ""));
    if (known(at.switched)) shown.push(tipLine(null, "switched", plural(at.switched, "client")));
    showTip(event, "round " + at.round, shown);
  });
  capture.addEventListener("pointerleave", hideTip);
  host.append(svg);
}

function confusionChart(host, method, index, repeat) {
  const whole = repeat.confusion, summary = repeat.summary;
  const found = whole.found.slice(0, CELLS), truth = whole.truth.slice(0, CELLS), counts = whole.counts.slice(0, CELLS).map((row) => row.slice(0, CELLS));
  const matched = whole.matched.slice(0, CELLS).map((column) => column !== null && column < CELLS ? column : null);
  const facts = [known(summary.misclustering) ? `${(100 * summary.misclustering).toFixed(2)} % misclustered` : null, known(summary.ari) ? `ARI ${summary.ari.toFixed(3)}` : null,
    whole.found.length > CELLS || whole.truth.length > CELLS ? `the first ${found.length} of ${whole.found.length} found and ${truth.length} of ${whole.truth.length} true clusters` : null];
  host.replaceChildren(element("figcaption", {}, swatch(index), element("h3", {}, method.label), element("span", {}, facts.filter(Boolean).join(", "))));
  const available = Math.max(240, host.clientWidth), left = 44, top = 38;
  const size = Math.max(6, Math.min(46, (available - left - 4) / truth.length, 520 / found.length));
  const most = Math.max(1, ...counts.flat()), parts = [];
  const every = Math.ceil(16 / size);
  parts.push(shape("text", { x: left, y: 11 }, "true cluster"));
  truth.forEach((cluster, column) => { if (column % every === 0) parts.push(shape("text", { class: "strong", x: left + (column + 0.5) * size, y: top - 8, "text-anchor": "middle" }, cluster)); });
  found.forEach((cluster, row) => { if (row % every === 0) parts.push(shape("text", { class: "strong", x: left - 8, y: top + (row + 0.5) * size + 4, "text-anchor": "end" }, cluster)); });
  parts.push(shape("text", { transform: `translate(11 ${top + found.length * size}) rotate(-90)` }, found.length * size > 44 ? "found cluster" : "found"));
  counts.forEach((row, r) => row.forEach((count, c) => {
    const share = count / most;
    const cell = shape("rect", { class: "cell", x: left + c * size, y: top + r * size, width: size, height: size, fill: "var(--heat)", "fill-opacity": count ? 0.1 + 0.9 * share : 0 });
    parts.push(explained(cell, plural(count, "client"), () => [tipLine(null, "found cluster", found[r]), tipLine(null, "true cluster", truth[c]), tipLine(null, matched[r] === c ? "matched" : "not matched", "")]));
    if (size >= 20 && String(count).length * 7.2 < size) parts.push(shape("text", {
      x: left + (c + 0.5) * size, y: top + (r + 0.5) * size + 4, "text-anchor": "middle", "pointer-events": "none",
      style: count === 0 ? "fill:var(--faint)" : share > 0.5 ? "fill:var(--on-heat);font-weight:600" : "fill:var(--ink)",
    }, count === 0 ? "·" : count));
  }));
  matched.forEach((column, row) => { if (column !== null) parts.push(shape("rect", { class: "agreed", "pointer-events": "none", x: left + column * size, y: top + row * size, width: size, height: size })); });
  host.append(picture(left + truth.length * size + 4, top + found.length * size + 4, `Clients by found and true cluster, ${method.label}, seed ${summary.seed}`, parts));
}

function distributionChart(host, method, index, repeat, bins, domain, highest) {
  const { metric, names } = repeat.clients, write = score(method.metric), summary = repeat.summary.metric;
  const facts = [plural(metric.length, "client"), `▼ mean ${write(summary.mean)}`, `◇ worst decile ${write(summary.worst_decile)}`];
  host.replaceChildren(element("figcaption", {}, swatch(index), element("h3", {}, method.label), element("span", {}, facts.join(" · "))));
  const width = Math.max(280, host.clientWidth), height = 120;
  const { area, x, parts } = frame(width, height, { xDomain: domain, yDomain: [0, highest], xWrite: scoreTick(method.metric), yWrite: () => "", bare: true, right: 16 });
  const base = area.bottom - 8, tall = scale([0, highest], [0, base - area.top - 12]);
  bins.forEach(({ from, to, count }) => {
    if (!count) return;
    const bar = shape("rect", { class: "bin", x: x(from) + 0.5, y: base - tall(count), width: Math.max(1, x(to) - x(from) - 1), height: tall(count), fill: colour(index), "fill-opacity": 0.75 });
    parts.push(explained(bar, `${write(from)} to ${write(to)}`, () => [tipLine(null, plural(count, "client"), "")]));
  });
  if (names.length) metric.forEach((value, place) => {
    const tick = shape("line", { x1: x(value), x2: x(value), y1: base + 1, y2: base + 7, stroke: "var(--ink)", "stroke-opacity": 0.45, "stroke-width": 1.4 });
    parts.push(explained(tick, names[place], () => [tipLine(null, method.metric, write(value))]));
  });
  const at = x(summary.mean), worst = x(summary.worst_decile);
  parts.push(shape("line", { x1: at, x2: at, y1: area.top, y2: base, stroke: "var(--ink)", "stroke-width": 1.2 }),
    shape("polygon", { points: `${at - 5},${area.top - 4} ${at + 5},${area.top - 4} ${at},${area.top + 4}`, fill: "var(--ink)" }),
    shape("line", { class: "worst", x1: worst, x2: worst, y1: area.top + 4, y2: base, stroke: "var(--ink)", "stroke-width": 1.2, "stroke-dasharray": "3 3" }),
    shape("polygon", { points: `${worst},${area.top - 6} ${worst + 5},${area.top} ${worst},${area.top + 6} ${worst - 5},${area.top}`, fill: "var(--paper)", stroke: "var(--ink)", "stroke-width": 1.3 }));
  host.append(picture(width, height, `${method.metric} of every client of ${method.label}, seed ${repeat.summary.seed}`, parts));
}

// ---------------------------------------------------------------- panels

const drawings = { curves: [], seeds: [] };
const draw = (group) => drawings[group].forEach((drawing) => drawing());
const repeatOf = (method) => method.repeats.find((repeat) => repeat.summary.seed === chosen.seed && ended(repeat));

function heading() {
  const seeds = new Set(content.methods.flatMap((method) => method.repeats.map((repeat) => repeat.summary.seed)));
  const data = content.data && typeof content.data === "object" ? content.data : {};
  const words = [plural(content.methods.length, "method")];
  if (known(data.clients)) words.push("on " + plural(data.clients, "client"));
  if (known(data.true_clusters)) words.push("in " + plural(data.true_clusters, "true cluster"));
  const deck = words.join(" ") + `, ${seeds.size === 1 ? "seed " + [...seeds][0] : plural(seeds.size, "seed") + " from " + content.seed}.`;
  const facts = Object.entries({ ...data, version: content.version }).filter(([, value]) => value !== null);
  return ["Kinfolk run report", content.name, deck, facts.map(([key, value]) => [key.replaceAll("_", " "), value])];
}

function results() {
  const section = panel("results", "Results", content.methods.some((method) => method.repeats.length > 1) ? "Mean ± standard deviation over seeds. Every client is scored on its own held-out rows with the model it was given." : "Every client is scored on its own held-out rows with the model it was given.");
  const { columns, rows } = content.table;
  const cell = (row, text, column) => {
    if (column === 0) return element("th", { scope: "row" }, swatch(row), element("span", { class: "name", title: text }, text));
    return element("td", { class: columns[column].title === "status" ? "status" : columns[column].align }, text);
  };
  section.append(scrolled("Results",
    element("thead", {}, element("tr", {}, columns.map((column) => element("th", { scope: "col", class: column.align }, column.title)))),
    element("tbody", {}, rows.map((texts, row) => element("tr", {}, texts.map((text, column) => cell(row, text, column)))))));
}

function notes() {
  const said = content.methods.flatMap((method) => method.remarks.map((remark) => ({ method, remark })));
  if (!said.length) return;
  said.sort((a, b) => b.remark.warning - a.remark.warning);
  panel("notes", "Notes and warnings").append(element("ul", { class: "notes" }, said.map(({ method, remark }) =>
    element("li", { class: remark.warning ? "warning" : null }, element("span", { class: "kind" }, remark.warning ? "▲ warning" : "note"), element("strong", {}, method.label + ":"), " ", remark.text))));
}

const metrics = [...new Set(content.methods.map((method) => method.metric).filter(Boolean))];

function axisPicker() {
  const choices = Object.entries(AXES).map(([key, axis]) => [key, axis.name]);
  return element("div", { class: "choice" }, element("span", {}, "against"), segments("horizontal axis", choices, chosen.axis, (key) => { chosen.axis = key; draw("curves"); }));
}

function legend() {
  return element("ul", { class: "legend", "aria-label": "methods, press to hide or show" }, content.methods.map((method, index) => element("li", {}, element("button", {
    type: "button", "aria-pressed": "true", title: "hide or show " + method.label, onclick: (event) => {
      if (!chosen.hidden.delete(index)) chosen.hidden.add(index);
      event.currentTarget.setAttribute("aria-pressed", String(!chosen.hidden.has(index)));
      draw("curves");
    } }, swatch(index), element("span", {}, method.label)))));
}

function curves() {
  const has = (field) => content.methods.some((method) => method.repeats.some((repeat) => ended(repeat) && repeat.rounds.some((point) => known(point[field]))));
  const fields = ["metric", "unseen", "loss"].filter(has);
  if (!fields.length) return;
  const section = panel("curves", "Over the rounds", "How the held-out metric and the training loss moved. Switch the axis to see what was bought with communication or with time.", axisPicker());
  section.append(legend());
  const grid = element("div", { class: "grid" });
  section.append(grid);
  const metric = metrics.length === 1 ? metrics[0] : "metric";
  const titles = { metric: `${metric}, mean over clients`, unseen: `${metric} on unseen clients`, loss: "training loss" };
  fields.forEach((field, place) => {
    const loss = field === "loss";
    const host = element("figure", { class: fields.length !== 2 && place === 0 ? "wide" : null });
    grid.append(host);
    drawings.curves.push(() => curveChart(host, field, titles[field], loss ? number : scoreTick(metric), loss ? number : score(metric)));
  });
  const missing = content.methods.filter((method) => !method.repeats.some((repeat) => ended(repeat) && repeat.rounds.some((point) => known(point.metric) || known(point.loss))));
  if (missing.length) section.append(element("p", { class: "aside" }, "No curve: " + sentence(missing.map((method) => method.status === "done" ? `${method.label} (no rounds on record)` : `${method.label} (${method.status})`)) + "."));
}

function communication() {
  const scored = metrics.filter((metric) => content.methods.some((method) => method.metric === metric && method.repeats.some((repeat) => ended(repeat) && repeat.summary.metric)));
  if (!scored.length) return;
  const section = panel("communication", "Communication and result", "Where each method ended, against all bytes it sent to and received from clients in training.");
  const grid = element("div", { class: "grid" });
  section.append(grid);
  for (const metric of scored) {
    const host = element("figure", { class: "wide" });
    grid.append(host);
    drawings.curves.push(() => communicationChart(host, metric));
  }
}

const pickers = [];
function seedPicker() {
  const seeds = [...new Set(content.methods.flatMap((method) => method.repeats.filter(ended).map((repeat) => repeat.summary.seed)))].sort((a, b) => a - b);
  if (chosen.seed === null && seeds.length) chosen.seed = seeds[0];
  if (seeds.length < 2) return null;
  const picker = element("select", { onchange: (event) => {
    chosen.seed = Number(event.currentTarget.value);
    pickers.forEach((other) => { other.value = String(chosen.seed); });
    draw("seeds");
  } }, seeds.map((seed) => element("option", { value: seed }, seed)));
  pickers.push(picker);
  return element("label", { class: "choice" }, "seed", picker);
}

// A panel with one figure a method, for the methods that have what it shows.
function perMethod(name, title, lede, gridClass, has, paint, without) {
  const able = content.methods.map((method, index) => ({ method, index })).filter(({ method }) => method.repeats.some((repeat) => ended(repeat) && has(repeat)));
  if (!able.length) return;
  const section = panel(name, title, lede, seedPicker());
  const grid = element("div", { class: "grid " + gridClass });
  section.append(grid);
  const hosts = able.map(({ method, index }) => ({ method, index, host: element("figure", {}) }));
  grid.append(...hosts.map(({ host }) => host));
  drawings.seeds.push(() => {
    const shown = hosts.map((entry) => ({ ...entry, repeat: repeatOf(entry.method) })).filter((entry) => entry.repeat && has(entry.repeat));
    for (const { host } of hosts) { host.replaceChildren(); host.hidden = !shown.some((entry) => entry.host === host); }
    paint(shown);
  });
  const unable = content.methods.filter((method) => !able.some((entry) => entry.method === method));
  if (unable.length) section.append(element("p", { class: "aside" }, `${without}: ${sentence(unable.map((method) => ended({ summary: method }) ? method.label : `${method.label} (${method.status})`))}.`));
}

function formation() {
  perMethod("formation", "How the clusters formed", "Clients in each cluster, round by round, and how many changed cluster.", "", (repeat) => repeat.rounds.some((point) => point.sizes.length),
    (shown) => shown.forEach(({ host, method, index, repeat }) => formationChart(host, method, index, repeat)), "No cluster sizes on record");
}

function truth() {
  perMethod("truth", "Found and true clusters", "Clients by the cluster they were put in and the one they come from. Outlined: the best one-to-one matching; every client outside it counts as misclustered.", "matrices", (repeat) => repeat.confusion,
    (shown) => shown.forEach(({ host, method, index, repeat }) => confusionChart(host, method, index, repeat)), "Nothing to compare");
}

function distances() {
  perMethod("distances", "How far clients are apart", "Pairs of clients by the distance of what they learnt alone. Two humps mean families: pairs left of λ belong together. In colour: pairs of one true cluster, where that is known.", "", (repeat) => repeat.distances,
    (shown) => shown.forEach(({ host, method, index, repeat }) => distancesChart(host, method, index, repeat)), "No clients compared");
}

function mixtures() {
  perMethod("mixtures", "Components and outliers", "Centres in two principal directions, every column in units of how much centres vary in it. One colour and shape a component: the large marks with a number are common to all clients, a small one is a client's own and as large as its weight. Crosses are outliers: clients whose score is far above the others', and that the common centres do not reach for half of their components where a method says whom they reach.", "single", (repeat) => repeat.mixture,
    (shown) => shown.forEach(({ host, method, index, repeat }) => mixtureChart(host, method, index, repeat)), "No mixtures");
}

function clients() {
  perMethod("clients", "Client by client", "How the metric is spread over clients; an average can hide the ones it fails. Bars count clients, on one scale for all methods.", "", (repeat) => repeat.clients.metric.length > 0 && repeat.summary.metric, (shown) => {
    for (const metric of metrics) {
      const group = shown.filter(({ method }) => method.metric === metric);
      if (!group.length) continue;
      const [low, high] = extent(group.flatMap(({ repeat }) => [...repeat.clients.metric, repeat.summary.metric.mean, repeat.summary.metric.worst_decile].filter(known)));
      const domain = padded([low, high], 0.03), count = 36, step = (domain[1] - domain[0]) / count;
      const binned = (values) => {
        const bins = Array.from({ length: count }, (_, place) => ({ from: domain[0] + place * step, to: domain[0] + (place + 1) * step, count: 0 }));
        for (const value of values) bins[Math.max(0, Math.min(count - 1, Math.floor((value - domain[0]) / step)))].count++;
        return bins;
      };
      const counted = group.map((entry) => ({ ...entry, bins: binned(entry.repeat.clients.metric) }));
      const highest = extent(counted.flatMap(({ bins }) => bins.map((bin) => bin.count)))[1];
      for (const { host, method, index, repeat, bins } of counted) distributionChart(host, method, index, repeat, bins, domain, highest);
    }
  }, "No client was scored");
}

function settings() {
  const section = panel("settings", "Settings", "Everything needed to run this again, defaults filled in.");
  const of = (method) => method.settings && typeof method.settings === "object" ? method.settings : {};
  const keys = [...new Set(content.methods.flatMap((method) => Object.keys(of(method))))];
  const rows = [["method", (method) => method.name], ...keys.map((key) => [key, (method) => key in of(method) ? spelled(of(method)[key]) : ""])];
  section.append(element("details", {}, element("summary", {}, "Methods"), element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, element("th", {}, "setting"), content.methods.map((method) => element("th", { scope: "col" }, method.label)))),
    element("tbody", {}, rows.map(([key, value]) => element("tr", {}, element("th", { scope: "row" }, key), content.methods.map((method) => element("td", {}, value(method))))))))));
  const data = content.data && typeof content.data === "object" ? Object.entries(content.data) : [];
  section.append(element("details", {}, element("summary", {}, "Data and run"), element("div", { class: "scroll" }, element("table", {}, element("tbody", {},
    [...data, ["first seed", content.seed], ["Kinfolk version", content.version]].map(([key, value]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, spelled(value)))))))));
}

// ---------------------------------------------------------------- the page

present(() => {
  masthead(...heading());
  results();
  notes();
  curves();
  communication();
  formation();
  truth();
  distances();
  mixtures();
  clients();
  settings();
}, () => { draw("curves"); draw("seeds"); });
