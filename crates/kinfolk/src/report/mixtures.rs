//! Mixtures as a report shows them: who is an outlier, and where all centres lie in a plane.

use super::html::shortened;
use super::{MixtureRecord, OutlierRecord};
use crate::clustering::{Plane, Points};
use crate::data::moments::Moments;
use serde::Serialize;

/// Centres of at most so many clients are drawn; more would cover each other.
const MOST_CLIENTS: usize = 300;
/// So many of them may be outliers while there are others to be drawn.
const MOST_OUTLIERS: usize = 100;
/// So many scores are listed, the highest first.
const MOST_SCORES: usize = 50;
/// Fewer common centres than these leave a direction of the plane open.
const FEWEST_CENTRES: usize = 3;

impl MixtureRecord {
    /// How many numbers a centre has.
    pub fn width(&self) -> usize {
        let own = self.clients.iter().map(|client| client.centres.len());
        own.chain([self.common.len()]).max().unwrap_or(0) / self.components.max(1)
    }

    /// Who is an outlier.
    fn outliers(&self) -> Vec<bool> {
        self.clients.iter().map(|client| client.outlier.verdict == Some(true)).collect()
    }
}

/// Says of every client with a score whether it is an outlier: its score is far above the others', and it is out of reach
/// for at least half of its components where the method says so. Clients may all be out of reach of each other, and none
/// of them odd.
pub fn judge(clients: &mut [OutlierRecord], components: usize) {
    let scores: Vec<f64> = clients.iter().filter_map(|client| client.score).collect();
    let highest = highest_usual(&scores);
    let apart = |client: &OutlierRecord| client.apart.is_none_or(|apart| 2 * apart >= components.max(1));
    for client in clients {
        client.verdict = client.score.map(|score| score > highest && apart(client));
    }
}

/// About the highest score to be expected of so many clients when all are alike: above it is far. Outliers raise the upper
/// scores, so the lower ones show how much they vary; within reach of the common centre nobody is far.
fn highest_usual(scores: &[f64]) -> f64 {
    const WITHIN_REACH: f64 = 1.0;
    /// The deviation of normal numbers, in units of their median distance from the median.
    const DEVIATION: f64 = 1.4826;
    let Some(centre) = median(scores.to_vec()) else { return WITHIN_REACH };
    let below = scores.iter().map(|score| centre - score).filter(|distance| *distance > 0.0);
    let deviation = DEVIATION * median(below.collect()).unwrap_or(0.0);
    // The largest of K normal numbers is about √(2 ln K) deviations above their mean, seldom half a deviation more.
    let largest = (2.0 * (scores.len() as f64).ln()).sqrt() + 0.5;
    (centre + largest * deviation).max(WITHIN_REACH)
}

/// The middle value; of two the upper one.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Where centres are drawn. Columns have units of their own, so each is taken in units of how much centres vary in it.
struct View {
    deviations: Vec<f64>,
    plane: Plane,
}

impl View {
    /// Onto the plane of the common centres, or of those of the clients that are no outliers where there are few.
    fn of(record: &MixtureRecord, outliers: &[bool]) -> Option<Self> {
        let deviations = deviations(record);
        let few = record.components < FEWEST_CENTRES || record.common.is_empty();
        let good = record.clients.iter().zip(outliers).filter(|(_, outlier)| !**outlier);
        let centres: Vec<f64> = match few {
            true => good.flat_map(|(client, _)| scaled(&client.centres, &deviations)).collect(),
            false => scaled(&record.common, &deviations).collect(),
        };
        let plane = Points::new(&centres, deviations.len()).ok().map(Plane::of)?;
        Some(Self { deviations, plane })
    }

    fn project(&self, centre: &[f64]) -> Place {
        let centre: Vec<f64> = scaled(centre, &self.deviations).collect();
        self.plane.project(&centre).map(shortened)
    }
}

/// Centres, end to end, in these units.
fn scaled(centres: &[f64], deviations: &[f64]) -> impl Iterator<Item = f64> {
    centres.iter().zip(deviations.iter().cycle()).map(|(value, deviation)| value / deviation)
}

/// How much every column varies over all centres, common ones and clients'; 1 where it does not.
fn deviations(record: &MixtureRecord) -> Vec<f64> {
    let width = record.width();
    let all = || record.clients.iter().map(|client| &client.centres).chain([&record.common]);
    let column = |column: usize| {
        let values =
            || all().flat_map(move |centres| centres.iter().skip(column).step_by(width)).filter(|v| v.is_finite());
        Moments::of(values().copied()).scale().deviation
    };
    (0..width).map(column).collect()
}

/// What the page draws of one method's mixtures on one seed.
#[derive(Serialize)]
pub(super) struct MixturePicture<'a> {
    components: usize,
    /// Whether a component is the same for all clients.
    ordered: bool,
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
        let view = View::of(record, &outliers);
        let width = record.width().max(1);
        let places = |centres: &[f64]| -> Vec<Place> {
            let place = |centre| view.as_ref().map_or([None; 2], |view| view.project(centre));
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
            ordered: record.ordered,
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
    use super::super::{ClientMixture, fabricated};
    use super::*;
    use crate::rng::Key;
    use rand_distr::{Distribution, StandardNormal};

    fn judged(scores: &[f64], apart: Option<&[usize]>) -> Vec<bool> {
        let client = |(place, score): (usize, &f64)| OutlierRecord {
            score: Some(*score),
            apart: apart.map(|apart| apart[place]),
            ..OutlierRecord::default()
        };
        let mut clients: Vec<OutlierRecord> = scores.iter().enumerate().map(client).collect();
        judge(&mut clients, 3);
        clients.iter().map(|client| client.verdict.expect("a score")).collect()
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
        let mut unknown = [OutlierRecord::default()];
        judge(&mut unknown, 3);
        assert_eq!(unknown[0].verdict, None);
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
        // In the first column 0, 4, 0 and in the second 0, 0, 1, of everybody: 4 with variance 32/9, 1 with 2/9.
        assert!((square([picture.common[0], picture.common[1]]) - 16.0 * 9.0 / 32.0).abs() < 1e-4);
        assert!((square([picture.common[0], picture.common[2]]) - 9.0 / 2.0).abs() < 1e-4);
        assert_eq!((picture.scores.len(), picture.planted), (0, false));
        // Two common centres span a line only, so the clients' own make the plane.
        let two = fabricated::mixture("em", 0);
        let picture = MixturePicture::of(&two);
        assert!(picture.outliers.is_empty(), "of two clients each is unlike the other");
        assert!(picture.planted && picture.scores[0].planted && !picture.scores[1].planted);
        assert_eq!(picture.scores.iter().map(|scored| scored.client).collect::<Vec<_>>(), ["south", "north"]);
        let mut broken = two;
        broken.clients[0].centres[0] = f64::NAN;
        assert_eq!(MixturePicture::of(&broken).common, [[None; 2]; 2], "nothing is drawn of what is no number");
    }

    #[test]
    fn the_picture_does_not_depend_on_units() {
        let mut random = Key::new(4).rng();
        let mut centres = || -> Vec<f64> { StandardNormal.sample_iter(&mut random).take(12).collect() };
        let common = centres();
        let clients: Vec<ClientMixture> =
            (0..5).map(|number| ClientMixture::new(&number.to_string(), &[0.3; 3], &centres())).collect();
        let plain = MixtureRecord { components: 3, common, clients, ..MixtureRecord::default() };
        let mut turned = plain.clone();
        let own = turned.clients.iter_mut().map(|client| &mut client.centres);
        for centre in own.chain([&mut turned.common]).flat_map(|centres| centres.chunks_exact_mut(4)) {
            centre.iter_mut().zip([1.0, 100.0, 0.01, 1000.0]).for_each(|(value, unit)| *value = 7.0 + *value * unit);
        }
        let flat = |record: &MixtureRecord| -> Vec<f64> {
            let picture = MixturePicture::of(record);
            let places = picture.shown.into_iter().flat_map(|shown| shown.places).chain(picture.common);
            places.flatten().flatten().collect()
        };
        let (plain, turned) = (flat(&plain), flat(&turned));
        assert_eq!(plain.len(), 2 * 6 * 3);
        assert!(plain.iter().zip(&turned).all(|(a, b)| (a - b).abs() < 1e-4), "{plain:?} {turned:?}");
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
