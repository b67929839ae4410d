//! The models that methods begin with.

use super::super::*;

pub fn start_key(key: &Key, start: usize, cluster: usize) -> Key {
    key.clone().word("start").number(start as u64).number(cluster as u64)
}

/// Random models that differ, one a cluster.
pub fn random_models(model: &dyn Model, key: &Key, start: usize, clusters: usize) -> Result<Vec<Params>> {
    (0..clusters).map(|cluster| model.initialise(&mut start_key(key, start, cluster).rng()).map(Arc::new)).collect()
}

/// The model all clients begin with, rounded as it travels: means of networks need it.
pub fn common_start(setup: &Setup) -> Result<Params> {
    let mut start = setup.model.common_start(&mut start_key(&setup.key, 0, 0).rng())?;
    setup.model.precision().round(&mut start);
    Ok(Arc::new(start))
}
