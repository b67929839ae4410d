//! Tables for the terminal, and the result table of a run.

use crate::record::{MethodSummary, Summary};
use crate::text::printable;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A column's heading and alignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// The alignment of its cells.
    pub align: Align,
}

/// Rows of text under headings; `Display` pads them for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column of words.
    pub fn words(self, title: impl Into<String>) -> Self {
        self.column(title, Align::Left)
    }

    /// Adds a column of numbers.
    pub fn numbers(self, title: impl Into<String>) -> Self {
        self.column(title, Align::Right)
    }

    fn column(mut self, title: impl Into<String>, align: Align) -> Self {
        self.columns.push(Column { title: one_line(&title.into()), align });
        self
    }

    /// Adds a row; missing cells are empty, cells beyond the columns are dropped.
    pub fn push(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| one_line(&cell.into())).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Adds a column with a cell for every row, unless all of them are empty.
    fn fill(&mut self, title: impl Into<String>, align: Align, cells: Vec<String>) {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.columns.push(Column { title: one_line(&title.into()), align });
            self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(one_line(&cell)));
        }
    }

    /// The headings.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (self.columns.iter().enumerate())
            .map(|(index, column)| {
                self.rows.iter().map(|row| width(&row[index])).chain([width(&column.title)]).max().unwrap_or(0)
            })
            .collect();
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.clone()).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        for row in [&titles, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, column), wanted) in row.iter().zip(&self.columns).zip(&widths) {
                let padding = " ".repeat(wanted - width(cell));
                match column.align {
                    Align::Left => line.extend([cell.as_str(), &padding, "  "]),
                    Align::Right => line.extend([padding.as_str(), cell, "  "]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Line breaks become spaces, and escape sequences are spelt out.
fn one_line(text: &str) -> String {
    printable(&text.replace(['\n', '\t', '\r'], " ")).into_owned()
}

/// Width of a text in terminal cells: 0 for combining marks, 2 for East Asian wide characters and pictographs, else 1.
fn width(text: &str) -> usize {
    text.chars()
        .map(|character| match u32::from(character) {
            0x0300..=0x036F
            | 0x0483..=0x0489
            | 0x0591..=0x05BD
            | 0x064B..=0x065F
            | 0x200B..=0x200F
            | 0x20D0..=0x20FF
            | 0xFE00..=0xFE0F
            | 0xFE20..=0xFE2F => 0,
            0x1100..=0x115F
            | 0x2E80..=0x303E
            | 0x3041..=0xA4CF
            | 0xAC00..=0xD7A3
            | 0xF900..=0xFAFF
            | 0xFE30..=0xFE4F
            | 0xFF00..=0xFF60
            | 0xFFE0..=0xFFE6
            | 0x1F300..=0x1F64F
            | 0x1F680..=0x1F6FF
            | 0x1F900..=0x1F9FF
            | 0x20000..=0x3FFFD => 2,
            _ => 1,
        })
        .sum()
}

/// Format of a number in the result table.
#[derive(Clone, Copy)]
enum Unit {
    /// Two decimals of a share times hundred.
    Percent,
    /// Four significant digits.
    Significant,
    /// Three decimals.
    Index,
    /// Millions, in three significant digits.
    Millions,
    /// Three significant digits, at most four decimals.
    Seconds,
}

impl Unit {
    fn of(metric: &str) -> Self {
        if matches!(metric, "accuracy" | "row_error") { Unit::Percent } else { Unit::Significant }
    }

    fn write(self, mean: f64, sd: Option<f64>) -> String {
        let scale = match self {
            Unit::Percent => 100.0,
            Unit::Millions => 1e-6,
            Unit::Significant | Unit::Index | Unit::Seconds => 1.0,
        };
        let (mean, sd) = (mean * scale, sd.map(|sd| sd * scale));
        let size = mean.abs();
        let scientific = matches!(self, Unit::Significant) && size != 0.0 && !(1e-4..1e7).contains(&size);
        let decimals = match self {
            Unit::Percent => 2,
            Unit::Index => 3,
            Unit::Significant if size < 1e-4 => 3,
            Unit::Significant => (3 - size.log10().floor() as i32).clamp(0, 7) as usize,
            Unit::Millions | Unit::Seconds if size == 0.0 => 0,
            Unit::Millions | Unit::Seconds => (2 - size.max(1e-4).log10().floor() as i32).clamp(0, 4) as usize,
        };
        let one = |value: f64| if scientific { format!("{value:.2e}") } else { format!("{value:.decimals$}") };
        sd.map_or_else(|| one(mean), |sd| format!("{} ± {}", one(mean), one(sd)))
    }
}

/// The result table of a run, one row per method in order, without columns that apply to no method.
pub fn results(summary: &Summary) -> Table {
    let methods = &summary.methods;
    let metrics: Vec<Option<&str>> = methods.iter().map(metric_name).collect();
    let mut named = metrics.iter().flatten();
    let first = named.next().copied();
    let shared = first.filter(|first| named.all(|name| name == first));
    let title = match shared.map(|name| (name, Unit::of(name))) {
        Some((name, Unit::Percent)) => format!("{name} %"),
        Some((name, _)) => name.to_string(),
        None => "metric".to_string(),
    };
    let percent = if matches!(shared.map(Unit::of), Some(Unit::Percent)) { " %" } else { "" };
    let of_metric = |path: [&str; 2]| -> Vec<String> {
        let write = |(method, metric): (&MethodSummary, &Option<&str>)| {
            let unit = Unit::of((*metric)?);
            let text = spread(method, &path, unit)?;
            Some(match (shared, unit) {
                (None, Unit::Percent) => format!("{text} %"),
                _ => text,
            })
        };
        methods.iter().zip(&metrics).map(|pair| write(pair).unwrap_or_default()).collect()
    };
    let plain = |field: &str, unit: Unit| -> Vec<String> {
        methods.iter().map(|method| spread(method, &[field], unit).unwrap_or_default()).collect()
    };
    let total = |field: &str, unit: Unit| -> Vec<String> {
        let write = |method: &MethodSummary| number(&method.mean, &[field]).map(|mean| unit.write(mean, None));
        methods.iter().map(|method| write(method).unwrap_or_default()).collect()
    };
    let mut main = of_metric(["metric", "mean"]);
    if shared.is_none() {
        for (cell, metric) in main.iter_mut().zip(&metrics).filter(|(cell, _)| !cell.is_empty()) {
            *cell = format!("{} {cell}", metric.unwrap_or_default());
        }
    }
    let mut table = Table::new().words("method");
    methods.iter().for_each(|method| table.push([&method.label]));
    table.fill("status", Align::Left, methods.iter().map(status).collect());
    table.fill(title, Align::Right, main);
    table.fill(format!("worst decile{percent}"), Align::Right, of_metric(["metric", "worst_decile"]));
    table.fill(format!("unseen{percent}"), Align::Right, of_metric(["unseen", "mean"]));
    table.fill("misclustering %", Align::Right, plain("misclustering", Unit::Percent));
    table.fill("ARI", Align::Right, plain("ari", Unit::Index));
    table.fill("parameter error", Align::Right, plain("parameter_error", Unit::Significant));
    table.fill("normalised MSE", Align::Right, plain("normalised_mse", Unit::Significant));
    table.fill("centre error", Align::Right, plain("centre_error", Unit::Significant));
    table.fill("weight error", Align::Right, plain("weight_error", Unit::Significant));
    table.fill("outlier AUC", Align::Right, plain("outlier_auc", Unit::Index));
    table.fill("MB down", Align::Right, total("bytes_down", Unit::Millions));
    table.fill("MB up", Align::Right, total("bytes_up", Unit::Millions));
    table.fill("seconds", Align::Right, total("seconds", Unit::Seconds));
    table
}

/// The result table followed by the remarks on each method: the text a run prints.
pub fn results_with_notes(summary: &Summary) -> String {
    let mut text = results(summary).to_string();
    let mut separator = "\n";
    for method in &summary.methods {
        for remark in method.remarks() {
            let lead = if remark.warning { "warning: " } else { "" };
            text.push_str(&format!("{separator}{}: {lead}{}\n", one_line(&method.label), one_line(&remark.text)));
            separator = "";
        }
    }
    text
}

/// The name of the metric a method was scored with.
pub(super) fn metric_name(method: &MethodSummary) -> Option<&str> {
    let mut scored = method.repeats.iter().filter_map(|repeat| repeat.metric.as_ref().or(repeat.unseen.as_ref()));
    scored.next().map(|metric| metric.name.as_str())
}

/// Empty for a method that is done; with a count where only some repeats ended this way.
fn status(method: &MethodSummary) -> String {
    if method.status == "done" {
        return String::new();
    }
    let ended = method.repeats.iter().filter(|repeat| repeat.status == method.status).count();
    if ended == method.repeats.len() {
        method.status.clone()
    } else {
        format!("{} {ended}/{}", method.status, method.repeats.len())
    }
}

fn spread(method: &MethodSummary, path: &[&str], unit: Unit) -> Option<String> {
    let sd = method.sd.as_ref().and_then(|sd| number(sd, path));
    number(&method.mean, path).map(|mean| unit.write(mean, sd))
}

fn number(value: &Value, path: &[&str]) -> Option<f64> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{MetricSummary, fabricated};
    use serde_json::json;

    fn summary(methods: Vec<MethodSummary>) -> Summary {
        Summary { methods, ..fabricated::record().summary }
    }

    #[test]
    fn pads_by_what_the_terminal_shows() {
        let mut table = Table::new().words("name").numbers("size");
        table.push(["né", "1"]);
        table.push(["日本", "12345"]);
        table.push(["e\u{301}\n\u{1b}[31m"]);
        assert_eq!(
            table.to_string(),
            "name           size\n------------  -----\nné                1\n日本          12345\ne\u{301} \\u{1b}[31m\n"
        );
    }

    #[test]
    fn shows_what_applies_and_leaves_the_rest_out() {
        let mut repeats = vec![fabricated::repeat(0), fabricated::repeat(1)];
        repeats[0].metric = Some(fabricated::accuracy(0.75));
        repeats[1].metric = Some(fabricated::accuracy(0.5));
        repeats.iter_mut().for_each(|repeat| repeat.ari = Some(1.0));
        repeats[0].notes.push("cluster 1 is empty".into());
        let mut broken = fabricated::repeat(0);
        broken.status = "diverged".into();
        broken.reason = Some("loss is infinite".into());
        let text = results_with_notes(&summary(vec![
            MethodSummary::of("ifca", "ifca", json!({}), repeats),
            MethodSummary::of("wild", "ifca", json!({}), vec![broken]),
        ]));
        let expected = "\
method  status       accuracy %  worst decile %            ARI  MB down   MB up  seconds
------  --------  -------------  --------------  -------------  -------  ------  -------
ifca              62.50 ± 17.68   37.50 ± 17.68  1.000 ± 0.000     1.50  0.0004    0.250
wild    diverged                                                   1.50  0.0004    0.250

ifca: seed 0: cluster 1 is empty
wild: warning: diverged: loss is infinite
";
        assert_eq!(text, expected);
    }

    #[test]
    fn different_metrics_are_named_in_their_cells() {
        let mut first = fabricated::repeat(0);
        first.metric = Some(fabricated::accuracy(0.5));
        let mut second = fabricated::repeat(0);
        second.metric = Some(MetricSummary { name: "mse".into(), ..fabricated::accuracy(12.3456) });
        let table = results(&summary(vec![
            MethodSummary::of("a", "ifca", json!({}), vec![first]),
            MethodSummary::of("b", "ifca", json!({}), vec![second]),
        ]));
        assert_eq!(table.columns()[1].title, "metric");
        assert_eq!(table.rows()[0][1], "accuracy 50.00 %");
        assert_eq!(table.rows()[1][1], "mse 12.35");
    }

    #[test]
    fn numbers_of_any_size_stay_readable() {
        assert_eq!(Unit::Significant.write(0.0, None), "0.000");
        assert_eq!(Unit::Significant.write(0.01234567, Some(0.001)), "0.01235 ± 0.00100");
        assert_eq!(Unit::Significant.write(3.2e-7, None), "3.20e-7");
        assert_eq!(Unit::Significant.write(123456.0, None), "123456");
        assert_eq!(Unit::Millions.write(0.0, None), "0");
        assert_eq!(Unit::Millions.write(48_234_000.0, None), "48.2");
    }

    #[test]
    fn a_run_without_methods_is_a_table_without_rows() {
        assert_eq!(results(&summary(vec![])).to_string(), "method\n------\n");
    }
}
