// ---------------------------------------------------------------- distances

// How many pairs of clients are how far apart, and where λ divides them.
function distancesChart(host, method, index, repeat) {
  const { lambda, reason, pairs, from, to, bars, truth } = repeat.distances;
  const facts = [plural(pairs, "pair"), known(lambda) ? `λ ${number(lambda)}` : "one cluster", reason];
  host.replaceChildren(element("figcaption", {}, swatch(index), element("h3", {}, method.label), element("span", {}, facts.join(" · "))));
  const width = Math.max(280, host.clientWidth), height = 180, highest = Math.max(...bars.map(([same, other]) => same + other));
  const { area, x, parts } = frame(width, height, { xDomain: [from, to], yDomain: [0, highest], xWrite: number, yWrite: () => "", bare: true, right: 16 });
  const base = area.bottom - 2, tall = scale([0, highest], [0, base - area.top - 14]), step = (to - from) / bars.length;
  bars.forEach(([same, other], place) => {
    if (!same && !other) return;
    const left = from + place * step, wide = Math.max(1, x(left + step) - x(left) - 1);
    const bar = (count, above, kind) => count ? [shape("rect", { class: "bin " + kind, x: x(left) + 0.5, y: base - tall(above + count), width: wide, height: Math.max(1, tall(count)),
      fill: kind === "same" ? colour(index) : "var(--faint)", "fill-opacity": kind === "same" ? 0.85 : 0.6 })] : [];
    const whole = shape("g", {}, ...bar(same, 0, "same"), ...bar(other, same, "other"));
    parts.push(explained(whole, `${number(left)} to ${number(left + step)}`, () => truth
      ? [tipLine(null, "of one true cluster", same.toLocaleString("en")), tipLine(null, "of two", other.toLocaleString("en"))]
      : [tipLine(null, plural(same + other, "pair"), "")]));
  });
  if (known(lambda) && lambda >= from && lambda <= to) parts.push(
    shape("line", { class: "lambda", x1: x(lambda), x2: x(lambda), y1: area.top, y2: base, stroke: "var(--ink)", "stroke-width": 1.4, "stroke-dasharray": "5 3" }),
    shape("text", { class: "strong halo", x: x(lambda) + 5, y: area.top + 10 }, "λ"));
  host.append(picture(width, height, `Distances between clients, ${method.label}, seed ${repeat.summary.seed}`, parts));
}
