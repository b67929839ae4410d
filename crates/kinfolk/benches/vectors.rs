//! Sums over vectors larger than any cache, beside a pass that only reads them.

mod common;

use common::{Company, Line, median, print_table, time};
use kinfolk::num::{distance, norm};
use std::hint::black_box;

/// Numbers of a vector: 128 MiB.
const COUNT: usize = 1 << 24;
const REPETITIONS: usize = 15;

fn main() {
    if !common::called_by_cargo_bench() {
        return;
    }
    println!("vectors: {COUNT} numbers in double precision, one thread");
    common::print_machine();
    let company = Company::watch();
    let a: Vec<f64> = (0..COUNT).map(|i| (i % 1000) as f64 * 0.001).collect();
    let b: Vec<f64> = a.iter().map(|value| 1.0 - value).collect();
    let mut seconds = [const { Vec::new() }; 4];
    for _ in 0..REPETITIONS {
        seconds[0].push(time(|| black_box(read(&a))).0);
        seconds[1].push(time(|| black_box(norm(&a))).0);
        seconds[2].push(time(|| black_box(read(&a).wrapping_add(read(&b)))).0);
        seconds[3].push(time(|| black_box(distance(&a, &b))).0);
    }
    let [one, length, two, gap] = seconds.map(median);
    let rate = |vectors: usize, seconds: f64| format!("{:.1} GB/s", (vectors * COUNT * 8) as f64 / seconds / 1e9);
    let lines = |read: f64, what: &str, seconds: f64, vectors: usize| {
        [Line::new("reading", read, rate(vectors, read)), Line::new(what, seconds, rate(vectors, seconds))]
    };
    print_table("one vector", ("reading", one), &lines(one, "its length", length, 1));
    print_table("two vectors", ("reading", two), &lines(two, "their distance", gap, 2));
    company.print();
}

/// Looks at every number: integers may be added in any order, so that the compiler does it as fast as it can.
fn read(values: &[f64]) -> u64 {
    values.iter().fold(0, |sum, value| sum.wrapping_add(value.to_bits()))
}
