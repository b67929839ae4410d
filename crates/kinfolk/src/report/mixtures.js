// ---------------------------------------------------------------- mixtures

// A component's weight is the area of its mark.
const markSize = (weight) => 1.6 + 7 * Math.sqrt(Math.max(0, known(weight) ? weight : 0));
const percent = (share) => number(Math.round(1000 * share) / 10) + " %";

function cross(component, [x, y], size) {
  return shape("path", { class: "apart", d: `M${x - size},${y - size}L${x + size},${y + size}M${x - size},${y + size}L${x + size},${y - size}`,
    fill: "none", stroke: colour(component), "stroke-width": 2, "stroke-linecap": "round" });
}

// Every client's centres and the common ones, in two principal directions.
function componentsChart(host, method, repeat) {
  const { common, shown, ordered } = repeat.mixture;
  // Where every client has an order of its own, a colour would promise what a number does not mean.
  const kind = (component) => ordered ? component : 0;
  const own = shown.flatMap(({ client, outlier, weights, places }) => places.map((place, component) => ({ client, outlier, component, place, weight: weights[component] })));
  const centres = own.filter(({ place }) => drawable(place));
  const shared = common.map((place, component) => ({ client: null, component, place })).filter(({ place }) => drawable(place));
  if (!centres.length && !shared.length) { host.append(element("p", { class: "aside" }, "The centres are no finite numbers.")); return; }
  const width = Math.max(280, host.clientWidth);
  const { area, x, y, parts, height } = planeFrame(width, [...centres, ...shared].map(({ place }) => place));
  const placed = (entry) => ({ ...entry, at: [x(entry.place[0]), y(entry.place[1])] });
  // Large marks first, so that small ones stay visible; crosses above them.
  const marks = centres.map(placed).sort((a, b) => a.outlier - b.outlier || (b.weight || 0) - (a.weight || 0));
  for (const { component, at, weight, outlier } of marks) {
    const mark = outlier ? cross(kind(component), at, 2.4 + 0.6 * markSize(weight)) : marker(kind(component), ...at, markSize(weight));
    if (!outlier) {
      mark.setAttribute("class", "own");
      mark.setAttribute("fill-opacity", 0.55);
    }
    parts.push(mark);
  }
  const large = shared.map(placed);
  for (const { component, at } of large) {
    const mark = marker(component, ...at, 8.5);
    mark.setAttribute("class", "common");
    mark.setAttribute("style", "stroke:var(--ink);stroke-width:1.8");
    parts.push(mark, shape("text", { class: "strong halo", x: at[0] + 12, y: at[1] - 8, style: "font-size:15px;font-weight:700" }, component));
  }
  const svg = picture(width, height, `Components of ${method.label} in two principal directions, of ${plural(shown.length, "client")}${large.length ? " and in common" : ""}, seed ${repeat.summary.seed}`, parts);
  nearestTip(svg, width, area, () => [...large, ...marks], ({ client }) => client === null ? "common centre" : client, ({ component, weight, outlier }) => [
    element("div", {}, dot(kind(component)), element("span", {}, (ordered ? "" : "its own ") + "component " + component)),
    ...(known(weight) ? [tipLine(null, "weight", percent(weight))] : []), ...(outlier ? [tipLine(null, "an outlier", "")] : [])]);
  host.append(svg);
}

// Outlier scores from the highest down: names, bars, and who was planted.
function scoresChart(host, method, repeat) {
  const { scores, clients, components, planted } = repeat.mixture;
  const width = Math.max(240, host.clientWidth), row = 17, top = 24, left = Math.min(130, 14 + 7 * Math.max(...scores.map(({ client }) => Math.min(16, client.length))));
  const height = top + row * scores.length + 6, right = planted ? 70 : 50;
  const long = scale([0, Math.max(...scores.map(({ score }) => score), 0) || 1], [0, width - left - right]);
  const parts = [shape("text", { x: 0, y: 11 }, scores.length < clients ? `outlier score, the ${scores.length} highest of ${clients.toLocaleString("en")}` : "outlier score")];
  scores.forEach(({ client, score, outlier, apart, planted: made }, place) => {
    const y = top + place * row;
    parts.push(shape("text", { class: outlier ? "strong" : null, x: left - 8, y: y + 12, "text-anchor": "end" }, shortened(client, 16)));
    const bar = shape("rect", { class: "score", x: left, y: y + 2, width: Math.max(1, long(Math.max(0, score))), height: row - 4, fill: outlier ? "var(--warn)" : "var(--faint)", "fill-opacity": outlier ? 0.9 : 0.55 });
    const whole = shape("rect", { class: "capture", x: 0, y, width, height: row });
    const end = left + long(Math.max(0, score)) + 6;
    parts.push(bar, shape("text", { x: end, y: y + 12 }, number(score)));
    if (made) parts.push(shape("circle", { class: "planted", cx: width - 7, cy: y + row / 2, r: 4, fill: "none", stroke: "var(--ink)", "stroke-width": 1.6 }));
    parts.push(explained(whole, client, () => [tipLine(null, "outlier score", number(score)),
      ...(known(apart) ? [tipLine(null, "out of reach", `${apart} of ${plural(components, "component")}`)] : []),
      ...(planted ? [tipLine(null, made ? "planted as an outlier" : "not planted as an outlier", "")] : [])]));
  });
  if (planted) parts.push(shape("text", { x: width, y: 11, "text-anchor": "end" }, "○ planted"));
  host.append(picture(width, height, `Outlier scores of ${method.label}, from the highest down, seed ${repeat.summary.seed}`, parts));
}

function mixtureChart(host, method, index, repeat) {
  const { components, ordered, clients, outliers, shown, scores } = repeat.mixture;
  const named = outliers.length > 8 ? [...outliers.slice(0, 8), `${outliers.length - 8} more`] : outliers;
  const facts = [plural(components, "component") + " in " + plural(clients, "client"),
    scores.length ? outliers.length ? `${plural(outliers.length, "outlier")}: ${sentence(named)}` : "no outliers" : null,
    ordered ? null : "in every client's own order, so all in one colour",
    shown.length < clients ? `${shown.length} clients are drawn` : null];
  host.replaceChildren(element("figcaption", {}, swatch(index), element("h3", {}, method.label), element("span", {}, facts.filter(Boolean).join(" · "))));
  const plane = element("div", {}), bars = element("div", {});
  host.append(element("div", { class: scores.length ? "pair" : null }, plane, scores.length ? bars : null));
  componentsChart(plane, method, repeat);
  if (scores.length) scoresChart(bars, method, repeat);
}
