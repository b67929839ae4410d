//! Networks of a table: the verbs on what was found, and whether `fit` takes them by itself.

use crate::bench::Bench;
use serde_json::Value;

/// Shops of two families, whose prices are a wave along a column with a sign that is the family's, or a plain sum of columns.
fn shops(file: &str, clients: std::ops::Range<usize>, is_wave: bool, bench: &Bench) {
    let mut state = 5 + clients.start as u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut text = "shop,width,height,price\n".to_string();
    for shop in clients {
        for _ in 0..80 {
            let [x, y, noise] = [0, 1, 2].map(|_| (0..6).map(|_| draw()).sum::<f64>() - 3.0);
            let sign = [1.0, -1.0][shop % 2];
            let price = if is_wave { 10.0 * sign * (3.0 * x).sin() } else { shop as f64 + 10.0 * x - 5.0 * y };
            text += &format!("s{shop:02},{:.4},{:.4},{:.4}\n", 5.0 + 2.0 * x, y, 100.0 + price + 2.0 * noise);
        }
    }
    bench.write(file, text);
}

fn bench() -> Bench {
    let bench = Bench::new();
    shops("shops.csv", 0..20, true, &bench);
    bench
}

const FIT: [&str; 6] = ["fit", "shops.csv", "--client", "shop", "--target", "price"];

#[test]
fn networks_are_found_better_and_used() {
    let bench = bench();
    let found = bench.well(&[&FIT[..], &["--json"]].concat()).stdout;
    let found: Value = serde_json::from_str(&found).expect("one document");
    assert_eq!((&found["schema"], &found["kind"]), (&1.into(), &"network".into()));
    assert_eq!(found["families"].as_array().map(Vec::len), Some(2), "{found}");
    let first = found["sentences"][0].as_str().expect("a sentence");
    assert!(
        first.starts_with("A network (hidden 32 and 32) was tried: ") && first.ends_with("it is taken."),
        "{first}"
    );
    let folder = bench.path("shops.families");
    for name in ["model.json", "models.safetensors", "families.csv", "clients.csv", "effects.csv", "report.html"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert!(!folder.join("coefficients.csv").exists());
    let again = bench.kinfolk(&FIT);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    assert!(again.stderr.contains("--replace"), "{}", again.stderr);

    let rows = bench.well(&["predict", "shops.families", "shops.csv"]);
    assert_eq!(rows.stdout.lines().count(), 1 + 20 * 80);
    assert!(rows.stdout.starts_with("client,prediction,low,high,served_by\ns00,"), "{}", rows.stdout);
    assert!(rows.stderr.contains("1600 rows of 20 known and 0 new clients"), "{}", rows.stderr);
    bench.well(&["predict", "shops.families", "shops.csv", "--out", "rows.parquet"]);
    let shown = bench.well(&["show", "shops.families"]).stdout;
    assert!(
        shown.contains("There are 2 families, of 10 and 10 clients") && shown.contains("90 % intervals cover"),
        "{shown}"
    );
    let one = bench.well(&["show", "shops.families", "--client", "s03"]).stdout;
    assert!(one.starts_with("s03: 80 rows, family ") && one.contains("every client alone"), "{one}");
    let family = bench.well(&["show", "shops.families", "--family", "2"]).stdout;
    assert!(family.contains("spread over rows") && family.contains("clients: s0"), "{family}");
    let shown: Value = serde_json::from_str(&bench.well(&["show", "shops.families", "--json"]).stdout).expect("json");
    assert_eq!(shown, found);

    // New clients, of either family.
    shops("new.csv", 30..32, true, &bench);
    let assigned = bench.well(&["assign", "shops.families", "new.csv", "--json"]).stdout;
    let assigned: Value = serde_json::from_str(&assigned).expect("one document");
    let [first, second] = [0, 1].map(|place| &assigned["clients"][place]);
    assert_ne!(first["family"], second["family"], "{assigned}");
    assert_eq!((&first["fits_none"], &second["known"]), (&false.into(), &false.into()), "{assigned}");
    bench.well(&["assign", "shops.families", "new.csv", "--add", "--out", "more"]);
    let told = bench.well(&["predict", "more", "new.csv"]);
    assert!(told.stderr.contains("160 rows of 2 known and 0 new clients"), "{}", told.stderr);

    // Fitted again, they stay networks, and families keep their numbers.
    let later = bench.well(&["fit", "shops.csv", "--refit", "shops.families", "--quick", "--out", "later"]).stdout;
    assert!(later.contains("since the last fit: all clients are in the families they were in"), "{later}");

    // A linear model in its place leaves nothing of the networks behind.
    bench.well(&[&FIT[..], &["--model", "linear", "--quick", "--replace"]].concat());
    assert!(folder.join("coefficients.csv").exists() && !folder.join("models.safetensors").exists());
}

#[test]
fn linear_models_stay_and_say_so() {
    let bench = Bench::new();
    shops("shops.csv", 0..20, false, &bench);
    let found = bench.well(&FIT).stdout;
    let said = found.lines().find(|line| line.starts_with("A network")).unwrap_or_else(|| panic!("{found}"));
    assert!(said.ends_with("the linear model stays."), "{said}");
    assert!(bench.path("shops.families").join("coefficients.csv").exists());
}

#[test]
fn what_people_get_wrong() {
    let bench = bench();
    let refused = |more: &[&str], wanted: &str| {
        let ended = bench.kinfolk(&[&FIT[..], &["--model", "mlp"], more].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
        assert!(!bench.path("shops.families").exists(), "{wanted}");
    };
    refused(&["--weight", "height"], "weight: ");
    refused(&["--covariance", "full"], "covariance: ");
    refused(&["--no-curves"], "no-curves: ");
    refused(&["--no-interactions"], "no-interactions: ");
    refused(&["--families", "90"], "families: got 90, want at most the number of clients, 20");
    refused(&["--drop", "width,height"], "no column is left");
    let ended = bench.kinfolk(&[&FIT[..], &["--model", "cnn"]].concat());
    assert!(ended.stderr.contains("want one of auto, linear, logistic, softmax, mlp"), "{}", ended.stderr);
    bench.well(&[&FIT[..], &["--model", "mlp", "--quick", "--families", "one"]].concat());
    std::fs::write(bench.path("shops.families").join("models.safetensors"), "nothing").expect("a file");
    let ended = bench.kinfolk(&["predict", "shops.families", "shops.csv"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("models.safetensors is not the one that belongs to model.json"), "{}", ended.stderr);
}
