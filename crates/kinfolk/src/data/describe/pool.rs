//! Descriptions of several clients together: where nothing may be told of a single one, each is given its share of what describes the
//! rows of all, so that agreeing on a schema finds what it would have found.

use super::description::{Description, FeaturesDescription, Summary, TargetDescription};
use crate::num::moments::Moments;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Replaces what is told of each client, but for its rows and its group, by its share of what all have. They are of the same columns.
pub(crate) fn pool(clients: &mut [Description]) {
    let rows: Vec<u64> = clients.iter().map(|client| client.rows as u64).collect();
    let Some(first) = clients.first() else { return };
    let columns = match &first.features {
        FeaturesDescription::Matrix { moments, .. } => moments.len(),
        FeaturesDescription::Named(columns) => columns.len(),
    };
    for column in 0..columns {
        pool_moments(clients, &rows, |client| match &mut client.features {
            FeaturesDescription::Matrix { moments, .. } => moments.get_mut(column),
            FeaturesDescription::Named(columns) => match &mut columns.get_mut(column)?.summary {
                Summary::Numbers { moments, .. } | Summary::Dates { moments, .. } => Some(moments),
                Summary::Words { .. } => None,
            },
        });
        let summaries = clients.iter_mut().filter_map(|client| match &mut client.features {
            FeaturesDescription::Named(columns) => Some(&mut columns.get_mut(column)?.summary),
            FeaturesDescription::Matrix { .. } => None,
        });
        pool_summaries(summaries.collect(), &rows);
    }
    pool_moments(clients, &rows, |client| match &mut client.target {
        TargetDescription::Values(moments) => Some(moments),
        _ => None,
    });
    pool_targets(clients.iter_mut().map(|client| &mut client.target).collect());
}

/// The share of each client in `all` things, by its rows.
fn shares(all: u64, rows: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let most = rows.iter().sum::<u64>().max(1);
    let place = move |rows: u64| (u128::from(all) * u128::from(rows) / u128::from(most)) as u64;
    rows.iter().scan(0, move |seen, own| {
        let begin = place(*seen);
        *seen += own;
        Some(begin..place(*seen))
    })
}

fn pool_moments(clients: &mut [Description], rows: &[u64], of: impl Fn(&mut Description) -> Option<&mut Moments>) {
    let mut all = Moments::NONE;
    clients.iter_mut().filter_map(&of).for_each(|own| all.merge(own));
    for (client, share) in clients.iter_mut().zip(shares(all.count, rows)) {
        if let Some(own) = of(client) {
            let count = share.end - share.start;
            *own = if count > 0 { Moments { count, ..all } } else { Moments::NONE };
        }
    }
}

/// What is told of a column beside moments.
fn pool_summaries(mut summaries: Vec<&mut Summary>, rows: &[u64]) {
    let (mut all_different, mut all_occurring) = (true, [0u32; 4]);
    let mut all_counts: BTreeMap<String, u64> = BTreeMap::new();
    let (mut all_others, mut most_kinds) = (0u64, 0u64);
    for summary in &summaries {
        match summary {
            Summary::Numbers { different, .. } => all_different &= different,
            Summary::Dates { occurring, .. } => {
                all_occurring.iter_mut().zip(occurring).for_each(|(all, own)| *all |= own);
            }
            Summary::Words { counts, others, kinds } => {
                counts.iter().for_each(|(word, count)| *all_counts.entry(word.clone()).or_default() += count);
                all_others += others;
                most_kinds = most_kinds.max(kinds.saturating_sub(counts.len() as u64));
            }
        }
    }
    // All words in a row, each as often as it is there: a client's share is a part of this row.
    let all = all_counts.values().sum::<u64>() + all_others;
    for (summary, share) in summaries.iter_mut().zip(shares(all, rows)) {
        match summary {
            Summary::Numbers { different, .. } => *different = all_different,
            Summary::Dates { occurring, .. } => *occurring = all_occurring,
            Summary::Words { counts, others, kinds } => {
                counts.clear();
                let mut end = 0;
                for (word, count) in &all_counts {
                    let begin = end;
                    end += count;
                    let own = end.min(share.end).saturating_sub(begin.max(share.start));
                    if own > 0 {
                        counts.insert(word.clone(), own);
                    }
                }
                *others = share.end.saturating_sub(end.max(share.start));
                *kinds = counts.len() as u64 + most_kinds.min(*others);
            }
        }
    }
}

/// Classes that are known, whoever has them.
fn pool_targets(targets: Vec<&mut TargetDescription>) {
    let (mut most, mut trained, mut tested) = (0, BTreeSet::new(), BTreeSet::new());
    for target in &targets {
        match target {
            TargetDescription::Classes(classes) => most = most.max(*classes),
            TargetDescription::Words { train, test } => {
                trained.extend(train.iter().cloned());
                tested.extend(test.iter().cloned());
            }
            TargetDescription::None | TargetDescription::Values(_) => {}
        }
    }
    for target in targets {
        match target {
            TargetDescription::Classes(classes) => *classes = most,
            TargetDescription::Words { train, test } => {
                (*train, *test) = (trained.clone(), tested.difference(&trained).cloned().collect());
            }
            TargetDescription::None | TargetDescription::Values(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::ColumnDescription;
    use super::*;

    fn moments(values: &[f64]) -> Moments {
        Moments::of(values.iter().copied())
    }

    fn client(numbers: &[f64], words: &[(&str, u64)], target: &[f64]) -> Description {
        let counts = words.iter().map(|(word, count)| (word.to_string(), *count)).collect();
        let numbers = Summary::Numbers { moments: moments(numbers), different: false };
        let words = Summary::Words { counts, others: 0, kinds: words.len() as u64 };
        let named = |(name, summary): (&str, Summary)| ColumnDescription { name: name.into(), summary };
        Description {
            rows: target.len(),
            group: None,
            features: FeaturesDescription::Named([("age", numbers), ("sex", words)].map(named).into()),
            target: TargetDescription::Values(moments(target)),
        }
    }

    fn column(client: &Description, place: usize) -> &Summary {
        match &client.features {
            FeaturesDescription::Named(columns) => &columns[place].summary,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn shares_of_all_are_all_and_say_nothing_of_one() {
        let mut clients = vec![
            client(&[1.0, 2.0], &[("f", 4)], &[1.0, 2.0, 3.0, 4.0]),
            client(&[30.0, 40.0, 50.0], &[("m", 3)], &[10.0, 20.0, 30.0]),
            client(&[7.0], &[("f", 1), ("x", 1)], &[5.0, 5.0]),
        ];
        pool(&mut clients);
        let (mut ages, mut targets, mut counts) = (Moments::NONE, Moments::NONE, BTreeMap::new());
        let mean = 130.0 / 6.0;
        for client in &clients {
            assert_eq!(client.fault(), None);
            let Summary::Numbers { moments, .. } = column(client, 0) else { panic!("{client:?}") };
            assert!((moments.mean - mean).abs() < 1e-12 && (moments.min, moments.max) == (1.0, 50.0), "{moments:?}");
            ages.merge(moments);
            let TargetDescription::Values(moments) = &client.target else { panic!("{client:?}") };
            targets.merge(moments);
            let Summary::Words { counts: own, others: 0, .. } = column(client, 1) else { panic!("{client:?}") };
            own.iter().for_each(|(word, count)| *counts.entry(word.as_str()).or_insert(0) += count);
        }
        let wanted = moments(&[1.0, 2.0, 30.0, 40.0, 50.0, 7.0]);
        assert_eq!(ages.count, 6);
        assert!((ages.deviation / wanted.deviation - 1.0).abs() < 1e-12, "{ages:?}");
        assert_eq!((targets.count, targets.min, targets.max), (9, 1.0, 30.0));
        assert_eq!(counts, BTreeMap::from([("f", 5), ("m", 3), ("x", 1)]));
        // Four of nine rows: the first four of f f f f f m m m x, whoever has them.
        let Summary::Words { counts, .. } = column(&clients[0], 1) else { panic!() };
        assert_eq!(*counts, BTreeMap::from([("f".to_string(), 4)]));
        let Summary::Words { counts, .. } = column(&clients[2], 1) else { panic!() };
        assert_eq!(*counts, BTreeMap::from([("m".to_string(), 1), ("x".to_string(), 1)]));
    }

    #[test]
    fn classes_are_those_of_all() {
        let words = |train: &[&str], test: &[&str]| {
            let set = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
            let target = TargetDescription::Words { train: set(train), test: set(test) };
            Description { rows: 2, group: None, features: FeaturesDescription::Named(Vec::new()), target }
        };
        let mut clients = vec![words(&["a"], &["b", "c"]), words(&["b"], &[])];
        pool(&mut clients);
        assert!(clients.iter().all(|client| client.target == words(&["a", "b"], &["c"]).target), "{clients:?}");
    }
}
