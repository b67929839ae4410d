//! Which clients are unlike the others.

use super::*;

/// Who is an outlier by the method's score, who was planted as one, and the area under the ROC curve.
#[derive(Default)]
pub(super) struct Outliers;

impl Finding for Outliers {
    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        let planted = &context.population.outliers;
        for (place, client) in found.clients.iter_mut().enumerate() {
            let apart = context.outcome.mixture.as_ref().and_then(|mixture| *mixture.apart.get(place)?);
            client.outlier_score = apart.map(|apart| apart.score);
            client.apart = apart.map(|apart| apart.components);
            client.planted_outlier = planted.get(place).copied();
        }
        judge(&mut found.clients, context.model.mixture().map_or(0, |shape| shape.components));
        found.summary.notes.extend(note(&found.clients));
        let scores: Option<Vec<f64>> = found.clients.iter().map(|client| client.outlier_score).collect();
        found.numbers([("outlier_auc", scores.and_then(|scores| area_under_curve(&scores, planted)))]);
        Ok(())
    }
}

fn note(clients: &[ClientRecord]) -> Option<String> {
    const NAMED: usize = 10;
    let outliers = clients.iter().filter(|client| client.outlier == Some(true));
    let mut odd: Vec<(f64, &str)> =
        outliers.filter_map(|client| Some((client.outlier_score?, client.client.as_str()))).collect();
    odd.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names: Vec<String> = odd.iter().take(NAMED).map(|(score, id)| format!("{id} ({score:.2})")).collect();
    let more = odd.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let who = match odd.len() {
        0 => return None,
        1 => "a client unlike the others, with its outlier score",
        _ => "clients unlike the others, with their outlier scores",
    };
    Some(format!("{who}: {}{more}", names.join(", ")))
}

/// Marks outliers among the clients with a score: the score is far above the others', and at least half of the components
/// are out of reach, where the method says so. Clients may all be out of each other's reach, and none of them an outlier.
fn judge(clients: &mut [ClientRecord], components: usize) {
    let scores: Vec<f64> = clients.iter().filter_map(|client| client.outlier_score).collect();
    let highest = highest_usual(&scores);
    let apart = |client: &ClientRecord| client.apart.is_none_or(|apart| 2 * apart >= components.max(1));
    for client in clients {
        client.outlier = client.outlier_score.map(|score| score > highest && apart(client));
    }
}

/// About the highest score to be expected when all clients are alike. Outliers raise the upper scores, so the deviation is
/// estimated from the lower ones; a client within reach of the common centre is never an outlier.
fn highest_usual(scores: &[f64]) -> f64 {
    const WITHIN_REACH: f64 = 1.0;
    /// Standard deviation of a normal distribution, in units of its median absolute deviation.
    const DEVIATION: f64 = 1.4826;
    let Some(centre) = median(scores.iter().copied()) else { return WITHIN_REACH };
    let below = scores.iter().map(|score| centre - score).filter(|distance| *distance > 0.0);
    let deviation = DEVIATION * median(below).unwrap_or(0.0);
    // The maximum of K normal variables is about √(2 ln K) deviations above their mean, seldom half a deviation more.
    let largest = (2.0 * (scores.len() as f64).ln()).sqrt() + 0.5;
    (centre + largest * deviation).max(WITHIN_REACH)
}

/// The area under the ROC curve, ties counting half; `None` without both kinds of clients.
fn area_under_curve(scores: &[f64], outliers: &[bool]) -> Option<f64> {
    let mut ranked: Vec<(f64, bool)> = scores.iter().copied().zip(outliers.iter().copied()).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut won, mut found) = (0.0, 0.0, 0.0);
    for equal in ranked.chunk_by(|a, b| a.0 == b.0) {
        let outliers = equal.iter().filter(|(_, outlier)| *outlier).count() as f64;
        let others = equal.len() as f64 - outliers;
        won += outliers * (below + 0.5 * others);
        below += others;
        found += outliers;
    }
    (found > 0.0 && below > 0.0).then(|| won / (found * below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand_distr::{Distribution, StandardNormal};

    fn judged(scores: &[f64], apart: Option<&[usize]>) -> Vec<bool> {
        let client = |(place, score): (usize, &f64)| ClientRecord {
            outlier_score: Some(*score),
            apart: apart.map(|apart| apart[place]),
            ..ClientRecord::default()
        };
        let mut clients: Vec<ClientRecord> = scores.iter().enumerate().map(client).collect();
        judge(&mut clients, 3);
        clients.iter().map(|client| client.outlier.expect("a score")).collect()
    }

    #[test]
    fn outliers_are_out_of_reach_and_far_above_the_median() {
        // Median 1.2, below it 1 and 1.1, 0.2 away (of two the upper): far is above 1.2 + 1.4826 (√(2 ln 7) + ½) 0.2 = 1.93.
        let scores = [1.0, 1.1, 1.2, 1.2, 1.4, 1.92, 1.94];
        assert_eq!(judged(&scores, None)[4..], [false, false, true]);
        assert_eq!(judged(&scores, Some(&[3, 3, 3, 3, 3, 3, 2]))[5..], [false, true]);
        assert_eq!(judged(&scores, Some(&[3, 3, 3, 3, 3, 3, 1])), [false; 7], "within reach");
        assert_eq!(judged(&scores.map(|score| score / 2.0), None), [false; 7], "nobody is far who is within reach");
        assert_eq!(judged(&[2.0; 4], None), [false; 4]);
        assert_eq!(judged(&[0.0, 0.0, 0.0, 1.5], None), [false, false, false, true]);
        let mut unknown = [ClientRecord::default()];
        judge(&mut unknown, 3);
        assert_eq!(unknown[0].outlier, None);
    }

    #[test]
    fn outliers_do_not_hide_each_other_and_many_clients_raise_no_alarm() {
        // The writers of pen digits, nine of them with shuffled columns.
        let good = [
            3.3, 3.66, 3.82, 4.1, 4.11, 4.12, 4.17, 4.22, 4.3, 4.32, 4.32, 4.44, 4.51, 4.52, 4.6, 4.64, 4.67, 4.75,
            4.83, 4.84, 4.96, 4.97, 5.05, 5.34, 5.41, 5.5, 5.51, 5.54, 5.59, 5.79, 5.83, 5.84, 5.96, 6.11, 6.35,
        ];
        let shuffled = [8.58, 8.73, 9.54, 9.74, 9.82, 9.85, 9.93, 10.24, 10.29];
        let named = judged(&[&good[..], &shuffled].concat(), None);
        assert_eq!(named, [vec![false; good.len()], vec![true; shuffled.len()]].concat());
        for seed in 0..20 {
            let mut random = Key::new(seed).rng();
            let mut scores: Vec<f64> =
                StandardNormal.sample_iter(&mut random).take(2000).map(|it: f64| 10.0 + it).collect();
            scores.push(30.0);
            let named = judged(&scores, None);
            let others = named.iter().filter(|named| **named).count() - 1;
            assert!(named[2000] && others <= 1, "{others} of 2000 alike");
        }
    }

    #[test]
    fn the_area_counts_pairs() {
        let area = |scores: &[f64], outliers: &[u8]| {
            area_under_curve(scores, &outliers.iter().map(|outlier| *outlier == 1).collect::<Vec<_>>())
        };
        assert_eq!(area(&[0.1, 0.9, 0.2], &[0, 1, 0]), Some(1.0));
        assert_eq!(area(&[0.1, 0.9, 0.2], &[1, 0, 0]), Some(0.0));
        // Of four pairs two are won and one is even.
        assert_eq!(area(&[1.0, 2.0, 2.0, 3.0], &[0, 1, 0, 1]), Some(3.5 / 4.0));
        assert_eq!(area(&[5.0; 4], &[0, 1, 0, 1]), Some(0.5));
        assert_eq!((area(&[1.0, 2.0], &[0, 0]), area(&[1.0], &[1]), area(&[], &[])), (None, None, None));
    }
}
