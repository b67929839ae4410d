//! Work that cannot fit into memory is refused before it begins: a program that runs out of it is ended without a word.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Refuses to make `counts[0] × counts[1] × …` things of so many bytes each where that is more than this machine has.
pub(crate) fn check_room(what: &str, counts: &[usize], each: usize) -> Result<()> {
    check_within(available(), what, counts, each)
}

fn check_within(available: u64, what: &str, counts: &[usize], each: usize) -> Result<()> {
    let needed = counts.iter().fold(each as f64, |product, &count| product * count as f64);
    if needed <= available as f64 {
        return Ok(());
    }
    let (needed, available) = (gigabytes(needed), gigabytes(available as f64));
    Err(Error::settings(format!("{what}: {needed} GB of memory would be needed, there are {available}")))
}

fn gigabytes(bytes: f64) -> String {
    let size = bytes / 1e9;
    if size < 10.0 { format!("{size:.1}") } else { format!("{size:.0}") }
}

/// The bytes of memory of the machine or the container; where nobody says, as much as a large workstation has.
fn available() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let machine = read("/proc/meminfo").and_then(|text| total(&text)).unwrap_or(64_000_000_000);
        let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        let limit = limits.iter().filter_map(|path| read(path)?.trim().parse().ok()).min();
        machine.min(limit.unwrap_or(u64::MAX))
    })
}

/// `MemTotal:  24567890 kB`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        let error = check_within(8_000_000_000, "data", &[1_000_000, 1_000_000], 8).unwrap_err();
        assert_eq!(error.to_string(), "data: 8000 GB of memory would be needed, there are 8.0");
        assert!(check_within(8_000_000_000, "data", &[usize::MAX; 4], 8).is_err(), "no overflow");
        assert!(check_within(8_000_000_000, "data", &[1000, 1_000_000], 8).is_ok());
        assert!(available() > 1 << 20);
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24567890 kB\n"), Some(24_567_890 * 1024));
    }
}
