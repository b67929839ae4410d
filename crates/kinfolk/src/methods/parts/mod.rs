//! What methods share, one file a part.

pub mod averaging;
pub mod checkpoint;
pub mod cluster_means;
pub mod model_clusters;
pub mod one_shot;
pub mod pooled_search;
pub mod solving;
pub mod training;
