present(() => {
  masthead(...heading());
  decisions();
  understood();
  if (content.families > 1) panel("families", "Families").append(tableOf("Families", content.table, dot));
  if (content.terms.length) drawn("terms", content.families > 1 ? "What sets families apart" : "What matters most",
    "By how much the prediction changes in the mean over rows: for one unit more of a number, or if all rows were of that word. Each on its own scale." + (content.families > 1 ? " The dotted line is everybody's." : ""), termsChart);
  panel("errors", "How well rows are predicted", "In the mean over clients. Held out: by networks that were trained without the row.").append(tableOf("Errors", content.errors));
  if (content.residuals) drawn("residuals", "Whether intervals can be trusted", `By how much held-out rows missed their predictions, beside a normal distribution (dashed). Intervals of 90 % covered ${percent(content.coverage)} of rows of clients whose residuals were not used for their reach.`, residualsChart);
  if (content.calibration.length) drawn("calibration", "Whether probabilities can be trusted", "Held-out rows; on the dashed line, probabilities are what they say. Larger marks are more rows.", calibrationChart);
  if (content.clients.some((client) => known(client.gain_error))) drawn("gains", "Who gains by joining", "Against a network of the client's own rows alone; above the line joining pays.", gainsChart);
  clientsTable();
  if (content.remarks.length) panel("notes", "Notes").append(element("ul", { class: "notes" }, content.remarks.map((note) => element("li", {}, note))));
}, () => drawings.forEach((drawing) => drawing()));
