//! Small clusterings for the tests of this module.

use crate::clustering::convex::{Certificate, Path, Step};
use crate::clustering::{Clustering, Found, Sureness};
use crate::data::points::{Choice, PointTable, read};

/// A path over points at these places of the first direction, with these labels at λ = 1, 2, 3, ….
pub fn path(places: &[f64], labels: &[&[usize]]) -> Path {
    let step = |(labels, number): (&&[usize], usize)| Step {
        lambda: number as f64,
        labels: labels.to_vec(),
        clusters: labels.iter().max().map_or(0, |last| last + 1),
        plane: places.iter().map(|place| [*place, 0.0]).collect(),
        certificate: certificate(),
    };
    Path { steps: labels.iter().zip(1..).map(step).collect() }
}

fn certificate() -> Certificate {
    Certificate { primal: 1.5, dual: 1.5, gap: 0.0, undecided: 0 }
}

/// Four points in two clusters, the second pair closer than the first, with a path.
pub fn two_pairs() -> (PointTable, Found) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("p.csv");
    std::fs::write(&file, "name,x,y\na,0,0\nb,10,0\nc,10,1\n\"d, e\",0,2\n").expect("writable");
    let table = read(&file, &Choice { id: Some("name".into()), ..Choice::default() }).expect("points");
    let mut path = path(&[0.0, 10.0, 10.0, 0.0], &[&[0, 1, 2, 3], &[0, 1, 1, 2], &[0, 1, 1, 0], &[0, 0, 0, 0]]);
    for (step, lambda) in path.steps.iter_mut().zip([0.25, 0.5, 1.0, 4.0]) {
        step.lambda = lambda;
    }
    let found = Found {
        silhouettes: Vec::new(),
        weights: None,
        lambda: Some(2.0),
        certificate: Some(certificate()),
        path: Some(path),
        sureness: Some(Sureness { word: "likely", reason: "two clusters last longest".into() }),
        notes: vec!["a note".into()],
        ..Found::from(Clustering::of(table.points().expect("points"), &[0, 1, 1, 0]))
    };
    (table, found)
}
