// ---------------------------------------------------------------- marks: colour and shape tell clusters apart together

const path = content.path;
const clusterName = (cluster) => cluster === null ? "several clusters" : "cluster " + cluster;
const paint = (cluster) => cluster === null ? "var(--soft)" : colour(cluster);

// Points that fit no cluster are set aside: rings without a colour.
const aside = (x, y, size) => shape("circle", { cx: x, cy: y, r: 0.8 * size, fill: "none", stroke: "var(--soft)", "stroke-width": 1.4 });
const mark = (cluster, x, y, size) => cluster === null ? aside(x, y, size) : marker(cluster, x, y, size);
const inCluster = ({ cluster }) => cluster === null ? [tipLine(null, "set aside: fits no cluster", "")] : [element("div", {}, dot(cluster), element("span", {}, clusterName(cluster)))];
const lambdaText = (step) => `λ = ${number(step.lambda)}: ${plural(step.clusters, "cluster")}`;

// More marks than this are drawn as plain dots, one path a cluster.
const SHAPES = 600;

// Many points of one cluster as one path: lines of no length with round ends.
function dots(cluster, places, size, opacity) {
  const d = places.map(([x, y]) => `M${x.toFixed(1)},${y.toFixed(1)}h0`).join("");
  return shape("path", { class: "dots", "data-cluster": cluster, d, fill: "none", stroke: paint(cluster), "stroke-width": size, "stroke-linecap": "round", "stroke-opacity": opacity });
}

// ---------------------------------------------------------------- pictures

function planeChart(host) {
  const points = content.plane.points.filter((point) => drawable(point.place));
  const width = Math.max(280, host.clientWidth);
  const { area, x, y, parts, height } = planeFrame(width, points.map((point) => point.place));
  const placed = points.map((point) => ({ ...point, at: [x(point.place[0]), y(point.place[1])] }));
  if (placed.length <= SHAPES) {
    for (const point of placed) {
      const drawn = mark(point.cluster, ...point.at, placed.length <= 150 ? 4 : 3);
      drawn.setAttribute("class", "point");
      drawn.setAttribute("fill-opacity", 0.85);
      parts.push(drawn);
    }
  } else {
    const groups = new Map();
    for (const point of placed) groups.set(point.cluster, [...(groups.get(point.cluster) || []), point.at]);
    for (const [cluster, places] of groups) parts.push(dots(cluster, places, 3.4, 0.55));
  }
  content.plane.centres.forEach((place, cluster) => {
    if (!drawable(place) || content.clusters > 200) return;
    const at = [x(place[0]), y(place[1])], mark = marker(cluster, ...at, 7);
    mark.setAttribute("class", "centre");
    mark.setAttribute("style", "stroke:var(--ink);stroke-width:1.6");
    parts.push(mark);
    if (content.clusters <= 40) parts.push(shape("text", { class: "strong halo", x: at[0] + 11, y: at[1] - 7, style: "font-size:15px;font-weight:700" }, cluster));
  });
  const svg = picture(width, height, `${plural(content.points, "point")} in ${plural(content.clusters, "cluster")}, in the two principal directions, with the centre of every cluster`, parts);
  nearestTip(svg, width, area, () => placed, (point) => point.name, inCluster);
  host.replaceChildren(svg);
}

// Where points go as λ grows, and where they are now.
let showStep = () => {};
function trajectoryChart(host) {
  const followed = path.trajectories.filter((one) => one.places.length && [one.start, ...one.places].every(drawable));
  const width = Math.max(280, host.clientWidth);
  const { area, x, y, parts, height } = planeFrame(width, followed.flatMap((one) => [one.start, ...one.places]));
  const at = (place) => [x(place[0]), y(place[1])];
  const faint = Math.max(0.16, Math.min(0.6, 12 / Math.sqrt(followed.length + 1) / 3));
  for (const one of followed) parts.push(shape("path", { class: "trajectory", d: line([one.start, ...one.places], x, y), stroke: paint(one.cluster), fill: "none", "stroke-width": 1.2, "stroke-opacity": faint, "stroke-linejoin": "round" }));
  for (const one of followed) parts.push(shape("circle", { cx: x(one.start[0]), cy: y(one.start[1]), r: 1.8, fill: paint(one.cluster), "fill-opacity": 0.7 }));
  const marks = followed.map((one) => {
    const drawn = mark(one.cluster, 0, 0, followed.length <= 150 ? 4.4 : 3.2);
    drawn.setAttribute("class", "now");
    return drawn;
  });
  const svg = picture(width, height, `How ${plural(followed.length, "point")} move together as λ grows, in the two principal directions`, parts, marks);
  let places = [];
  showStep = (step) => {
    places = followed.map((one) => ({ ...one, at: at(one.places[Math.min(step, one.places.length - 1)]) }));
    marks.forEach((mark, place) => mark.setAttribute("transform", `translate(${places[place].at.map((value) => value.toFixed(1)).join(" ")})`));
  };
  nearestTip(svg, width, area, () => places, (one) => one.name, inCluster);
  host.replaceChildren(svg);
}

// The axis of λ that the tree and the counts share. A λ of 0 lies at its left end.
function lambdaAxis(width, left) {
  const positive = path.steps.map((step) => step.lambda).filter((lambda) => lambda > 0);
  const [low, high] = positive.length ? extent(positive) : [1, 1];
  const domain = low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  return { domain, left, right: 16, width };
}

const hairs = [];
function hair(area, x) {
  const mark = shape("line", { class: "crosshair", y1: area.top, y2: area.bottom });
  hairs.push((lambda) => { const at = lambda > 0 ? x(lambda) : area.left; mark.setAttribute("x1", at); mark.setAttribute("x2", at); });
  return mark;
}

function treeChart(host, axis) {
  const { leaves, joins } = path.tree;
  const row = Math.max(3.2, Math.min(17, 620 / leaves.length)), height = Math.round(leaves.length * row + 34);
  const area = { left: axis.left, right: axis.width - axis.right, top: 22, bottom: height - 12 };
  const x = scale(axis.domain, [area.left, area.right], true);
  const place = (lambda) => lambda > 0 ? x(lambda) : area.left;
  const nodes = leaves.map((leaf, index) => ({ x: area.left, y: area.top + (index + 0.5) * row, cluster: leaf.cluster, size: leaf.size, first: index, last: index, parent: false }));
  const parts = [];
  const branch = (node, until) => shape("line", { class: "branch", x1: node.x, x2: until, y1: node.y, y2: node.y, stroke: paint(node.cluster) });
  for (const join of joins) {
    const children = join.children.map((child) => nodes[child]), step = path.steps[join.step];
    const clusters = new Set(children.map((child) => child.cluster));
    const node = { x: place(step.lambda), y: mean(children.map((child) => child.y)), cluster: clusters.size === 1 ? children[0].cluster : null, size: sum(children.map((child) => child.size)), parent: false };
    const tell = (branch) => explained(branch, plural(node.size, "point") + " together", () => [tipLine(null, `by λ = ${number(step.lambda)}`, ""), tipLine(null, clusterName(node.cluster), "")]);
    for (const child of children) {
      child.parent = true;
      parts.push(tell(branch(child, node.x)));
    }
    parts.push(tell(shape("line", { class: "branch", x1: node.x, x2: node.x, y1: children[0].y, y2: children[children.length - 1].y, stroke: paint(node.cluster) })));
    nodes.push(node);
  }
  for (const node of nodes) if (!node.parent) parts.push(branch(node, area.right));
  if (row >= 9 && axis.left > 100) leaves.forEach((leaf, index) => parts.push(shape("text", { x: area.left - 14, y: nodes[index].y + 4, "text-anchor": "end", "font-size": Math.min(12, row) },
    shortened(leaf.name, 15) + (leaf.size > 1 ? ` + ${leaf.size - 1}` : ""))));
  leaves.forEach((leaf, index) => {
    const mark = shape("rect", { class: "leaf", x: area.left - 9, y: nodes[index].y - row / 2, width: 7, height: row, fill: paint(leaf.cluster) });
    parts.push(explained(mark, leaf.size > 1 ? `${leaf.name} and ${leaf.size - 1} more` : leaf.name, () => [tipLine(null, leaf.cluster === null && leaf.size === 1 ? "set aside" : clusterName(leaf.cluster), "")]));
  });
  if (known(path.lambda)) {
    const at = place(path.lambda), end = at > area.right - 130;
    parts.push(shape("line", { class: "chosen", x1: at, x2: at, y1: 14, y2: area.bottom }), shape("text", { class: "strong halo", x: end ? at - 6 : at + 6, y: 12, "text-anchor": end ? "end" : "start" }, `${plural(content.clusters, "cluster")} at λ = ${number(path.lambda)}`));
  }
  host.append(picture(axis.width, height, `Fusion tree: ${plural(content.points, "point")} come together as λ grows`, parts, hair(area, x)));
}

// A number of clusters holds from its λ to the next.
function countChart(host, axis) {
  const most = extent(path.steps.map((step) => step.clusters))[1], height = 190, yLog = most > 30;
  const { area, x, y, parts } = frame(axis.width, height, {
    xDomain: axis.domain, xLog: true, yDomain: yLog ? [0.8, most * 1.15] : [0, most + 0.5], yLog, xWrite: number, yWrite: number,
    xTitle: "λ", yTitle: "clusters", left: axis.left, right: axis.right, whole: true,
  });
  const place = (lambda) => lambda > 0 ? x(lambda) : area.left;
  let d = "";
  path.levels.forEach((level, index) => {
    const last = index === path.levels.length - 1, from = index ? place(level.from) : area.left, to = last ? area.right : place(level.to), at = y(level.clusters);
    d += `${index ? "L" : "M"}${from.toFixed(1)},${at.toFixed(1)}L${to.toFixed(1)},${at.toFixed(1)}`;
    const current = known(path.lambda) && level.clusters === content.clusters && level.from <= path.lambda && (last || path.lambda < level.to);
    if (current) parts.push(shape("line", { class: "current", x1: from, x2: to, y1: at, y2: at }));
    const catcher = shape("rect", { class: "capture level", x: from, y: area.top, width: Math.max(1, to - from), height: area.bottom - area.top });
    parts.push(explained(catcher, plural(level.clusters, "cluster"), () => [tipLine(null, "from λ", number(level.from)), tipLine(null, "to", number(level.to))]));
  });
  parts.push(shape("path", { class: "counts", d, fill: "none", stroke: "var(--ink)", "stroke-width": 1.6, "pointer-events": "none" }));
  host.append(picture(axis.width, height, `Clusters against λ: from ${path.steps[0].clusters} down to ${path.steps[path.steps.length - 1].clusters}`, parts, hair(area, x)));
}

// ---------------------------------------------------------------- panels

const drawings = [];

function heading() {
  const deck = `${plural(content.clusters, "cluster")} of ${plural(content.points, "point")} in ${plural(content.columns.length, "column")}, by ${content.method}.`;
  return ["Kinfolk clustering report", content.source, deck, content.facts];
}

function clusters() {
  const section = panel("clusters", "Clusters", "Centres are the means of their points; the radius is the distance of the farthest one.");
  const { columns, rows } = content.table;
  section.append(scrolled("Clusters",
    element("thead", {}, element("tr", {}, columns.map((column) => element("th", { scope: "col", class: column.align }, column.title)))),
    element("tbody", {}, rows.map((texts, row) => element("tr", {}, texts.map((text, column) => column === 0
      ? element("th", { scope: "row" }, dot(row), element("span", { class: "name" }, text)) : element("td", { class: columns[column].align }, text)))))));
  const left = [content.clusters > rows.length ? plural(content.clusters - rows.length, "more cluster") : null, content.columns.length > columns.length - 3 ? plural(content.columns.length - columns.length + 3, "more column") : null].filter(Boolean);
  if (left.length) section.append(element("p", { class: "aside" }, `And ${sentence(left)} in centres.csv.`));
}

function notes() {
  if (!content.notes.length) return;
  panel("notes", "Notes").append(element("ul", { class: "notes" }, content.notes.map((note) => element("li", {}, note))));
}

function plane() {
  const shown = content.plane.points.length;
  const words = ["Every mark is a point, coloured by its cluster; the large ones with a number are the centres."];
  if (content.plane.points.some((point) => point.cluster === null)) words.push("Rings fit no cluster and are set aside.");
  if (known(content.plane.share)) words.push(`These two directions carry ${number(100 * Math.round(1000 * content.plane.share) / 1000)} % of the spread.`);
  if (shown < content.points) words.push(`Drawn are ${shown.toLocaleString("en")} of ${content.points.toLocaleString("en")} points, evenly picked.`);
  const host = element("figure", { class: "wide" });
  panel("plane", "In two principal directions", words.join(" ")).append(host);
  drawings.push(() => planeChart(host));
}

// The slider goes over the steps at which points are followed.
function slider() {
  const said = element("output", { class: "said" });
  const nearest = () => {
    const reached = (step) => known(path.lambda) ? step.lambda <= path.lambda : step.clusters >= content.clusters;
    return Math.max(0, path.followed.filter((step) => reached(path.steps[step])).length - 1);
  };
  const input = element("input", { type: "range", min: 0, max: path.followed.length - 1, step: 1, value: nearest(), "aria-label": "λ" });
  const show = () => {
    const step = path.steps[path.followed[Number(input.value)]];
    said.textContent = lambdaText(step);
    input.setAttribute("aria-valuetext", lambdaText(step));
    showStep(Number(input.value));
    hairs.forEach((move) => move(step.lambda));
  };
  input.addEventListener("input", show);
  return { control: element("label", { class: "choice slider" }, "λ", input, said), show };
}

function trajectories() {
  if (!path) return;
  const { control, show } = slider();
  const followed = path.trajectories.length;
  const words = ["Every point travels from its place towards the others; lines that meet have become one. Move the slider to see where points are at a λ."];
  if (followed < content.points) words.push(`Followed are ${followed.toLocaleString("en")} of ${content.points.toLocaleString("en")} points, evenly picked.`);
  if (path.followed.length < path.steps.length) words.push(`Drawn at ${path.followed.length} of ${path.steps.length} values of λ.`);
  const section = panel("path", "As λ grows", words.join(" "), control);
  const host = element("figure", { class: "wide" });
  section.append(host);
  drawings.push(() => trajectoryChart(host));

  const tree = path.tree;
  const grouped = tree && tree.leaves.some((leaf) => leaf.size > 1);
  const lede = !tree ? "The points never come together in few enough groups to draw a tree; below, how many clusters there are."
    : (grouped ? `Leaves are the ${tree.leaves.length} groups that were there when at most 200 were left.` : "Leaves are points.")
    + " Lines meet at the first λ at which their points are one, and those near each other stand side by side; below, how many clusters there are. The longer a number lasts, the more it is in the data."
    + (tree.came_apart ? " Some groups came apart again at a larger λ; the tree shows when they first met." : "");
  const below = panel("tree", tree ? "Fusion tree" : "Clusters against λ", lede);
  const figure = element("figure", { class: "wide" });
  below.append(figure);
  drawings.push(() => {
    figure.replaceChildren();
    hairs.length = 0;
    const axis = lambdaAxis(Math.max(280, figure.clientWidth), figure.clientWidth > 520 && tree && tree.leaves.length <= 68 ? 128 : 56);
    if (tree) treeChart(figure, axis);
    countChart(figure, axis);
    show();
  });
  below.append(element("details", {}, element("summary", {}, "Levels"), scrolled("Levels of the path",
    element("thead", {}, element("tr", {}, ["clusters", "from λ", "to λ", "lasts"].map((title) => element("th", { scope: "col", class: "right" }, title)))),
    element("tbody", {}, path.levels.map((level) => element("tr", {}, [number(level.clusters), number(level.from), number(level.to), number(level.to - level.from)].map((text) => element("td", { class: "right" }, text))))))));
}

present(() => {
  masthead(...heading());
  clusters();
  notes();
  plane();
  trajectories();
}, () => drawings.forEach((drawing) => drawing()));
