use super::*;
use crate::data::TableSettings;
use crate::fit::{FittedModel, Format};
use crate::rng::Key;
use crate::run::Unwatched;
use rand::RngExt;
use rand_distr::StandardNormal;
use std::path::Path;

/// Two kinds of rows; `share(client)` says how often the first occurs, `shift(client)` where its rows are.
fn table(path: &Path, clients: usize, rows: usize, share: impl Fn(usize) -> f64, shift: impl Fn(usize) -> f64) {
    let mut random = Key::new(11).rng();
    let mut text = "shop,kind,length,weight\n".to_string();
    for client in 0..clients {
        for row in 0..rows {
            let first = random.random::<f64>() < share(client);
            let [x, y] = [0, 1].map(|_| random.sample::<f64, _>(StandardNormal));
            let (x, y) = if first { (100.0 + 5.0 * x, 3.0 + y) } else { (160.0 + 10.0 * x, 9.0 + y) };
            let (x, y) = (x + 30.0 * shift(client), y - 3.0 * shift(client));
            text += &format!("s{client:02},{},{x},{y}\n", ["a", "b", "c"][row % 3]);
        }
    }
    std::fs::write(path, text).expect("a table");
}

fn fitted(path: &Path, components: Option<usize>) -> SavedMixture {
    let table = TableSettings { path: path.display().to_string(), client: "shop".into(), ..TableSettings::default() };
    let settings = FitSettings { table, components, ..FitSettings::default() };
    fit_mixture(settings, &Options::default(), &mut Unwatched, &mut |_| {}).expect("a mixture")
}

#[test]
fn kinds_of_rows_and_families_of_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("visits.csv");
    table(&path, 24, 40, |client| [0.85, 0.2][client % 2], |_| 0.0);
    let saved = fitted(&path, None);
    assert_eq!(saved.features(), ["length", "weight"], "words are left out");
    assert_eq!((saved.model.shape.components, saved.model.families.len()), (2, 2), "{}", saved.show());
    assert!(saved.model.weights_p.is_some_and(|p| p < 0.01));
    assert!(saved.model.clients.iter().all(|client| !client.is_outlier));
    let family = |client: usize| saved.model.clients[client].family;
    assert!((0..24).all(|client| family(client) == family(client % 2)) && family(0) != family(1));
    let shown = saved.shown();
    let mut lengths: Vec<f64> = shown.components.iter().map(|component| component.means[0]).collect();
    lengths.sort_by(f64::total_cmp);
    assert!((lengths[0] - 100.0).abs() < 2.0 && (lengths[1] - 160.0).abs() < 2.0, "{lengths:?}");

    // The folder is read as it was written, and answers as before.
    let out = folder.path().join("model");
    std::fs::create_dir(&out).expect("a folder");
    saved.write(&out).expect("its files");
    let FittedModel::Mixture(read) = FittedModel::read(&out).expect("a model") else { panic!("a mixture") };
    assert_eq!(read, saved);
    assert!(saved.show_client("s03").expect("a client").contains("family"));
    assert!(saved.show_client("s99").is_err() && saved.show_family(3).is_err());

    // New rows: a known client, a new one like the first family, and one like nobody.
    let mut text = "shop,kind,length,weight\ns00,a,100,3\ns00,b,160,9\ns00,b,900,3\n".to_string();
    for row in 0..30 {
        let (length, weight) = if row % 7 == 6 { (155 + row % 10, 8.5) } else { (95 + row % 10, 2.5) };
        text += &format!("new,a,{length},{}\n", weight + f64::from(row % 7) / 6.0);
    }
    (0..30).for_each(|row| text += &format!("odd,a,{},{}\n", 120 + row % 10, f64::from(row % 7)));
    let new = folder.path().join("new.csv");
    std::fs::write(&new, text).expect("a table");
    let mut written = Vec::new();
    let found = predict_components(&saved, &new, Format::Csv, &mut written).expect("predictions");
    assert_eq!((found.rows, found.known, found.new), (63, 1, 2));
    let lines: Vec<Vec<String>> = String::from_utf8(written)
        .expect("text")
        .lines()
        .map(|line| line.split(',').map(str::to_string).collect())
        .collect();
    assert_eq!(lines[0].join(","), "client,component,p(1),p(2),log_density,outlier,served_by");
    assert_eq!(lines.len(), 64);
    assert_ne!(lines[1][1], lines[2][1], "two kinds");
    assert_eq!([&lines[1][5], &lines[2][5], &lines[3][5]], ["0", "0", "1"]);
    let assigned = assign_by_components(&saved, &new).expect("new clients").clients;
    assert_eq!(assigned.iter().map(|client| &*client.client).collect::<Vec<_>>(), ["new", "odd"]);
    assert_eq!(assigned[0].family, family(0) + 1);
    assert!(assigned[1].fits_none && !assigned[0].fits_none, "{assigned:?}");
}

#[test]
fn clients_whose_rows_are_elsewhere_are_outliers_and_leave_the_components_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("visits.csv");
    table(&path, 16, 50, |_| 0.5, |client| if client < 2 { 1.0 } else { 0.0 });
    // Were it not said how many there are, their rows would be components of their own.
    let saved = fitted(&path, Some(2));
    let outliers: Vec<&str> = saved.shown().outliers;
    assert_eq!(outliers, ["s00", "s01"], "{}", saved.show());
    assert_eq!(saved.model.shape.components, 2);
    assert!(saved.model.clients[0].alone.is_some(), "served by a mixture of its own");
    assert!(saved.model.weights_p.is_some_and(|p| p > 0.01));
}

#[test]
fn components_that_are_asked_for_and_tables_without_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("visits.csv");
    table(&path, 4, 30, |_| 0.5, |_| 0.0);
    let saved = fitted(&path, Some(3));
    assert_eq!(saved.model.shape.components, 3);
    assert!(saved.show().starts_with("3 components as asked"));
    std::fs::write(&path, "shop,kind\na,x\na,y\nb,x\nb,y\n").expect("a table");
    let table = TableSettings { path: path.display().to_string(), client: "shop".into(), ..TableSettings::default() };
    let settings = FitSettings { table, ..FitSettings::default() };
    let error = fit_mixture(settings, &Options::default(), &mut Unwatched, &mut |_| {}).expect_err("no numbers");
    assert!(error.to_string().contains("no column of numbers"), "{error}");
}

#[test]
fn outliers_that_share_a_place_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("visits.csv");
    let is_apart = |client: usize| client == 3 || client == 11;
    table(&path, 24, 40, |_| 0.6, |client| if is_apart(client) { 6.0 } else { 0.0 });
    let saved = fitted(&path, None);
    let found: Vec<usize> = (0..24).filter(|&client| saved.model.clients[client].is_outlier).collect();
    assert_eq!(found, [3, 11], "{}", saved.show());
    assert_eq!(saved.model.shape.components, 2, "the components are those of the others");
    assert!(saved.show().contains("in one place or several that they share"), "{}", saved.show());
}
