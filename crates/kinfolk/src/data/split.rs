//! Pure functions that divide clients and classes among clusters and rows among classes, and that draw clients and rows.

use super::*;
use rand_distr::{Distribution, Gamma};

settings! {
    /// Which clients of many take part, and which of their rows are for testing.
    pub struct Drawing {
        /// how many clients, drawn from the seed; left out: all of them
        clients: Option<usize> [1..=10_000_000],
        /// share of a client's rows kept for testing
        test_fraction: f64 [0.0..1.0] = 0.2,
    }
}

/// The cluster of a client when clusters are consecutive clients and as equal in size as possible.
pub(super) fn block(client: usize, clients: usize, clusters: usize) -> usize {
    client * clusters / clients.max(1)
}

/// The classes of one cluster: a window a third wider than an equal share, but not so wide that windows coincide.
pub(super) fn window(classes: usize, clusters: usize, cluster: usize) -> Range<usize> {
    if clusters < 2 {
        return 0..classes;
    }
    let width = (4 * classes).div_ceil(3 * clusters).min(classes + 1 - clusters);
    let start = (cluster * (classes - width) + (clusters - 1) / 2) / (clusters - 1);
    start..start + width
}

/// Shares that sum to one.
pub(super) fn dirichlet(alpha: f64, count: usize, rng: &mut Rng) -> Result<Vec<f64>> {
    let gamma = Gamma::new(alpha, 1.0).map_err(|error| Error::settings(format!("data.alpha: got {alpha}: {error}")))?;
    let mut shares: Vec<f64> = (0..count).map(|_| gamma.sample(rng)).collect();
    let total: f64 = shares.iter().sum();
    if total > 0.0 && total.is_finite() {
        shares.iter_mut().for_each(|share| *share /= total);
    } else {
        // A tiny alpha underflows: in the limit one class has everything.
        shares.fill(0.0);
        shares[rng.random_range(0..count)] = 1.0;
    }
    Ok(shares)
}

/// `total` divided in proportion to the counts, the largest remainders rounded up, ties to the first.
pub(super) fn apportion(counts: &[usize], total: usize) -> Vec<usize> {
    let sum = counts.iter().sum::<usize>().max(1);
    let mut parts: Vec<usize> = counts.iter().map(|count| count * total / sum).collect();
    let mut order: Vec<usize> = (0..counts.len()).filter(|class| counts[*class] > 0).collect();
    order.sort_by_key(|class| std::cmp::Reverse(counts[*class] * total % sum));
    let missing = total - parts.iter().sum::<usize>();
    order.into_iter().take(missing).for_each(|class| parts[class] += 1);
    parts
}

/// Which ids are drawn: the `count` lowest lots. A lot depends on the key and the id alone.
pub(super) fn draw_lots<'a>(ids: impl Iterator<Item = &'a str>, count: usize, key: &Key) -> Vec<bool> {
    let mut lots: Vec<(u64, usize)> = ids.zip(0..).map(|(id, place)| (key.clone().word(id).seed(), place)).collect();
    let mut drawn = vec![false; lots.len()];
    lots.sort_unstable();
    lots.iter().take(count).for_each(|(_, place)| drawn[*place] = true);
    drawn
}

/// Which ids are drawn when `clients` are wanted; all where that is left out.
pub(super) fn draw_clients<'a>(
    ids: impl ExactSizeIterator<Item = &'a str>,
    clients: Option<usize>,
    key: &Key,
) -> Result<Vec<bool>> {
    let have = ids.len();
    let count = clients.unwrap_or(have);
    if count > have {
        return Err(Error::settings(format!("data.clients: got {count}, but there are {have}")));
    }
    Ok(draw_lots(ids, count, &key.clone().word("clients")))
}

pub(super) fn keep<T>(items: &mut Vec<T>, drawn: Vec<bool>) {
    let mut drawn = drawn.into_iter();
    items.retain(|_| drawn.next() == Some(true));
}

/// Which of a client's rows are kept for testing: this share of them, but neither none nor all where there are two.
pub(super) fn hold_out(rows: usize, share: f64, key: &Key) -> Vec<bool> {
    let tests = match (share * rows as f64).round() as usize {
        _ if share == 0.0 || rows < 2 => 0,
        tests => tests.clamp(1, rows - 1),
    };
    let mut is_test = vec![false; rows];
    index::sample(&mut key.rng(), rows, tests).into_iter().for_each(|row| is_test[row] = true);
    is_test
}

/// Which rows are the last, nearly this share of them. Rows of the same time stay together, and some are not among them.
pub(super) fn hold_out_last(times: &[f64], share: f64) -> Vec<bool> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let wanted = (share * times.len() as f64).round() as usize;
    let wanted = if share > 0.0 { wanted.max(1) } else { 0 };
    // What would begin the test rows, with how many they would be.
    let begins = (1..sorted.len()).filter(|&place| sorted[place - 1] < sorted[place]);
    let begin = begins
        .map(|place| (sorted.len() - place, sorted[place]))
        .min_by_key(|(tests, _)| (tests.abs_diff(wanted), *tests));
    match begin.filter(|_| wanted > 0) {
        Some((_, begin)) => times.iter().map(|time| *time >= begin).collect(),
        None => vec![false; times.len()],
    }
}

/// The rows client by client, training before test, and the ranges of both parts.
#[derive(Default)]
pub(super) struct Divided {
    pub rows: Vec<usize>,
    pub train: Vec<Range<usize>>,
    pub test: Vec<Range<usize>>,
}

/// Divides the rows of every client, of which `is_test` says which are for testing.
pub(super) fn divide<'a>(
    clients: impl Iterator<Item = (&'a str, &'a Vec<usize>)>,
    is_test: impl Fn(&str, &[usize]) -> Vec<bool>,
) -> Divided {
    let mut divided = Divided::default();
    for (id, rows) in clients {
        let is_test = is_test(id, rows);
        for (part, ranges) in [(false, &mut divided.train), (true, &mut divided.test)] {
            let start = divided.rows.len();
            let chosen = rows.iter().zip(&is_test).filter(|(_, is_test)| **is_test == part);
            divided.rows.extend(chosen.map(|(row, _)| *row));
            ranges.push(start..divided.rows.len());
        }
    }
    divided
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_rows_are_held_out_and_some_are_not() {
        let count = |rows, share| {
            let held = hold_out(rows, share, &Key::new(1).word("a"));
            assert_eq!(held.len(), rows);
            held.iter().filter(|held| **held).count()
        };
        assert_eq!([count(10, 0.2), count(10, 0.0), count(1, 0.5), count(2, 0.01), count(2, 0.99)], [2, 0, 0, 1, 1]);
        assert_eq!(hold_out(50, 0.5, &Key::new(1).word("a")), hold_out(50, 0.5, &Key::new(1).word("a")));
        assert_ne!(hold_out(50, 0.5, &Key::new(1).word("a")), hold_out(50, 0.5, &Key::new(1).word("b")));
    }

    #[test]
    fn the_last_rows_are_held_out_with_all_of_their_time() {
        let held =
            |times: &[f64], share| hold_out_last(times, share).iter().map(|held| u8::from(*held)).collect::<Vec<_>>();
        assert_eq!(held(&[5.0, 1.0, 4.0, 2.0, 3.0], 0.4), [1, 0, 1, 0, 0]);
        assert_eq!(held(&[1.0, 2.0, 3.0, 3.0, 3.0], 0.2), [0, 0, 1, 1, 1]);
        assert_eq!(held(&[1.0, 2.0, 2.0, 2.0, 3.0], 0.4), [0, 0, 0, 0, 1]);
        assert_eq!(held(&[7.0, 7.0], 0.5), [0, 0]);
        assert_eq!(held(&[1.0, 2.0], 0.01), [0, 1]);
        assert_eq!(held(&[1.0, 2.0], 0.0), [0, 0]);
        assert_eq!(held(&[], 0.5), Vec::<u8>::new());
    }

    #[test]
    fn blocks_are_nearly_equal() {
        assert_eq!((0..7).map(|client| block(client, 7, 3)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!((0..4).map(|client| block(client, 4, 2)).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }

    #[test]
    fn windows_of_labels() {
        assert_eq!([window(10, 2, 0), window(10, 2, 1)], [0..7, 3..10]);
        assert_eq!([window(2, 2, 0), window(2, 2, 1)], [0..1, 1..2]);
        assert_eq!([window(3, 3, 0), window(3, 3, 1), window(3, 3, 2)], [0..1, 1..2, 2..3]);
        assert_eq!([0, 1, 2, 3, 4].map(|cluster| window(10, 5, cluster)), [0..3, 2..5, 4..7, 5..8, 7..10]);
        assert_eq!(window(10, 1, 0), 0..10);
    }

    #[test]
    fn remainders_go_to_the_largest() {
        assert_eq!(apportion(&[1, 1, 2], 4), [1, 1, 2]);
        // 1.5, 0.9 and 0.6: the last two are rounded up
        assert_eq!(apportion(&[5, 3, 2], 3), [1, 1, 1]);
        assert_eq!(apportion(&[0, 0], 3), [0, 0]);
    }

    #[test]
    fn shares_sum_to_one_however_uneven() {
        let mut rng = Key::new(1).rng();
        for alpha in [1e-300, 0.01, 1.0, 1000.0] {
            let shares = dirichlet(alpha, 5, &mut rng).unwrap();
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{shares:?}");
        }
        let even = dirichlet(1e9, 4, &mut rng).unwrap();
        assert!(even.iter().all(|share| (share - 0.25).abs() < 1e-3));
    }
    #[test]
    fn lots_fall_alike_whoever_else_is_there() {
        let key = Key::new(3).word("lots");
        let all: Vec<String> = (0..50).map(|id| id.to_string()).collect();
        let drawn = draw_lots(all.iter().map(String::as_str), 20, &key);
        assert_eq!(drawn.iter().filter(|drawn| **drawn).count(), 20);
        let turned: Vec<bool> = draw_lots(all.iter().rev().map(String::as_str), 20, &key).into_iter().rev().collect();
        assert_eq!(drawn, turned);
        let fewer = draw_lots(all.iter().map(String::as_str), 19, &key);
        assert!(fewer.iter().zip(&drawn).all(|(fewer, drawn)| !fewer || *drawn));
    }
}
