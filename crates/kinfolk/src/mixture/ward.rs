//! Hierarchical clustering by Ward's criterion.
