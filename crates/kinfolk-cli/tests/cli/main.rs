//! The command line as users see it: the real binary, its output, its exit codes and its files.
//!
//! One test binary, so that the library is linked once. Expected texts are in `snapshots/`; `make bless` accepts
//! changed ones.

mod added;
mod bad_input;
mod bench;
mod cluster;
mod contract;
mod fit;
mod fit_inputs;
mod fit_mixtures;
mod fit_networks;
mod folders;
mod fuzz;
mod help;
mod kills;
mod known_clusters;
mod mixtures;
mod refit;
mod reproducible;
mod table;
mod terminal;
mod texts;

/// What spoils inputs, shared with the library's own tests, which use more of it.
#[allow(dead_code)]
#[path = "../../../kinfolk/tests/fuzz"]
mod fuzzing {
    pub mod harness;
    mod mutate;
    pub mod samples;
}
