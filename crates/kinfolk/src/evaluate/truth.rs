//! The clusters found compared with those planted.

use super::scores::Served;
use super::*;
use crate::clustering::quality::{adjusted_rand_index, misclustering};

/// The share of clients outside the best matching of clusters to true ones, and the adjusted Rand index.
#[derive(Default)]
pub(super) struct Truth;

impl Finding for Truth {
    fn evaluate(&self, context: &mut Context, round: &mut RoundRecord, found: &mut MethodRecord) -> Result<()> {
        // Clients that cannot be reached any more are in no cluster.
        let reached = |served: &Served| served.cluster.is_some() || served.loss.is_some();
        let clients = || context.population.clients.iter().zip(&context.scored.clients);
        let clients = || clients().filter(|(_, served)| reached(served));
        let truth: Option<Vec<usize>> = clients().map(|(client, _)| client.truth).collect();
        let clusters: Option<Vec<usize>> = clients().map(|(_, served)| served.cluster).collect();
        // Where only sums are told of clients, the clusters that they choose are not known.
        let are_found = context.outcome.clustered && !context.outcome.clusters_given && clients().next().is_some();
        if let (Some(truth), Some(clusters), true) = (truth, clusters, are_found) {
            found.summary.misclustering = Some(misclustering(&clusters, &truth));
            found.summary.ari = Some(adjusted_rand_index(&clusters, &truth));
            round.misclustering = found.summary.misclustering;
        }
        Ok(())
    }
}
