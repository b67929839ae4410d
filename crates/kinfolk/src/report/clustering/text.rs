//! A clustering for the terminal.

use super::*;

/// Upper bound on the rows of a table, to fit on a screen.
pub(super) const MOST_ROWS: usize = 30;
/// Upper bound on the coordinates of a centre, to fit on a line.
const MOST_COORDINATES: usize = 4;

/// Tables and remarks: the text a command prints.
pub fn text(record: &ClusteringRecord) -> String {
    let summary = &record.summary;
    let mut text = summary.table(Table::new().numbers("cluster"), MOST_COORDINATES, Some("…")).to_string();
    let rest = summary.clusters.saturating_sub(MOST_ROWS);
    if rest > 0 {
        text += &format!("and {rest} more\n");
    }
    text.push('\n');
    text += &format!(
        "{} of {} in {}, by {} in {} s\n",
        counted(summary.clusters, "cluster"),
        counted(summary.labels.len(), "point"),
        counted(summary.columns.len(), "column"),
        summary.method,
        significant(summary.seconds, 3)
    );
    for (name, value) in facts(record) {
        text += &format!("{name}: {value}\n");
    }
    if let Some(path) = &record.found.path {
        text += &format!("\n{}", path_table(path));
    }
    let mut separator = "\n";
    for note in &summary.notes {
        text += &format!("{separator}note: {note}\n");
        separator = "";
    }
    text
}

/// Further facts about the clustering, as name and value.
pub(super) fn facts(record: &ClusteringRecord) -> Vec<(&'static str, String)> {
    let summary = &record.summary;
    let mut facts = Vec::new();
    if summary.standardised {
        let units = "columns had mean 0 and deviation 1 when clustered; only centres are in the units of the file";
        facts.push(("standardised", units.to_string()));
    }
    if let Some(word) = &summary.sureness {
        let reason = summary.sureness_reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        facts.push(("how sure", format!("{word}{reason}")));
    }
    if let Some(lambda) = record.found.lambda {
        facts.push(("λ", significant(lambda, 5)));
    }
    if let Some(certificate) = &record.found.certificate {
        let relative = certificate.gap / certificate.primal.abs().max(f64::MIN_POSITIVE);
        facts.push((
            "certificate",
            format!(
                "primal {}, dual {}, relative gap {}",
                significant(certificate.primal, 8),
                significant(certificate.dual, 8),
                significant(if certificate.gap == 0.0 { 0.0 } else { relative }, 2)
            ),
        ));
        facts.push(("undecided pairs", certificate.undecided.to_string()));
    }
    if let Some(separability) = summary.separability {
        let mut text = significant(separability, 4);
        if let (Some(kmeans), Some(convex)) = (summary.separability_kmeans, summary.separability_convex) {
            text += &format!(
                "; recovery is proven from {} on for k-means, from {} on for convex clustering",
                significant(kmeans, 4),
                significant(convex, 4)
            );
        }
        facts.push(("separability", text));
    }
    if let Some([from, to]) = summary.recovery {
        let (low, high) = (significant(from, 5), significant(to, 5));
        let none = if from < to { "" } else { "none, as it would be " };
        facts.push(("λ proven to recover it", format!("{none}{low} ≤ λ < {high}")));
    }
    facts
}

/// The levels of a path, or, where they are many, the longest of them, in order.
fn path_table(path: &Path) -> Table {
    let mut levels = path.levels();
    levels.sort_by(|a, b| b.life().total_cmp(&a.life()));
    levels.truncate(MOST_ROWS);
    levels.sort_by_key(|level| level.first);
    let mut table = Table::new().numbers("clusters").numbers("from λ").numbers("to λ").numbers("lasts");
    for level in &levels {
        let [from, to] = level.lambda;
        table.push([
            level.clusters.to_string(),
            significant(from, 4),
            significant(to, 4),
            significant(level.life(), 3),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::{ClusteringRecord, fabricated};
    use super::*;

    #[test]
    fn a_clustering_as_text() {
        let (table, found) = fabricated::two_pairs();
        let record = ClusteringRecord::of("p.csv".into(), &table, "clusterpath", &found, 0.5).unwrap();
        let text = text(&record);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cluster  points  radius  centre x  centre y");
        assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["1", "2", "0.5", "10", "0.5"]);
        assert!(text.contains("2 clusters of 4 points in 2 columns, by clusterpath in 0.5 s\n"), "{text}");
        assert!(text.contains("how sure: likely: two clusters last longest\nλ: 2\n"), "{text}");
        assert!(text.contains("certificate: primal 1.5, dual 1.5, relative gap 0\nundecided pairs: 0\n"), "{text}");
        assert!(text.ends_with("\nnote: a note\n"), "{text}");
        let table = lines.iter().position(|line| line.contains("from λ")).unwrap();
        let level = lines[table..].iter().find(|line| line.trim_start().starts_with('2')).unwrap();
        assert_eq!(level.split_whitespace().collect::<Vec<_>>(), ["2", "1", "4", "3"]);
    }
}
