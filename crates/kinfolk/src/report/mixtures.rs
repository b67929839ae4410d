//! Mixtures as a report shows them: all centres in a plane, and the outliers.

use super::html::shortened;
use crate::clustering::{Plane, Points};
use crate::data::scaling::Scale;
use crate::num::Moments;
use crate::record::{ClientRecord, MixtureRecord};
use serde::Serialize;
use std::collections::HashMap;

/// Upper bound on the clients whose centres are drawn; more would cover each other.
const MOST_CLIENTS: usize = 300;
/// Upper bound on the outliers among them, while there are others to draw.
const MOST_OUTLIERS: usize = 100;
/// Upper bound on the scores listed, the highest first.
const MOST_SCORES: usize = 50;
/// Fewer common centres than this leave a direction of the plane undetermined.
const FEWEST_CENTRES: usize = 3;

/// The plane in which centres are drawn. Columns differ in their units, so each is divided by its deviation over centres.
struct View {
    deviations: Vec<f64>,
    plane: Plane,
}

impl View {
    /// The plane of the common centres, or, where these are few, of the centres of clients that are not outliers.
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

/// Concatenated centres in these units.
fn scaled(centres: &[f64], deviations: &[f64]) -> impl Iterator<Item = f64> {
    centres.iter().zip(deviations.iter().cycle()).map(|(value, deviation)| value / deviation)
}

/// The deviation of every column over all centres, common ones and clients'; 1 for a constant.
fn deviations(record: &MixtureRecord) -> Vec<f64> {
    let width = record.width();
    let all = || record.clients.iter().map(|client| &client.centres).chain([&record.common]);
    let column = |column: usize| {
        let values =
            || all().flat_map(move |centres| centres.iter().skip(column).step_by(width)).filter(|v| v.is_finite());
        Scale::of(&Moments::of(values().copied())).deviation
    };
    (0..width).map(column).collect()
}

/// One method's mixtures on one seed, as the page draws them.
#[derive(Serialize)]
pub(super) struct MixturePicture<'a> {
    components: usize,
    /// Whether components correspond between clients.
    ordered: bool,
    clients: usize,
    outliers: Vec<&'a str>,
    /// The common centres in the plane.
    common: Vec<Place>,
    /// All clients, or some where there are many.
    shown: Vec<Shown<'a>>,
    /// The highest scores, falling.
    scores: Vec<Scored<'a>>,
    /// Whether the planted outliers are known.
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
    /// Of a method's mixtures and its clients on one seed.
    pub(super) fn of(record: &'a MixtureRecord, clients: &[&'a ClientRecord]) -> Self {
        let by_id: HashMap<&str, &ClientRecord> = clients.iter().map(|client| (&*client.client, *client)).collect();
        let ended: Vec<Option<&ClientRecord>> =
            record.clients.iter().map(|client| by_id.get(&*client.client).copied()).collect();
        let outliers: Vec<bool> =
            ended.iter().map(|client| client.is_some_and(|client| client.outlier == Some(true))).collect();
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
        let scored = |client: &'a ClientRecord| {
            Some(Scored {
                client: &client.client,
                score: client.outlier_score.and_then(shortened)?,
                outlier: client.outlier == Some(true),
                apart: client.apart,
                planted: client.planted_outlier == Some(true),
            })
        };
        let mut scores: Vec<Scored> = ended.iter().flatten().filter_map(|client| scored(client)).collect();
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
            planted: ended.iter().flatten().any(|client| client.planted_outlier.is_some()),
        }
    }
}

/// The clients drawn, in order: all while they are few, else evenly picked among the outliers and the others.
fn chosen(outliers: &[bool]) -> Vec<usize> {
    let (odd, others): (Vec<usize>, Vec<usize>) = (0..outliers.len()).partition(|place| outliers[*place]);
    let evenly = |places: &[usize], most: usize| -> Vec<usize> {
        let count = places.len().min(most);
        (0..count).map(|number| places[number * places.len() / count]).collect()
    };
    // Room that one kind does not need goes to the other.
    let room = MOST_CLIENTS - others.len().min(MOST_CLIENTS - MOST_OUTLIERS);
    let mut shown = evenly(&odd, room);
    shown.extend(evenly(&others, MOST_CLIENTS - shown.len()));
    shown.sort_unstable();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ClientMixture, fabricated};
    use crate::rng::Key;
    use rand_distr::{Distribution, StandardNormal};

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
        let picture = MixturePicture::of(&record, &[]);
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
        let clients = fabricated::scored_clients();
        let picture = MixturePicture::of(&two, &clients.iter().collect::<Vec<_>>());
        assert!(picture.outliers.is_empty(), "of two clients each is unlike the other");
        assert!(picture.planted && picture.scores[0].planted && !picture.scores[1].planted);
        assert_eq!(picture.scores.iter().map(|scored| scored.client).collect::<Vec<_>>(), ["south", "north"]);
        let mut broken = two;
        broken.clients[0].centres[0] = f64::NAN;
        assert_eq!(MixturePicture::of(&broken, &[]).common, [[None; 2]; 2], "nothing is drawn of what is no number");
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
            let picture = MixturePicture::of(record, &[]);
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
