//! The report page: one self-contained html file. Rust does the counting, the page's own script the drawing.

use super::comparisons::Histogram;
use super::mixtures::MixturePicture;
use super::table::{self, Table};
use crate::clustering::quality::Contingency;
use crate::record::summary::{Remark, is_higher_better};
use crate::record::{ClientRecord, Record, RepeatSummary, RoundRecord};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const CHARTS: &str = include_str!("charts.js");
const SCRIPT: &str =
    concat!(include_str!("mixtures.js"), "\n", include_str!("comparisons.js"), "\n", include_str!("page.js"));

/// Up to this many clients of a repeat are named individually on the page.
const NAMED_CLIENTS: usize = 300;

/// The report of a run as one self-contained page.
pub fn page(record: &Record) -> String {
    assemble(&Content::of(record), SCRIPT)
}

/// One self-contained page: the content, and the script that draws it with the shared charts.
pub(crate) fn assemble(content: &impl Serialize, script: &str) -> String {
    let content = serde_json::to_string(content).unwrap_or_else(|_| "null".to_string());
    // In a script only `<` can end the data or open a comment. Content goes in last, so no placeholder in it counts.
    PAGE.replacen("/*style*/", STYLE, 1).replacen("/*charts*/", CHARTS, 1).replacen("/*script*/", script, 1).replacen(
        "/*record*/",
        &content.replace('<', "\\u003c"),
        1,
    )
}

#[derive(Serialize)]
struct Content<'a> {
    name: &'a str,
    seed: u64,
    version: &'a str,
    data: &'a Value,
    table: Table,
    methods: Vec<Method<'a>>,
}

#[derive(Serialize)]
struct Method<'a> {
    label: &'a str,
    name: &'a str,
    status: &'a str,
    metric: Option<&'a str>,
    higher_is_better: bool,
    settings: &'a Value,
    remarks: Vec<Remark>,
    repeats: Vec<Repeat<'a>>,
}

#[derive(Serialize)]
struct Repeat<'a> {
    summary: &'a RepeatSummary,
    rounds: Vec<Round<'a>>,
    confusion: Option<Confusion>,
    clients: Clients<'a>,
    mixture: Option<MixturePicture<'a>>,
    distances: Option<Histogram<'a>>,
}

/// All phases of one round together.
#[derive(Default, Serialize)]
struct Round<'a> {
    round: usize,
    loss: Option<f64>,
    metric: Option<f64>,
    unseen: Option<f64>,
    switched: Option<usize>,
    sizes: &'a [usize],
    /// Payload in both directions since the start, without evaluation.
    bytes: u64,
    seconds: Option<f64>,
}

/// Clients by found cluster (rows) and true cluster (columns), matched clusters in the same place.
#[derive(Serialize)]
struct Confusion {
    found: Vec<usize>,
    truth: Vec<usize>,
    counts: Vec<Vec<usize>>,
    /// For every row the column it is matched to.
    matched: Vec<Option<usize>>,
}

/// The metric of every client, and their names where there are few.
#[derive(Serialize)]
struct Clients<'a> {
    metric: Vec<f64>,
    names: Vec<&'a str>,
}

impl<'a> Content<'a> {
    fn of(record: &'a Record) -> Self {
        let rounds = by_repeat(&record.rounds, |round| (&round.label, round.seed));
        let clients = by_repeat(&record.clients, |client| (&client.label, client.seed));
        let mixtures = by_repeat(&record.mixtures, |mixture| (&mixture.label, mixture.seed));
        let comparisons = by_repeat(&record.comparisons, |comparison| (&comparison.label, comparison.seed));
        let summary = &record.summary;
        let methods = (summary.methods.iter())
            .map(|method| {
                let metric = table::metric_name(method);
                let repeats = (method.repeats.iter())
                    .map(|summary| {
                        let key = (method.label.as_str(), summary.seed);
                        let clients = clients.get(&key).map_or(&[][..], Vec::as_slice);
                        let mixture = mixtures.get(&key).and_then(|mixtures| mixtures.last());
                        let comparison = comparisons.get(&key).and_then(|comparisons| comparisons.last());
                        Repeat {
                            summary,
                            rounds: rounds.get(&key).map_or_else(Vec::new, |rounds| merge_phases(rounds)),
                            confusion: Confusion::of(clients),
                            clients: Clients::of(clients),
                            mixture: mixture.map(|mixture| MixturePicture::of(mixture, clients)),
                            distances: comparison.and_then(|comparison| Histogram::of(comparison)),
                        }
                    })
                    .collect();
                Method {
                    label: &method.label,
                    name: &method.name,
                    status: &method.status,
                    metric,
                    higher_is_better: metric.is_some_and(is_higher_better),
                    settings: &method.settings,
                    remarks: method.remarks(),
                    repeats,
                }
            })
            .collect();
        Self {
            name: &summary.name,
            seed: summary.seed,
            version: &summary.version,
            data: &summary.data,
            table: table::results(summary),
            methods,
        }
    }
}

/// Records by the label and the seed of their repeat.
fn by_repeat<T>(records: &[T], key: impl Fn(&T) -> (&String, u64)) -> HashMap<(&str, u64), Vec<&T>> {
    let mut found: HashMap<_, Vec<&T>> = HashMap::new();
    for record in records {
        let (label, seed) = key(record);
        found.entry((label.as_str(), seed)).or_default().push(record);
    }
    found
}

fn merge_phases<'a>(records: &[&'a RoundRecord]) -> Vec<Round<'a>> {
    let mut rounds: BTreeMap<usize, Round> = BTreeMap::new();
    for record in records {
        let new = || Round { round: record.round, ..Round::default() };
        let round = rounds.entry(record.round).or_insert_with(new);
        round.loss = record.loss.and_then(shortened).or(round.loss);
        round.metric = record.metric.and_then(shortened).or(round.metric);
        round.unseen = record.unseen_metric.and_then(shortened).or(round.unseen);
        if let Some(switched) = record.switched {
            round.switched = Some(round.switched.unwrap_or(0) + switched);
        }
        if !record.sizes.is_empty() {
            round.sizes = &record.sizes;
        }
        round.seconds = shortened(record.seconds).or(round.seconds);
        if record.phase != "evaluate" {
            round.bytes += record.bytes_down + record.bytes_up;
        }
    }
    let mut total = 0;
    for round in rounds.values_mut() {
        total += round.bytes;
        round.bytes = total;
    }
    rounds.into_values().collect()
}

impl Confusion {
    /// `None` when no client has both a cluster and a true cluster.
    fn of(clients: &[&ClientRecord]) -> Option<Self> {
        let both = clients.iter().filter_map(|client| client.cluster.zip(client.true_cluster));
        let (found, truth): (Vec<usize>, Vec<usize>) = both.unzip();
        if found.is_empty() {
            return None;
        }
        let table = Contingency::of(&found, &truth);
        let matching = table.matching();
        let column_of = |found: usize| {
            matching.truth_of(found).and_then(|truth| table.truth.iter().position(|cluster| *cluster == truth))
        };
        let mut rows: Vec<(Option<usize>, usize)> =
            table.found.iter().enumerate().map(|(row, found)| (column_of(*found), row)).collect();
        // Matched rows first, in the order of their columns: agreement lies on the diagonal.
        rows.sort_by_key(|(column, row)| (column.is_none(), *column, *row));
        Some(Self {
            found: rows.iter().map(|(_, row)| table.found[*row]).collect(),
            counts: rows.iter().map(|(_, row)| table.counts[*row].clone()).collect(),
            matched: rows.iter().map(|(column, _)| *column).collect(),
            truth: table.truth,
        })
    }
}

impl<'a> Clients<'a> {
    fn of(clients: &[&'a ClientRecord]) -> Self {
        let scored: Vec<(f64, &str)> = (clients.iter())
            .filter_map(|client| Some((client.metric.and_then(shortened)?, client.client.as_str())))
            .collect();
        Self {
            metric: scored.iter().map(|(metric, _)| *metric).collect(),
            names: scored.iter().map(|(_, name)| *name).filter(|_| scored.len() <= NAMED_CLIENTS).collect(),
        }
    }
}

/// Six significant digits, all a picture can show; `None` for what is not finite.
pub(crate) fn shortened(value: f64) -> Option<f64> {
    format!("{value:.5e}").parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fabricated;

    #[test]
    fn the_data_cannot_end_its_element() {
        let mut record = fabricated::record();
        record.summary.methods[0].label = "</script><script>alert(1)</script><!-- /*script*/".into();
        let page = page(&record);
        assert_eq!(page.matches("</script>").count(), PAGE.matches("</script>").count());
        assert!(page.contains("\\u003c/script>\\u003cscript>alert(1)"));
        assert_eq!(page.matches(SCRIPT).count(), 1);
    }

    #[test]
    fn phases_of_a_round_become_one() {
        let record = fabricated::record();
        let mut second = record.rounds[0].clone();
        second.round = 2;
        second.loss = Some(f64::NAN);
        let rounds = merge_phases(&[&record.rounds[0], &record.rounds[1], &second]);
        assert_eq!(rounds.len(), 2);
        assert_eq!((rounds[0].loss, rounds[0].metric, rounds[0].switched), (Some(0.5), Some(0.75), Some(2)));
        assert_eq!((rounds[1].loss, rounds[1].bytes), (None, 2400));
    }

    #[test]
    fn agreement_lies_on_the_diagonal() {
        let template = fabricated::record().clients[0].clone();
        let clients: Vec<ClientRecord> = [(7, 1), (7, 1), (3, 0), (3, 1), (5, 0)]
            .map(|(found, truth)| ClientRecord { cluster: Some(found), true_cluster: Some(truth), ..template.clone() })
            .into();
        let confusion = Confusion::of(&clients.iter().collect::<Vec<_>>()).expect("both sides are known");
        assert_eq!(confusion.truth, [0, 1]);
        assert_eq!(confusion.found[1], 7);
        assert_eq!(confusion.counts[1], [0, 2]);
        assert_eq!(confusion.matched, [Some(0), Some(1), None]);
    }

    #[test]
    fn many_clients_lose_their_names_not_their_numbers() {
        let template = fabricated::record().clients[0].clone();
        let many = vec![&template; NAMED_CLIENTS + 1];
        let clients = Clients::of(&many);
        assert_eq!((clients.metric.len(), clients.names.len()), (NAMED_CLIENTS + 1, 0));
        assert_eq!(Clients::of(&many[..2]).names.len(), 2);
        assert_eq!(shortened(1.0 / 3.0), Some(0.333333));
        assert_eq!(shortened(f64::INFINITY), None);
    }
}
