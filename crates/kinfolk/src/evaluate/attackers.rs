//! What attackers made of the honest clients, where some attack on purpose (`[faults]`).

use super::scores::Served;
use super::*;

/// The metric of the honest clients over all and in the true cluster that fares worst, how many of them share a cluster with more
/// attackers than honest clients, in how many clusters attackers are the majority, and who was noticed.
#[derive(Default)]
pub(super) struct Attackers;

/// What happened to clients that attackers are among.
#[derive(Debug, PartialEq)]
struct Harm {
    metric: Option<f64>,
    worst: Option<f64>,
    /// Share of the honest clients in a cluster in which attackers are the majority.
    captured: Option<f64>,
    /// Number of clusters in which they are.
    phantoms: Option<f64>,
}

impl Finding for Attackers {
    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        let attackers = context.attackers;
        if !attackers.contains(&true) {
            return Ok(());
        }
        let truth: Vec<Option<usize>> = context.population.clients.iter().map(|client| client.truth).collect();
        let higher_is_better = context.metric == Metric::Accuracy;
        let served = &context.scored.clients;
        let Harm { metric, worst, captured, phantoms } =
            Harm::of(served, &truth, attackers, context.outcome.clustered, higher_is_better);
        let suspects = context.federation.ledger().suspects();
        let count = |attacks: bool| suspects.iter().filter(|&&client| attackers[client as usize] == attacks).count();
        let all = attackers.iter().filter(|attacks| **attacks).count();
        found.numbers([
            ("honest_metric", metric),
            ("honest_worst_cluster", worst),
            ("honest_captured", captured),
            ("phantom_clusters", phantoms),
            ("attackers_noticed", Some(count(true) as f64 / all as f64)),
            ("honest_suspected", Some(count(false) as f64)),
        ]);
        Ok(())
    }
}

impl Harm {
    fn of(
        served: &[Served],
        truth: &[Option<usize>],
        attackers: &[bool],
        clustered: bool,
        higher_is_better: bool,
    ) -> Self {
        let honest = || served.iter().zip(truth).zip(attackers).filter(|(_, attacks)| !**attacks).map(|(it, _)| it);
        let mut clusters: BTreeMap<Option<usize>, Vec<f64>> = BTreeMap::new();
        for (metric, truth) in honest().filter_map(|(served, truth)| Some((served.mean()?, truth))) {
            clusters.entry(*truth).or_default().push(metric);
        }
        let all: Vec<f64> = clusters.values().flatten().copied().collect();
        let better = |one: f64, other: f64| if higher_is_better { one.min(other) } else { one.max(other) };
        let worst = clusters.values().map(|metrics| mean(metrics)).reduce(better);
        // Attackers less honest clients of every cluster.
        let mut surplus: BTreeMap<usize, i64> = BTreeMap::new();
        for (served, attacks) in served.iter().zip(attackers) {
            if let Some(cluster) = served.cluster.filter(|_| clustered) {
                *surplus.entry(cluster).or_default() += if *attacks { 1 } else { -1 };
            }
        }
        let is_phantom = |cluster: Option<usize>| cluster.is_some_and(|cluster| surplus.get(&cluster) > Some(&0));
        let captured = honest().filter(|(served, _)| is_phantom(served.cluster)).count();
        Self {
            metric: (!all.is_empty()).then(|| mean(&all)),
            worst,
            captured: clustered.then(|| captured as f64 / honest().count().max(1) as f64),
            phantoms: clustered.then(|| surplus.values().filter(|surplus| **surplus > 0).count() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::summary::ClientScore;

    #[test]
    fn harm_by_hand() {
        let served = |cluster: usize, hits: f64| Served {
            cluster: Some(cluster),
            score: Some(ClientScore { sum: hits, rows: 10, cluster: Some(cluster) }),
            ..Served::default()
        };
        // Two honest clients and an attacker in cluster 0; in cluster 1 an honest one with two attackers; 2 is the attackers' own.
        let clients = [(0, 9.0), (0, 8.0), (0, 0.0), (1, 4.0), (1, 0.0), (1, 0.0), (2, 1.0)];
        let clients = clients.map(|(cluster, hits)| served(cluster, hits));
        let truth = [0, 1, 1, 1, 0, 0, 0].map(Some);
        let attackers = [false, false, true, false, true, true, true];
        let found = Harm::of(&clients, &truth, &attackers, true, true);
        let wanted = Harm { metric: Some(0.7), worst: Some(0.6), captured: Some(1.0 / 3.0), phantoms: Some(2.0) };
        let near = |found: Option<f64>, wanted: Option<f64>| (found.unwrap() - wanted.unwrap()).abs() < 1e-12;
        assert!(near(found.metric, wanted.metric) && near(found.worst, wanted.worst), "{found:?}");
        assert_eq!((found.captured, found.phantoms), (wanted.captured, wanted.phantoms));
        let losses = Harm::of(&clients, &truth, &attackers, false, false);
        assert_eq!((losses.worst, losses.captured, losses.phantoms), (Some(0.9), None, None));
    }
}
