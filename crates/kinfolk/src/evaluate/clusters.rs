//! The number of clusters, and which of them are suspicious.

use super::{Context, Finding, MethodRecord};
use crate::error::Result;

/// The number of non-empty clusters. Empty and one-member clusters are noted.
#[derive(Default)]
pub(super) struct Clusters;

impl Finding for Clusters {
    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        if context.outcome.clustered {
            let clusters: Vec<Option<usize>> = context.scored.clients.iter().map(|served| served.cluster).collect();
            let mut sizes = vec![0; context.outcome.models.len()];
            match &context.scored.sizes {
                Some(told) => sizes.clone_from(told),
                None => clusters.iter().flatten().for_each(|&cluster| sizes[cluster] += 1),
            }
            let only_member = |cluster: usize| {
                let place = clusters.iter().position(|found| *found == Some(cluster));
                place.map_or("whose name is not told", |place| &*context.population.clients[place].id)
            };
            found.summary.clusters = Some(sizes.iter().filter(|&&size| size > 0).count());
            found.summary.notes.extend(odd_clusters(&sizes, only_member));
        }
        Ok(())
    }
}

fn odd_clusters<'a>(sizes: &[usize], only_member: impl Fn(usize) -> &'a str) -> Vec<String> {
    const FEW: usize = 5;
    let (empty, alone) = [0, 1].map(|odd| sizes.iter().filter(|&&size| size == odd).count()).into();
    if empty + alone > FEW {
        let said = [(empty, "empty"), (alone, "of one client")].into_iter().filter(|(count, _)| *count > 0);
        return said.map(|(count, what)| format!("{count} of {} clusters are {what}", sizes.len())).collect();
    }
    let note = |(cluster, &size): (usize, &usize)| match size {
        0 => Some(format!("cluster {cluster} is empty")),
        1 => Some(format!("cluster {cluster} has one client, {}", only_member(cluster))),
        _ => None,
    };
    sizes.iter().enumerate().filter_map(note).collect()
}
