present(() => {
  masthead(...heading());
  decisions();
  understood();
  if (content.families > 1) panel("families", "Families").append(tableOf("Families", content.table, dot));
  if (content.cloud) drawn("cloud", "One cloud, or several?", "Every client's own estimate, in the direction in which " + (content.families > 1 ? "the two largest families differ" : "clients differ most") + ". The dashed line is one cloud of the same mean and deviation; those farther out are in the outermost bars.", cloudChart);
  if (content.clients.some((client) => drawable(client.place))) drawn("map", "Who is like whom", "Every mark is a client's personal model" + (content.families > 1 ? ", coloured by its family; fainter ones are less sure of it." : "."), mapChart);
  if (content.terms.length) drawn("terms", content.families > 1 ? "What sets families apart" : "What matters most",
    content.about.terms + (content.families > 1 ? " The dotted line is everybody's." : ""), termsChart);
  if (content.curves.length) curvePanel();
  panel("errors", "How well rows are predicted", "Averaged over clients. " + content.about.errors).append(tableOf("Errors", content.errors));
  if (content.residuals) drawn("residuals", "Whether intervals can be trusted", `By how much held-out rows missed their predictions, beside a normal distribution (dashed). Intervals of 90 % covered ${percent(content.coverage)} of rows of clients whose residuals were not used for their reach.`, residualsChart);
  if (content.calibration.length) drawn("calibration", "Whether probabilities can be trusted", "Held-out rows; on the dashed line, probabilities are what they say. Larger marks are more rows.", calibrationChart);
  if (content.clients.some((client) => known(client.gain_error))) drawn("gains", "Who gains by joining", content.about.gains, gainsChart);
  clientsTable();
  if (content.remarks.length) panel("notes", "Notes").append(element("ul", { class: "notes" }, content.remarks.map((note) => element("li", {}, note))));
}, () => drawings.forEach((drawing) => drawing()));
