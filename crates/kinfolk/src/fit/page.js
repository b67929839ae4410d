const drawings = [];
const familyName = (family) => "family " + content.family_numbers[family];
const percent = (share) => known(share) ? number(Math.round(1000 * share) / 10) + " %" : "–";

// ---------------------------------------------------------------- pictures

// So many clients have room for their names beside their marks.
const FEW = 12;
function named(client, area) {
  const [x, y] = client.at, left = x > (area.left + area.right) / 2;
  return shape("text", { class: "halo", x: left ? x - 8 : x + 8, y: y + 4, "text-anchor": left ? "end" : "start" }, shortened(client.name, 16));
}

function mapChart(host) {
  const points = content.clients.filter((client) => drawable(client.place));
  const width = Math.max(280, host.clientWidth);
  const { area, x, y, parts, height } = planeFrame(width, points.map((client) => client.place));
  const placed = points.map((client) => ({ ...client, at: [x(client.place[0]), y(client.place[1])] }));
  for (const client of placed) {
    const drawn = marker(client.family, ...client.at, placed.length <= 150 ? 4.4 : 3);
    drawn.setAttribute("class", "point");
    drawn.setAttribute("fill-opacity", known(client.sure) ? 0.35 + 0.6 * client.sure : 0.9);
    parts.push(drawn);
    if (placed.length <= FEW) parts.push(named(client, area));
  }
  const svg = picture(width, height, `The personal models of ${plural(placed.length, "client")} in their two principal directions, coloured by family`, parts);
  nearestTip(svg, width, area, () => placed, (client) => client.name, (client) => [
    element("div", {}, dot(client.family), element("span", {}, `${familyName(client.family)}, ${percent(client.sure)}`)),
    tipLine(null, "rows", number(client.rows)), tipLine(null, "served by", client.served)]);
  host.replaceChildren(svg);
}

// Every term on a scale of its own: terms have different units.
function termsChart(host) {
  const width = Math.max(280, host.clientWidth), row = 22 + 9 * content.families, left = Math.min(210, width * 0.36);
  const height = content.terms.length * row + 8, parts = [];
  content.terms.forEach((term, place) => {
    const top = place * row + 6, middle = top + row / 2;
    const ends = term.families.flatMap(([value, error]) => known(error) ? [value - 2 * error, value + 2 * error] : [value]);
    const x = scale(padded(extent([...ends, term.global, 0].filter(known)), 0.06), [left + 12, width - 84]);
    parts.push(shape("line", { class: "gridline", x1: left, x2: width - 78, y1: top + row - 2, y2: top + row - 2 }));
    parts.push(shape("line", { class: "axis", x1: x(0), x2: x(0), y1: top, y2: top + row - 4 }));
    parts.push(shape("text", { class: "strong", x: left - 4, y: middle + 4, "text-anchor": "end" }, shortened(term.name, Math.floor(left / 7.4))));
    if (content.families > 1 && known(term.global)) parts.push(shape("line", { x1: x(term.global), x2: x(term.global), y1: top + 2, y2: top + row - 6, stroke: "var(--soft)", "stroke-dasharray": "2 3" }));
    term.families.forEach(([value, error], family) => {
      const at = top + (row - 4) * (family + 1) / (content.families + 1);
      if (!known(value)) return;
      if (known(error)) parts.push(shape("line", { x1: x(value - 2 * error), x2: x(value + 2 * error), y1: at, y2: at, stroke: colour(family), "stroke-width": 2 }));
      const mark = marker(family, x(value), at, 4.4);
      parts.push(explained(mark, term.name, () => [tipLine(null, familyName(family), `${number(value)} ± ${number(error)}`), tipLine(null, "everybody", number(term.global))]));
    });
    if (content.families === 1) parts.push(shape("text", { x: width - 72, y: middle + 4 }, number(term.families[0][0])));
    else extent(term.families.map(([value]) => value).filter(known)).filter(known)
      .forEach((value, end) => parts.push(shape("text", { x: width - 72, y: middle + (end ? 12 : -3) }, (end ? "to " : "") + number(value))));
  });
  host.replaceChildren(picture(width, height, "Coefficients of the families with two standard errors to either side", parts));
}

// What columns that bend add, one picture each.
function curvePanel() {
  const host = element("div", { class: "grid" });
  panel("curves", "Columns with curves", `What a column adds to ${content.effect}, beside what its mean adds, over where most of its values are.`).append(host);
  for (const curve of content.curves) {
    const figure = element("figure", {});
    host.append(figure);
    drawings.push(() => curveChart(figure, curve));
  }
}

function curveChart(host, curve) {
  const width = Math.max(260, host.clientWidth), ends = extent(curve.families.flat().filter(known));
  const { area, x, y, parts } = frame(width, 210, { xDomain: extent(curve.values.filter(known)), yDomain: padded(extent([...ends, 0]), 0.06), xWrite: number, yWrite: number, xTitle: curve.name, right: 16 });
  parts.push(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: y(0), y2: y(0) }));
  curve.families.forEach((values, family) => {
    const points = values.map((value, place) => [curve.values[place], value]).filter(drawable);
    const drawn = shape("path", { d: line(points, x, y), fill: "none", stroke: colour(family), "stroke-width": 2, "stroke-dasharray": dash(family) });
    parts.push(explained(drawn, content.families > 1 ? familyName(family) : curve.name, () => [tipLine(null, "from", number(points[0][1])), tipLine(null, "to", number(points[points.length - 1][1]))]));
  });
  host.replaceChildren(picture(width, 210, `What ${curve.name} adds to the prediction`, parts));
}

// Clients by their gain, with two standard errors to either side.
function gainsChart(host) {
  const sorted = content.clients.filter((client) => known(client.gain) && known(client.gain_error)).sort((a, b) => a.gain - b.gain);
  const width = Math.max(280, host.clientWidth), height = 300;
  const middle = sorted.map((client) => client.gain), ends = sorted.flatMap((client) => [client.gain - 2 * client.gain_error, client.gain + 2 * client.gain_error]);
  // The few widest intervals of many clients would press all others flat.
  const ordered = [...ends].sort((a, b) => a - b), spare = Math.floor(ends.length / 20);
  const domain = padded(extent([ordered[spare], ordered[ordered.length - 1 - spare], 0, ...middle]), 0.04);
  const cut = ends.some((end) => end < domain[0] || end > domain[1]) ? "; the widest intervals are cut off" : "";
  const gain = content.target ? `gain in ${content.loss} of ${content.target}` : "gain in log density by row";
  const { area, x, y, parts } = frame(width, height, { xDomain: [-0.5, sorted.length - 0.5], yDomain: domain, xWrite: () => "", yWrite: number, xTitle: "clients, by gain", yTitle: gain + cut, right: 16 });
  const end = (value) => y(Math.min(domain[1], Math.max(domain[0], value)));
  parts.push(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: y(0), y2: y(0) }));
  const placed = sorted.map((client, place) => ({ ...client, at: [x(place), y(client.gain)] }));
  for (const client of placed) {
    parts.push(shape("line", { x1: client.at[0], x2: client.at[0], y1: end(client.gain - 2 * client.gain_error), y2: end(client.gain + 2 * client.gain_error), stroke: colour(client.family), "stroke-opacity": 0.45 }));
    parts.push(marker(client.family, ...client.at, sorted.length > 120 ? 2 : 3.4));
    if (placed.length <= FEW) parts.push(named(client, area));
  }
  const svg = picture(width, height, "What every client gains over a model of its own alone", parts);
  nearestTip(svg, width, area, () => placed, (client) => client.name, (client) => [tipLine(null, "gain", `${number(client.gain)} ± ${number(client.gain_error)}`), tipLine(null, "joining " + client.joining, "")]);
  host.replaceChildren(svg);
}

// Clients' own estimates where they differ most, beside what one cloud would look like.
function cloudChart(host) {
  const { low, width: step, bins } = content.cloud, count = sum(bins.flat());
  const width = Math.max(280, host.clientWidth), normal = (at) => count * step * Math.exp(-at * at / 2) / Math.sqrt(2 * Math.PI);
  const most = Math.max(normal(0), ...bins.map(sum));
  const { x, y, parts } = frame(width, 260, { xDomain: [low, low + step * bins.length], yDomain: [0, most * 1.06], xWrite: number, yWrite: number, xTitle: "deviations from the mean of all clients", yTitle: "clients", right: 16 });
  bins.forEach((families, bin) => {
    let below = 0;
    families.forEach((clients, family) => {
      if (!clients) return;
      const from = x(low + bin * step) + 0.5, to = x(low + (bin + 1) * step) - 0.5, top = y(below + clients), bottom = y(below);
      parts.push(explained(shape("rect", { x: from, y: top, width: Math.max(1, to - from), height: bottom - top, fill: colour(family), "fill-opacity": 0.75 }),
        content.families > 1 ? familyName(family) : "clients", () => [tipLine(null, "clients", number(clients))]));
      below += clients;
    });
  });
  const curve = Array.from({ length: 97 }, (_, place) => low + step * bins.length * place / 96).map((at) => [at, normal(at)]);
  parts.push(shape("path", { d: line(curve, x, y), fill: "none", stroke: "var(--ink)", "stroke-width": 1.6, "stroke-dasharray": "5 4" }));
  host.replaceChildren(picture(width, 260, "Clients by their own estimates in the direction in which they differ most, and one cloud of the same mean and deviation as a line", parts));
}

function residualsChart(host) {
  const { step, shares, reach } = content.residuals, width = Math.max(280, host.clientWidth);
  const normal = (at) => 2 * step * Math.exp(-at * at / 2) / Math.sqrt(2 * Math.PI), last = shares.length - 1;
  const { area, x, y, parts } = frame(width, 260, { xDomain: [0, step * shares.length], yDomain: [0, Math.max(normal(0), ...shares) * 1.06], xWrite: number, yWrite: percent, xTitle: "size of the residual over its expected deviation", yTitle: "held-out rows", right: 16 });
  shares.forEach((share, bin) => {
    const from = x(bin * step) + 0.5, to = x((bin + 1) * step) - 0.5, range = bin === last ? `above ${number(bin * step)}` : `${number(bin * step)} to ${number((bin + 1) * step)}`;
    parts.push(explained(shape("rect", { x: from, y: y(share), width: Math.max(1, to - from), height: y(0) - y(share), fill: colour(0), "fill-opacity": bin * step < reach ? 0.75 : 0.35 }), range, () => [tipLine(null, "of held-out rows", percent(share))]));
  });
  const curve = Array.from({ length: 69 }, (_, place) => step * last * place / 68).map((at) => [at, normal(at)]);
  parts.push(shape("path", { d: line(curve, x, y), fill: "none", stroke: "var(--ink)", "stroke-width": 1.6, "stroke-dasharray": "5 4" }));
  parts.push(shape("line", { x1: x(reach), x2: x(reach), y1: area.top, y2: area.bottom, stroke: "var(--ink)" }));
  parts.push(shape("text", { x: x(reach) + 5, y: area.top + 12 }, "90 % intervals reach to here"));
  host.replaceChildren(picture(width, 260, "Residuals of held-out rows over their expected deviation, beside a normal distribution", parts));
}

function calibrationChart(host) {
  const width = Math.max(280, host.clientWidth), all = sum(content.calibration.map((step) => step[2]));
  const { x, y, parts } = frame(width, 300, { xDomain: [0, 1], yDomain: [0, 1], xWrite: percent, yWrite: percent, xTitle: "probability that was given", yTitle: "how often it came true", right: 16 });
  parts.push(shape("line", { class: "axis", x1: x(0), y1: y(0), x2: x(1), y2: y(1), "stroke-dasharray": "5 4" }));
  parts.push(shape("path", { d: line(content.calibration, x, y), fill: "none", stroke: colour(0), "stroke-opacity": 0.5 }));
  for (const [given, came, count] of content.calibration)
    parts.push(explained(marker(0, x(given), y(came), 3 + 8 * Math.sqrt(count / all)), percent(given), () => [tipLine(null, "came true", percent(came)), tipLine(null, "of", number(count))]));
  host.replaceChildren(picture(width, 300, "How often classes came true in held-out rows, by the probability they were given", parts));
}

// ---------------------------------------------------------------- panels

function tableOf(label, { columns, rows }, first) {
  return scrolled(label,
    element("thead", {}, element("tr", {}, columns.map((column) => element("th", { scope: "col", class: column.align }, column.title)))),
    element("tbody", {}, rows.map((texts, row) => element("tr", {}, texts.map((text, column) => column === 0
      ? element("th", { scope: "row" }, first ? first(row) : null, element("span", { class: "name" }, text)) : element("td", { class: columns[column].align + (text.length > 24 ? " long" : "") }, text))))));
}

function drawn(name, title, lede, chart) {
  const host = element("figure", { class: "wide" });
  panel(name, title, lede).append(host);
  drawings.push(() => chart(host));
}

function heading() {
  const deck = content.families > 1 ? `${plural(content.count, "client")} in ${content.families} families.` : `${plural(content.count, "client")}, one family.`;
  const facts = [["clients by", content.client], ["rows", content.rows.toLocaleString("en")], ...(known(content.coverage) ? [["intervals of 90 % cover", percent(content.coverage)]] : [])];
  return ["Kinfolk fit", content.target, deck, facts];
}

function decisions() {
  panel("decisions", "What was found").append(element("ul", { class: "notes" }, content.sentences.map((sentence) => element("li", {}, sentence))));
}

// A table of many columns would keep the answers from view.
function understood() {
  const columns = tableOf("Columns", content.columns), count = content.columns.rows.length;
  panel("columns", "What was understood of the table").append(count <= 8 ? columns
    : element("details", {}, element("summary", {}, plural(count, "column")), columns));
}

function clientsTable() {
  const heads = [["client", "left", (client) => client.name], ["rows", "right", (client) => client.rows],
    ...(content.families > 1 ? [["family", "right", (client) => content.family_numbers[client.family]], ["probability", "right", (client) => client.sure],
      ["stability", "right", (client) => client.stability]] : []),
    ...["global", content.families > 1 ? "family's" : "centre", "personal", "alone", "served"].map((name, place) => [name, "right", (client) => client.errors ? client.errors[place] : null]),
    ["joining", "left", (client) => client.joining.replace(/^is /, "")], ["gain", "right", (client) => client.gain]];
  const isKnown = ([, , value]) => content.clients.some((client) => known(value(client)) || typeof value(client) === "string");
  everyClient(heads.filter(isKnown), `${content.about.validated} ${content.loss} of everybody's model, ${content.families > 1 ? "the family's" : "the centre of all clients"}, the personal one, the client's own and what serves it.`);
}

function everyClient(heads, about) {
  const shown = content.clients.length;
  const lede = `${about} A heading sorts.`
    + (shown < content.count ? ` Listed are ${shown} of ${content.count.toLocaleString("en")} clients, evenly picked; clients.csv has all.` : "");
  const section = panel("clients", "Every client", lede), host = element("div", {});
  section.append(host);
  let by = 0, down = false;
  const draw = () => {
    const value = heads[by][2];
    const order = (a, b) => typeof a === "number" || typeof b === "number" ? (a ?? -Infinity) - (b ?? -Infinity) : String(a).localeCompare(String(b), "en", { numeric: true });
    const rows = [...content.clients].sort((a, b) => (down ? -1 : 1) * order(value(a), value(b)));
    const sort = (place) => () => { down = by === place ? !down : heads[place][1] === "right"; by = place; draw(); };
    host.replaceChildren(scrolled("Clients",
      element("thead", {}, element("tr", {}, heads.map(([title, align], place) => element("th", { scope: "col", class: align, "aria-sort": place === by ? (down ? "descending" : "ascending") : null },
        element("button", { type: "button", class: "sort", onclick: sort(place) }, title))))),
      element("tbody", {}, rows.map((client) => element("tr", {}, heads.map(([, align, value], place) => place === 0
        ? element("th", { scope: "row" }, dot(client.family), element("span", { class: "name" }, client.name))
        : element("td", { class: align }, typeof value(client) === "string" ? value(client) : number(value(client)))))))));
  };
  draw();
}
