//! Every reader and decoder with spoiled inputs: none panics, hangs or takes all memory.
//!
//! A few seconds here; `make fuzz` goes on for as long as one likes.

mod files;
mod folders;
mod harness;
mod messages;
mod mutate;
// The tests of the program use more of them.
#[allow(dead_code)]
mod samples;
