//! The command line as users see it: the real binary, its output, its exit codes and its files.
//!
//! One test binary, so that the library is linked once. Expected texts are in `snapshots/`; `make bless` accepts
//! changed ones.

mod bad_input;
mod bench;
mod cluster;
mod contract;
mod help;
mod known_clusters;
mod mixtures;
mod reproducible;
mod table;
mod texts;
