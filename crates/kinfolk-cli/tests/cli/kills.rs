//! Every preset, killed at any moment and resumed, ends like one that was left alone, file by file.
//!
//! A handful of kills by default; `make kills KILLS=500` for as many as one likes.

use crate::bench::Bench;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How many kills over all presets, and the seed of their moments.
fn plan() -> (usize, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a whole number"));
    (number("KINFOLK_KILLS").unwrap_or(8) as usize, number("KINFOLK_KILLS_SEED").unwrap_or(0))
}

/// A preset, and what makes it short; everything that it does stays.
struct Case {
    preset: &'static str,
    settings: &'static [&'static str],
}

const CASES: [Case; 4] = [
    Case {
        preset: "quickstart",
        settings: &[
            "repeat=2",
            "data.clients=12",
            "data.unseen_clients=4",
            "method.ifca.rounds=12",
            "method.fedavg.rounds=12",
            "method.local.rounds=12",
            "method.oracle.rounds=12",
        ],
    },
    Case {
        preset: "families",
        settings: &[
            "data.clients=8",
            "data.samples=30",
            "method.sr-fca.rounds=4",
            "method.sr-fca.one_shot_steps=30",
            "method.cfl.rounds=8",
            "method.fedavg.rounds=8",
            "method.local.rounds=8",
        ],
    },
    Case { preset: "mixtures", settings: &["repeat=2", "data.clients=10", "data.samples=60"] },
    Case {
        preset: "personal",
        settings: &[
            "repeat=2",
            "data.clients=16",
            "data.true_clusters=4",
            "data.dimension=3",
            "method.l2gd.iterations=300",
            "method.al2sgd+.iterations=300",
        ],
    },
];

/// Moments that are the same for the same seed (splitmix64).
struct Moments(u64);

impl Moments {
    /// A moment between now and so long.
    fn within(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        most.mul_f64(((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Runs a preset to its end through so many kills, comparing every folder that comes of it; says how many there were.
fn kill(case: &Case, kills: usize, seed: u64) {
    let bench = Bench::new();
    let mut arguments = vec!["run", case.preset, "--threads", "2"];
    arguments.extend(case.settings.iter().flat_map(|setting| ["--set", setting]));
    let began = Instant::now();
    bench.well(&[&arguments[..], &["--out", "whole"]].concat());
    let whole = began.elapsed();

    let mut moments = Moments(seed ^ case.preset.len() as u64);
    let (mut killed, mut folders) = (0, 0);
    while killed < kills {
        folders += 1;
        let name = format!("killed-{folders}");
        loop {
            // A kill may come before anything was written: then there is nothing to resume.
            let resume = bench.path(&name).exists();
            let mut command = bench.command(&[&arguments[..], &["--out", &name]].concat());
            command.args(resume.then_some("--resume")).env("KINFOLK_CHECKPOINT_SECONDS", "0");
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
            if killed < kills {
                std::thread::sleep(moments.within(whole));
                child.kill().expect("a child of ours");
            }
            let ended = bench.end(child.wait_with_output().expect("a child"));
            match ended.code {
                None => killed += 1,
                code => {
                    assert_eq!(code, Some(0), "{}: {}", case.preset, ended.stderr);
                    break;
                }
            }
        }
        bench.assert_same_run("whole", &name);
        std::fs::remove_dir_all(bench.path(&name)).expect("a folder of ours");
    }
    println!("{}: {killed} kills, {folders} runs, each file the same", case.preset);
}

#[test]
fn killed_presets_end_like_undisturbed_ones() {
    let (kills, seed) = plan();
    for (place, case) in CASES.iter().enumerate() {
        kill(case, (kills + CASES.len() - 1 - place) / CASES.len(), seed);
    }
}
