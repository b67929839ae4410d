//! Small records for tests.

use super::{
    ClientMixture, ClientRecord, ComparisonRecord, MethodSummary, MetricSummary, MixtureRecord, Record, RepeatSummary,
    RoundRecord, RowsRecord, Summary,
};
use crate::methods::Comparison;
use serde_json::json;

/// A repeat that ended well and has nothing to say.
pub fn repeat(seed: u64) -> RepeatSummary {
    RepeatSummary {
        seed,
        status: "done".into(),
        rounds: 1,
        bytes_down: 1_500_000,
        bytes_up: 400,
        models_down: 2,
        models_up: 1,
        seconds: 0.25,
        ..RepeatSummary::default()
    }
}

/// An accuracy over clients.
pub fn accuracy(mean: f64) -> MetricSummary {
    MetricSummary {
        name: "accuracy".into(),
        mean,
        pooled: mean,
        worst_decile: Some(mean - 0.25),
        per_cluster: Vec::new(),
    }
}

/// One clustered method on one seed, with a label that needs quoting.
pub fn record() -> Record {
    let label = "a, \"quoted\"".to_string();
    let train = RoundRecord {
        label: label.clone(),
        seed: 0,
        round: 1,
        phase: "train".into(),
        loss: Some(0.5),
        switched: Some(2),
        sizes: vec![2, 1],
        bytes_down: 800,
        bytes_up: 400,
        seconds: 0.25,
        ..RoundRecord::default()
    };
    let evaluate = RoundRecord {
        phase: "evaluate".into(),
        loss: None,
        metric: Some(0.75),
        unseen_metric: Some(0.5),
        distance_to_exact: Some(0.125),
        misclustering: Some(0.25),
        stage: Some("middle".into()),
        switched: None,
        bytes_down: 0,
        bytes_up: 0,
        ..train.clone()
    };
    let north = ClientRecord {
        label: label.clone(),
        seed: 0,
        client: "north".into(),
        true_cluster: Some(0),
        cluster: Some(1),
        samples: 20,
        margin: Some(0.125),
        metric: Some(0.5),
        model_norm: Some(1.5),
        metric_local: Some(0.25),
        group: Some("hills".into()),
        ..ClientRecord::default()
    };
    let south = ClientRecord {
        client: "south".into(),
        label: label.clone(),
        samples: 20,
        outlier_score: Some(2.5),
        apart: Some(1),
        outlier: Some(false),
        planted_outlier: Some(true),
        ..ClientRecord::default()
    };
    let mut only = repeat(0);
    only.metric = Some(accuracy(0.75));
    only.clusters = Some(2);
    Record {
        models: Vec::new(),
        summary: Summary {
            schema: 1,
            name: "small".into(),
            seed: 0,
            version: "0.1.0".into(),
            cpu: "baseline".into(),
            data: json!({ "clients": 2 }),
            methods: vec![MethodSummary::of(&label, "ifca", json!({ "clusters": 2 }), vec![only])],
        },
        rounds: vec![train, evaluate],
        clients: vec![north, south],
        mixtures: vec![mixture(&label, 0)],
        comparisons: vec![ComparisonRecord {
            label: label.clone(),
            seed: 0,
            clients: vec!["north".into(), "south, \"far\"".into()],
            truth: None,
            found: Comparison { pairs: vec![(0, 1, 0.5)], lambda: Some(1.0), reason: "as given".into() },
        }],
    }
}

/// Two clients with two components in the plane; the second was planted as an outlier.
pub fn mixture(label: &str, seed: u64) -> MixtureRecord {
    let north = ClientMixture {
        train: RowsRecord::new(&[1, 0], Some(&[1, 0]), Some(&[12, 3])),
        test: RowsRecord::new(&[1], Some(&[2]), Some(&[4])),
        ..ClientMixture::new("north", &[0.25, 0.75], &[0.5, 1.0, 5.0, 1.5])
    };
    let south = ClientMixture {
        train: RowsRecord::new(&[0, 1], None, None),
        ..ClientMixture::new("south", &[0.5, 0.5], &[9.0, 9.0, -9.0, 9.0])
    };
    MixtureRecord {
        label: label.into(),
        seed,
        components: 2,
        ordered: true,
        features: vec!["age".into(), "pay, net".into()],
        classes: vec!["low".into(), "high".into()],
        common: vec![0.0, 1.0, 5.0, 1.0],
        clients: vec![north, south],
    }
}

/// The clients of [`mixture`], with their outlier scores.
pub fn scored_clients() -> [ClientRecord; 2] {
    [("north", 0.5, 0, false), ("south", 2.5, 1, true)].map(|(client, score, apart, planted)| ClientRecord {
        client: client.into(),
        outlier_score: Some(score),
        apart: Some(apart),
        outlier: Some(false),
        planted_outlier: Some(planted),
        ..ClientRecord::default()
    })
}
