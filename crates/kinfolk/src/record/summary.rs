//! summary.json: how every method ended on every seed, and the numbers it is judged by.

use super::*;
use serde_json::{Map, Number, Value};

/// A metric over many clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    /// accuracy, mse or nll.
    pub name: String,
    /// Average over clients.
    pub mean: f64,
    /// Average over rows.
    pub pooled: f64,
    /// Mean of the worst tenth of the clients; absent where only sums are told of clients.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worst_decile: Option<f64>,
    /// Average over the clients of every cluster, `None` where a cluster is empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub per_cluster: Vec<Option<f64>>,
}

/// How one method ended on one seed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RepeatSummary {
    /// The seed.
    pub seed: u64,
    /// `done`, `not-converged`, `diverged` or `failed`.
    pub status: String,
    /// Why, where it is not `done`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Rounds run.
    pub rounds: usize,
    /// Clusters with at least one client.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clusters: Option<usize>,
    /// On the clients that took part; those planted as outliers are left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metric: Option<MetricSummary>,
    /// On clients met only after training.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unseen: Option<MetricSummary>,
    /// Share of clients outside the best matching of clusters to true clusters.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub misclustering: Option<f64>,
    /// Adjusted Rand index against the truth.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ari: Option<f64>,
    /// Mean distance of the models to the true parameters under the best matching.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parameter_error: Option<f64>,
    /// Payload to clients over all training rounds.
    pub bytes_down: u64,
    /// Payload from clients over all training rounds.
    pub bytes_up: u64,
    /// Whole models sent to clients.
    pub models_down: u64,
    /// Whole models or gradients sent by clients.
    pub models_up: u64,
    /// Seconds in training rounds.
    pub seconds: f64,
    /// Notes: empty clusters, missing answers, chosen starts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// Further numbers of the method and the findings.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// Checkpoints do not name fields, so absent ones must be written as JSON.
pub(super) mod as_json {
    use super::RepeatSummary;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Error as _, Serializer};

    pub fn serialize<S: Serializer>(summary: &RepeatSummary, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(summary).map_err(S::Error::custom)?)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RepeatSummary, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// One method over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// Its label in this run.
    pub label: String,
    /// Its registered name.
    pub name: String,
    /// Every setting, defaults filled in.
    pub settings: Value,
    /// The worst status of its repeats.
    pub status: String,
    /// One entry per seed.
    pub repeats: Vec<RepeatSummary>,
    /// Means over the repeats of every numeric field.
    pub mean: Value,
    /// Standard deviations (n − 1); absent for one repeat.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sd: Option<Value>,
}

/// summary.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of this layout.
    pub schema: u32,
    /// The experiment's name.
    pub name: String,
    /// The first seed.
    pub seed: u64,
    /// The version of Kinfolk that wrote it.
    pub version: String,
    /// What its loops were compiled for: `avx2+fma`, `neon` or `baseline`. Last digits depend on it.
    #[serde(default)]
    pub cpu: String,
    /// The data: clients, samples, true_clusters and so on.
    pub data: Value,
    /// Every method.
    pub methods: Vec<MethodSummary>,
}

/// One client's score on its own held-out rows.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
pub struct ClientScore {
    /// The metric summed over the rows.
    pub sum: f64,
    /// The rows; a client with none is left out.
    pub rows: usize,
    /// The cluster whose model was used.
    pub cluster: Option<usize>,
}

impl ClientScore {
    /// The client's own average; `None` without rows.
    /// The mean; not a number when there are none.
    pub fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }
}

/// Whether more of this metric is better: true for accuracy, false for losses.
#[doc(hidden)]
pub fn is_higher_better(metric: &str) -> bool {
    metric == "accuracy"
}

impl MetricSummary {
    /// Summarises clients: the mean over clients, the mean over rows, the mean of the worst tenth
    /// (rounded down, at least one client), and the mean over the clients of each of `clusters`
    /// clusters (0 for a method without). A client whose own average is not finite is left out. `None` when
    /// nobody is left, so that an absent field, not a null, reaches summary.json.
    #[doc(hidden)]
    pub fn of(name: &str, scores: &[ClientScore], clusters: usize) -> Option<Self> {
        let scores = || scores.iter().filter_map(|score| Some((score, score.mean().filter(|mean| mean.is_finite())?)));
        let mut means: Vec<f64> = scores().map(|(_, mean)| mean).collect();
        if means.is_empty() {
            return None;
        }
        let (sum, rows) = scores().fold((0.0, 0), |(sum, rows), (score, _)| (sum + score.sum, rows + score.rows));
        let average = mean(&means);
        let pooled = sum / rows as f64;
        means.sort_by(f64::total_cmp);
        if !is_higher_better(name) {
            means.reverse();
        }
        let worst_decile = mean(&means[..(means.len() / 10).max(1)]);
        let mut members: Vec<Vec<f64>> = vec![Vec::new(); clusters];
        for (score, mean) in scores() {
            if let Some(cluster) = score.cluster.filter(|&cluster| cluster < clusters) {
                members[cluster].push(mean);
            }
        }
        let per_cluster = members.iter().map(|members| (!members.is_empty()).then(|| mean(members))).collect();
        let finite = average.is_finite() && pooled.is_finite();
        let worst_decile = Some(worst_decile);
        finite.then(|| Self { name: name.to_string(), mean: average, pooled, worst_decile, per_cluster })
    }
}

/// How a repeat or a method ended, from best to worst. The words are those of the files.
const STATUSES: [&str; 4] = ["done", "not-converged", "diverged", "failed"];

/// The worst of several statuses; `failed` when there are none or one is unknown.
pub(crate) fn worst_status<'a>(statuses: impl IntoIterator<Item = &'a str>) -> &'static str {
    let rank = |status: &str| STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
    statuses.into_iter().map(rank).max().map_or("failed", |worst| STATUSES[worst])
}

impl MethodSummary {
    /// Builds the summary of a method from its repeats.
    ///
    /// `mean` and `sd` mirror a repeat with every numeric field in it except the seed, those inside
    /// `metric`, `unseen` and a method's own objects included; arrays are taken element by element
    /// where all repeats agree on the length and left out otherwise. A field that only some repeats
    /// have (a diverged one has no metric) is averaged over those that have it. `sd` divides by
    /// n − 1 and needs two values; it is absent altogether for one repeat.
    #[doc(hidden)]
    pub fn of(label: &str, name: &str, settings: Value, repeats: Vec<RepeatSummary>) -> Self {
        let fields: Vec<Value> = repeats
            .iter()
            .filter_map(|repeat| serde_json::to_value(repeat).ok())
            .map(|mut value| {
                if let Value::Object(fields) = &mut value {
                    fields.remove("seed");
                }
                value
            })
            .collect();
        let values: Vec<&Value> = fields.iter().collect();
        let object = |value: Option<Value>| value.unwrap_or_else(|| Value::Object(Map::new()));
        Self {
            label: label.to_string(),
            name: name.to_string(),
            settings,
            status: worst_status(repeats.iter().map(|repeat| repeat.status.as_str())).to_string(),
            mean: object(combine(&values, &|numbers| Some(mean(numbers)))),
            sd: (repeats.len() > 1).then(|| object(combine(&values, &standard_deviation))),
            repeats,
        }
    }

    /// The notes of all seeds, and how a seed ended if not well. The same words from several seeds become one remark.
    #[doc(hidden)]
    pub fn remarks(&self) -> Vec<Remark> {
        let mut said: Vec<(bool, String, Vec<u64>)> = Vec::new();
        for repeat in &self.repeats {
            let ending = (repeat.status != "done").then(|| match &repeat.reason {
                // Joins the hint, which is on a line of its own.
                Some(reason) => (true, format!("{}: {}", repeat.status, reason.replace("\n  hint: ", "; "))),
                None => (true, repeat.status.clone()),
            });
            for (warning, words) in ending.into_iter().chain(repeat.notes.iter().map(|note| (false, note.clone()))) {
                match said.iter_mut().find(|remark| remark.0 == warning && remark.1 == words) {
                    Some(remark) => remark.2.push(repeat.seed),
                    None => said.push((warning, words, vec![repeat.seed])),
                }
            }
        }
        said.into_iter()
            .map(|(warning, words, seeds)| {
                let text = if seeds.len() == self.repeats.len() {
                    words
                } else {
                    let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
                    format!("seed{} {}: {words}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
                };
                Remark { warning, text }
            })
            .collect()
    }
}

/// A remark about a method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[doc(hidden)]
pub struct Remark {
    /// Whether a repeat did not end well.
    pub warning: bool,
    /// The sentence, with the seeds it is about unless it is about all of them.
    pub text: String,
}

/// The mean; not a number when there are none.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The standard deviation (n − 1); `None` for fewer than two numbers.
pub fn standard_deviation(numbers: &[f64]) -> Option<f64> {
    if numbers.len() < 2 {
        return None;
    }
    let centre = mean(numbers);
    let squares: f64 = numbers.iter().map(|number| (number - centre).powi(2)).sum();
    Some((squares / (numbers.len() - 1) as f64).sqrt())
}

/// Combines equal-shaped values number by number; `None` where there is no number to combine.
fn combine(values: &[&Value], statistic: &dyn Fn(&[f64]) -> Option<f64>) -> Option<Value> {
    let values: Vec<&Value> = values.iter().copied().filter(|value| !value.is_null()).collect();
    match values.first()? {
        Value::Number(_) => {
            let numbers: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
            statistic(&numbers).and_then(Number::from_f64).map(Value::Number)
        }
        Value::Object(_) => {
            let objects: Vec<&Map<String, Value>> = values.iter().filter_map(|value| value.as_object()).collect();
            let mut combined = Map::new();
            for (key, _) in objects.iter().flat_map(|object| object.iter()) {
                if !combined.contains_key(key) {
                    let present: Vec<&Value> = objects.iter().filter_map(|object| object.get(key)).collect();
                    if let Some(value) = combine(&present, statistic) {
                        combined.insert(key.clone(), value);
                    }
                }
            }
            (!combined.is_empty()).then_some(Value::Object(combined))
        }
        Value::Array(first) => {
            let arrays: Vec<&Vec<Value>> = values.iter().filter_map(|value| value.as_array()).collect();
            if arrays.iter().any(|array| array.len() != first.len()) {
                return None;
            }
            let combined: Vec<Option<Value>> = (0..first.len())
                .map(|index| combine(&arrays.iter().map(|array| &array[index]).collect::<Vec<_>>(), statistic))
                .collect();
            let any = combined.iter().any(Option::is_some);
            any.then(|| combined.into_iter().map(|value| value.unwrap_or(Value::Null)).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fabricated;
    use serde_json::json;

    fn score(sum: f64, rows: usize, cluster: usize) -> ClientScore {
        ClientScore { sum, rows, cluster: Some(cluster) }
    }

    #[test]
    fn a_metric_over_clients_by_hand() {
        let scores = [score(8.0, 10, 0), score(1.0, 2, 0), score(30.0, 30, 2), score(0.0, 0, 1)];
        let summary = MetricSummary::of("accuracy", &scores, 3).expect("three clients have rows");
        assert!((summary.mean - (0.8 + 0.5 + 1.0) / 3.0).abs() < 1e-15);
        assert!((summary.pooled - 39.0 / 42.0).abs() < 1e-15);
        assert_eq!(summary.worst_decile, Some(0.5));
        assert_eq!(summary.per_cluster, [Some(0.65), None, Some(1.0)]);
        assert_eq!(MetricSummary::of("mse", &scores, 0).expect("a loss").worst_decile, Some(1.0));
    }

    #[test]
    fn the_worst_tenth_of_twenty_is_two() {
        let scores: Vec<ClientScore> = (0..20).map(|index| score(f64::from(index), 1, 0)).collect();
        assert_eq!(MetricSummary::of("accuracy", &scores, 1).expect("scored").worst_decile, Some(0.5));
        assert_eq!(MetricSummary::of("nll", &scores, 1).expect("scored").worst_decile, Some(18.5));
    }

    #[test]
    fn nothing_scored_is_absent() {
        assert_eq!(MetricSummary::of("accuracy", &[], 2), None);
        assert_eq!(MetricSummary::of("mse", &[score(f64::NAN, 3, 0)], 1), None);
        // Who has no finite number is in no average.
        let scores = [score(f64::INFINITY, 3, 0), score(1.0, 2, 0), score(f64::NAN, 1, 1)];
        assert_eq!(MetricSummary::of("mse", &scores, 2), MetricSummary::of("mse", &scores[1..2], 2));
    }

    #[test]
    fn means_and_deviations_cover_nested_numbers() {
        let mut first = fabricated::repeat(0);
        let mut second = fabricated::repeat(1);
        first.metric = MetricSummary::of("accuracy", &[score(0.8, 1, 0), score(0.6, 1, 1)], 2);
        second.metric = MetricSummary::of("accuracy", &[score(0.6, 1, 0)], 2);
        first.ari = Some(0.5);
        first.extra.insert("lambda".into(), json!(2));
        second.extra.insert("lambda".into(), json!(4));
        first.extra.insert("path".into(), json!([1, 2, 3]));
        second.extra.insert("path".into(), json!([1, 2]));
        let method = MethodSummary::of("a", "ifca", json!({}), vec![first, second]);
        assert_eq!(method.mean["lambda"], 3.0);
        let sd = method.sd.expect("two repeats");
        assert_eq!(sd["lambda"], 2.0_f64.sqrt());
        assert!((method.mean["metric"]["mean"].as_f64().expect("a number") - 0.65).abs() < 1e-15);
        assert_eq!(method.mean["metric"]["per_cluster"], json!([0.7, 0.6]));
        assert_eq!(sd["metric"]["per_cluster"][1], Value::Null, "one value has no deviation");
        assert_eq!(method.mean["ari"], 0.5, "averaged over the repeats that have it");
        assert_eq!(sd.get("ari"), None);
        for absent in ["seed", "status", "notes", "path"] {
            assert_eq!(method.mean.get(absent), None, "{absent}");
        }
        assert_eq!(method.mean["metric"].get("name"), None);
    }

    #[test]
    fn one_repeat_has_no_deviation() {
        let method = MethodSummary::of("a", "ifca", json!({}), vec![fabricated::repeat(0)]);
        assert_eq!(method.sd, None);
        assert_eq!(method.status, "done");
        let text = serde_json::to_string(&method).expect("plain data");
        assert!(!text.contains("\"sd\"") && !text.contains("null"), "{text}");
    }

    #[test]
    fn the_worst_status_wins() {
        assert_eq!(worst_status(["done", "diverged", "not-converged"]), "diverged");
        assert_eq!(worst_status(["done", "done"]), "done");
        assert_eq!(worst_status([]), "failed");
    }

    #[test]
    fn remarks_gather_equal_words() {
        let mut repeats: Vec<RepeatSummary> = (0..3).map(fabricated::repeat).collect();
        repeats.iter_mut().for_each(|repeat| repeat.notes.push("cluster 2 is empty".into()));
        repeats[1].status = "diverged".into();
        repeats[1].reason = Some("loss is infinite in round 4".into());
        let remarks = MethodSummary::of("a", "ifca", json!({}), repeats).remarks();
        assert_eq!(remarks[0], Remark { warning: false, text: "cluster 2 is empty".into() });
        assert_eq!(remarks[1], Remark { warning: true, text: "seed 1: diverged: loss is infinite in round 4".into() });
    }
}
