//! Mixtures as a report shows them: who is an outlier, and where all centres lie in a plane.

use super::html::shortened;
use super::{ClientMixture, MixtureRecord};
use crate::clustering::{Plane, Points};
use serde::Serialize;

/// Centres of at most so many clients are drawn; more would cover each other.
const MOST_CLIENTS: usize = 300;
/// So many of them may be outliers while there are others to be drawn.
const MOST_OUTLIERS: usize = 100;
/// So many scores are listed, the highest first.
const MOST_SCORES: usize = 50;
/// Fewer common centres than these leave a direction of the plane open.
const FEWEST_CENTRES: usize = 3;
/// A score is high when it is so many times farther above the median than scores usually are from it.
const FAR: f64 = 5.0;

impl MixtureRecord {
    /// How many numbers a centre has.
    pub fn width(&self) -> usize {
        let own = self.clients.iter().map(|client| client.centres.len());
        own.chain([self.common.len()]).max().unwrap_or(0) / self.components.max(1)
    }

    /// Who is an outlier: a client that is out of reach for at least half of its components, or one with a high score
    /// where the method does not say what is in reach.
    pub fn outliers(&self) -> Vec<bool> {
        let scores: Vec<f64> = self.clients.iter().filter_map(|client| client.outlier.score).collect();
        let centre = median(scores.clone());
        let usual = centre.and_then(|centre| median(scores.iter().map(|score| (score - centre).abs()).collect()));
        let high = |score: f64| centre.zip(usual).is_some_and(|(centre, usual)| score - centre > FAR * usual);
        let is_outlier = |client: &ClientMixture| match client.outlier.apart {
            Some(apart) => self.components > 0 && 2 * apart >= self.components,
            None => client.outlier.score.is_some_and(high),
        };
        self.clients.iter().map(is_outlier).collect()
    }

    /// The plane of the common centres, or of those of the clients that are no outliers where there are few.
    fn plane(&self, outliers: &[bool]) -> Option<Plane> {
        let width = self.width();
        if self.components >= FEWEST_CENTRES && !self.common.is_empty() {
            return Points::new(&self.common, width).ok().map(Plane::of);
        }
        let good = self.clients.iter().zip(outliers).filter(|(_, outlier)| !**outlier);
        let centres: Vec<f64> = good.flat_map(|(client, _)| client.centres.iter().copied()).collect();
        Points::new(&centres, width).ok().map(Plane::of)
    }
}

/// The middle value; of two the upper one.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// What the page draws of one method's mixtures on one seed.
#[derive(Serialize)]
pub(super) struct MixturePicture<'a> {
    components: usize,
    /// How many clients have a mixture.
    clients: usize,
    /// The names of the outliers.
    outliers: Vec<&'a str>,
    /// The common centres in the plane.
    common: Vec<Place>,
    /// All clients, or some where there are many.
    shown: Vec<Shown<'a>>,
    /// The highest scores, falling.
    scores: Vec<Scored<'a>>,
    /// Whether it is known who was planted as an outlier.
    planted: bool,
}

type Place = [Option<f64>; 2];

#[derive(Serialize)]
struct Shown<'a> {
    client: &'a str,
    outlier: bool,
    weights: Vec<Option<f64>>,
    places: Vec<Place>,
}

#[derive(Serialize)]
struct Scored<'a> {
    client: &'a str,
    score: f64,
    outlier: bool,
    apart: Option<usize>,
    planted: bool,
}

impl<'a> MixturePicture<'a> {
    pub(super) fn of(record: &'a MixtureRecord) -> Self {
        let outliers = record.outliers();
        let plane = record.plane(&outliers);
        let width = record.width().max(1);
        let places = |centres: &[f64]| -> Vec<Place> {
            let place = |centre| plane.as_ref().map_or([None; 2], |plane| plane.project(centre).map(shortened));
            centres.chunks(width).map(place).collect()
        };
        let shown = chosen(&outliers).into_iter().map(|place| {
            let client = &record.clients[place];
            Shown {
                client: &client.client,
                outlier: outliers[place],
                weights: client.weights.iter().map(|weight| shortened(*weight)).collect(),
                places: places(&client.centres),
            }
        });
        let mut scores: Vec<Scored> = (record.clients.iter().zip(&outliers))
            .filter_map(|(client, outlier)| {
                Some(Scored {
                    client: &client.client,
                    score: client.outlier.score.and_then(shortened)?,
                    outlier: *outlier,
                    apart: client.outlier.apart,
                    planted: client.outlier.planted == Some(true),
                })
            })
            .collect();
        scores.sort_by(|a, b| b.score.total_cmp(&a.score));
        scores.truncate(MOST_SCORES);
        let named = record.clients.iter().zip(&outliers).filter(|(_, outlier)| **outlier);
        Self {
            components: record.components,
            clients: record.clients.len(),
            outliers: named.map(|(client, _)| client.client.as_str()).collect(),
            common: places(&record.common),
            shown: shown.collect(),
            scores,
            planted: record.clients.iter().any(|client| client.outlier.planted.is_some()),
        }
    }
}

/// The clients that are drawn, in their order: all while they are few, otherwise some of the outliers and of the others,
/// evenly picked.
fn chosen(outliers: &[bool]) -> Vec<usize> {
    let (odd, others): (Vec<usize>, Vec<usize>) = (0..outliers.len()).partition(|place| outliers[*place]);
    let evenly = |places: &[usize], most: usize| -> Vec<usize> {
        let count = places.len().min(most);
        (0..count).map(|number| places[number * places.len() / count]).collect()
    };
    // Whatever room one kind leaves is the other's.
    let room = MOST_CLIENTS - others.len().min(MOST_CLIENTS - MOST_OUTLIERS);
    let mut shown = evenly(&odd, room);
    shown.extend(evenly(&others, MOST_CLIENTS - shown.len()));
    shown.sort_unstable();
    shown
}

#[cfg(test)]
mod tests {
    use super::super::{OutlierRecord, fabricated};
    use super::*;

    fn with_scores(scores: &[f64], apart: Option<&[usize]>) -> MixtureRecord {
        let client = |(place, score): (usize, &f64)| ClientMixture {
            outlier: OutlierRecord { score: Some(*score), apart: apart.map(|apart| apart[place]), planted: None },
            ..ClientMixture::new(&place.to_string(), &[0.5, 0.3, 0.2], &[place as f64; 6])
        };
        let clients = scores.iter().enumerate().map(client).collect();
        MixtureRecord { components: 3, clients, ..MixtureRecord::default() }
    }

    #[test]
    fn outliers_are_out_of_reach_or_far_above_the_median() {
        assert_eq!(with_scores(&[9.0, 1.0, 1.0], Some(&[1, 2, 3])).outliers(), [false, true, true]);
        // Median 1.2, usually 0.2 away: 3 is far, 2 is not.
        assert_eq!(with_scores(&[1.0, 1.1, 1.2, 1.2, 1.4, 2.0, 3.0], None).outliers()[5..], [false, true]);
        assert_eq!(with_scores(&[2.0; 4], None).outliers(), [false; 4]);
        assert!(MixtureRecord::default().outliers().is_empty());
    }

    #[test]
    fn centres_lie_in_the_plane_of_the_common_ones() {
        // Common centres in the first two of three columns; the third cannot be seen.
        let common = vec![0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        let client = |third: f64| {
            let centres: Vec<f64> = common.chunks(3).flat_map(|centre| [centre[0], centre[1], third]).collect();
            ClientMixture::new(&third.to_string(), &[0.5, 0.25, 0.25], &centres)
        };
        let clients = vec![client(0.0), client(7.0)];
        let record = MixtureRecord { components: 3, common, clients, ..MixtureRecord::default() };
        let picture = MixturePicture::of(&record);
        assert_eq!(picture.shown[1].places, picture.common);
        let square = |[a, b]: [Place; 2]| {
            let apart = |axis: usize| (a[axis].unwrap() - b[axis].unwrap()).powi(2);
            apart(0) + apart(1)
        };
        assert!((square([picture.common[0], picture.common[1]]) - 16.0).abs() < 1e-4, "distances are kept");
        assert_eq!((picture.scores.len(), picture.planted), (0, false));
        // Two common centres span a line only, so the clients' own make the plane.
        let two = fabricated::mixture("em", 0);
        let picture = MixturePicture::of(&two);
        assert_eq!(picture.outliers, ["south"]);
        assert!(picture.planted && picture.scores[0].planted && !picture.scores[1].planted);
        assert_eq!(picture.scores.iter().map(|scored| scored.client).collect::<Vec<_>>(), ["south", "north"]);
        let mut broken = two;
        broken.clients[0].centres[0] = f64::NAN;
        assert_eq!(MixturePicture::of(&broken).common, [[None; 2]; 2], "nothing is drawn of what is no number");
    }

    #[test]
    fn of_many_clients_the_outliers_are_drawn() {
        let outliers: Vec<bool> = (0..1000).map(|place| place % 100 == 7).collect();
        let shown = chosen(&outliers);
        assert_eq!(shown.len(), MOST_CLIENTS);
        assert!(shown.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(shown.iter().filter(|place| outliers[**place]).count(), 10);
        assert_eq!(chosen(&[true, false, false]), [0, 1, 2]);
        assert_eq!(chosen(&[true; 400]).len(), MOST_CLIENTS);
        let half: Vec<bool> = (0..1000).map(|place| place % 2 == 0).collect();
        let odd = |outliers: &[bool]| chosen(outliers).iter().filter(|place| outliers[**place]).count();
        assert_eq!((odd(&half), odd(&[vec![false; 20], vec![true; 480]].concat())), (MOST_OUTLIERS, MOST_CLIENTS - 20));
    }
}
