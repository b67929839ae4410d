const componentName = (component) => "component " + (component + 1);

// Every column on a scale of its own: columns have different units.
function meansChart(host) {
  const width = Math.max(280, host.clientWidth), row = 18 + 9 * content.components, left = Math.min(210, width * 0.36);
  const height = content.means.length * row + 8, parts = [];
  content.means.forEach((column, place) => {
    const top = place * row + 6, middle = top + row / 2;
    const ends = column.components.flatMap(([mean, spread]) => [mean - spread, mean + spread]).filter(known);
    const x = scale(padded(extent(ends), 0.06), [left + 12, width - 16]);
    parts.push(shape("line", { class: "gridline", x1: left, x2: width - 10, y1: top + row - 2, y2: top + row - 2 }));
    parts.push(shape("text", { class: "strong", x: left - 4, y: middle + 4, "text-anchor": "end" }, shortened(column.name, Math.floor(left / 7.4))));
    column.components.forEach(([mean, spread], component) => {
      if (!known(mean)) return;
      const at = top + (row - 4) * (component + 1) / (content.components + 1);
      if (known(spread)) parts.push(shape("line", { x1: x(mean - spread), x2: x(mean + spread), y1: at, y2: at, stroke: colour(component), "stroke-width": 2 }));
      parts.push(explained(marker(component, x(mean), at, 4.4), column.name, () => [tipLine(null, componentName(component), `${number(mean)} ± ${number(spread)}`)]));
    });
  });
  host.replaceChildren(picture(width, height, "Means of the columns in every component, with one standard deviation to either side", parts));
}

// Numbers of components that were tried, by how likely held-out rows are.
function triedChart(host) {
  const tried = content.tried.filter((one) => known(one.held_out));
  const width = Math.max(280, host.clientWidth), height = 260;
  const { area, x, y, parts } = frame(width, height, { xDomain: padded(extent(tried.map((one) => one.components)), 0.05), yDomain: padded(extent(tried.map((one) => one.held_out)), 0.08), xWrite: number, yWrite: number, xTitle: "components", yTitle: "log density of held-out rows", right: 16 });
  const placed = tried.map((one) => ({ ...one, at: [x(one.components), y(one.held_out)] }));
  for (const one of placed) parts.push(marker(one.full ? 1 : 0, ...one.at, one.chosen ? 6.5 : 3.6));
  const svg = picture(width, height, "The log density of held-out rows by the number of components", parts);
  nearestTip(svg, width, area, () => placed, (one) => plural(one.components, "component") + (one.chosen ? ", chosen" : ""), (one) => [
    tipLine(null, one.full ? "columns vary together" : "columns vary independently", number(one.held_out))]);
  host.replaceChildren(svg);
}

present(() => {
  const deck = `${plural(content.count, "client")}, ${plural(content.components, "kind")} of rows` + (content.families > 1 ? `, ${content.families} families of clients.` : ".");
  masthead("Kinfolk fit", "Kinds of rows", deck, [["clients by", content.client], ["rows", content.rows.toLocaleString("en")]]);
  decisions();
  understood();
  panel("components", "Components").append(tableOf("Components", content.component_table, dot));
  if (content.components > 1) drawn("means", "What sets components apart", "Means in the table's units, with one standard deviation to either side; each column on its own scale.", meansChart);
  if (content.tried.length > 1) drawn("tried", "How many components", "Held-out rows, by the number of components; the large mark is what was chosen.", triedChart);
  if (content.families > 1) panel("families", "Families of clients").append(tableOf("Families", content.table, dot));
  if (content.components > 1 && content.count > 2) drawn("map", "Who is like whom", "Every mark is how often components occur in a client's rows" + (content.families > 1 ? ", coloured by its family; fainter ones are less sure of it." : "."), mapChart);
  panel("errors", "How likely held-out rows are", "Averaged over rows, by mixtures that were learned without the row.").append(tableOf("Held-out rows", content.held_out));
  if (content.clients.some((client) => known(client.gain_error))) drawn("gains", "Who gains by joining", "Against a mixture of the client's own rows alone; above the line joining pays.", gainsChart);
  everyClient([["client", "left", (client) => client.name], ["rows", "right", (client) => client.rows],
    ...(content.families > 1 ? [["family", "right", (client) => client.family + 1], ["probability", "right", (client) => client.sure]] : []),
    ...(content.components > 1 && content.components <= 12 ? content.clients[0].weights.map((_, place) => [componentName(place), "right", (client) => client.weights[place]]) : []),
    ["log density", "right", (client) => client.density], ["outlier", "left", (client) => client.outlier ? "yes" : ""],
    ["served by", "left", (client) => client.served], ["joining", "left", (client) => client.joining], ["gain", "right", (client) => client.gain]],
  "How often components occur in what serves each client, and how likely its held-out rows are.");
  if (content.remarks.length) panel("notes", "Notes").append(element("ul", { class: "notes" }, content.remarks.map((note) => element("li", {}, note))));
}, () => drawings.forEach((drawing) => drawing()));
