//! What methods share, one file a part.

pub mod aggregating;
pub mod at_home;
pub mod averaging;
pub mod checkpoint;
pub mod client_models;
pub mod cluster_means;
pub mod cluster_models;
pub mod linkage;
pub mod model_clusters;
pub mod one_shot;
pub mod pooled_search;
pub mod solving;
pub mod supervised_mixture;
pub mod training;

#[cfg(test)]
mod by_hand;
