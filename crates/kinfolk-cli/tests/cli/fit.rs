//! A table of clients to a model that is taken into use: the commands of the README, and what people get wrong.

use crate::bench::Bench;
use serde_json::Value;

pub const BAKERIES: &str = include_str!("../../../../examples/bakeries.csv");
const TOMORROW: &str = include_str!("../../../../examples/tomorrow.csv");
pub const NEW: &str = include_str!("../../../../examples/new-bakeries.csv");

pub fn bakeries() -> Bench {
    let bench = Bench::new();
    bench.write("bakeries.csv", BAKERIES);
    bench.write("tomorrow.csv", TOMORROW);
    bench.write("new-bakeries.csv", NEW);
    bench
}

pub fn fitted(bench: &Bench) {
    bench.well(&["fit", "bakeries.csv", "--client", "bakery", "--target", "sold", "--quick"]);
}

#[test]
fn two_kinds_of_bakeries_are_found_and_used() {
    let bench = bakeries();
    let ended = bench.well(&["fit", "bakeries.csv", "--client", "bakery", "--target", "sold", "--quick", "--json"]);
    assert!(ended.stderr.contains("date     date             becomes year, month, weekday"), "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).expect("one document");
    assert_eq!(found["schema"], 1);
    let sizes: Vec<u64> =
        found["families"].as_array().expect("families").iter().map(|f| f["clients"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [24, 16]);
    assert!(found["difference_p"].as_f64().unwrap() < 0.05);
    let errors: Vec<f64> = found["errors"].as_array().unwrap().iter().map(|error| error.as_f64().unwrap()).collect();
    assert!(errors[4] < errors[0] && errors[4] < errors[3], "served better than globally and than alone: {errors:?}");
    for name in ["model.json", "families.csv", "clients.csv", "coefficients.csv"] {
        assert!(bench.path("bakeries.families").join(name).exists(), "{name}");
    }

    let rows = bench.well(&["predict", "bakeries.families", "tomorrow.csv"]).stdout;
    assert_eq!(rows.lines().count(), TOMORROW.lines().count(), "a line for every row, and the header");
    for (line, row) in rows.lines().zip(TOMORROW.lines()).skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells[0], row.split(',').next().unwrap(), "in the order of the table");
        let [prediction, low, high] = [1, 2, 3].map(|cell| cells[cell].parse::<f64>().unwrap());
        assert!(low < prediction && prediction < high, "{line}");
        assert_eq!(cells[4] == "families by share", cells[0] == "B99", "{line}");
    }

    let assigned = bench.well(&["assign", "bakeries.families", "new-bakeries.csv", "--json"]).stdout;
    let assigned: Value = serde_json::from_str(&assigned).expect("one document");
    let of = |place: usize, field: &str| assigned["clients"][place][field].clone();
    assert_eq!([of(0, "family"), of(1, "family")], [1, 2]);
    assert_eq!([0, 1, 2].map(|place| of(place, "fits_none").as_bool().unwrap()), [false, false, true]);

    let shown = bench.well(&["show", "bakeries.families"]).stdout;
    assert!(shown.contains("There are 2 families, of 24 and 16 clients") && shown.contains("rain"), "{shown}");
    assert!(bench.well(&["show", "bakeries.families", "--family", "2"]).stdout.contains("16 clients"));
    assert!(bench.well(&["show", "bakeries.families", "--client", "B05"]).stdout.contains("joining helps"));
}

#[test]
fn predictions_in_columns_are_those_of_the_text() {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;
    let bench = bakeries();
    fitted(&bench);
    let text = bench.well(&["predict", "bakeries.families", "tomorrow.csv"]).stdout;
    let mut records = Vec::new();
    for name in ["tomorrow.parquet", "tomorrow.feather"] {
        bench.well(&["predict", "bakeries.families", "tomorrow.csv", "--out", name]);
        let file = std::fs::File::open(bench.path(name)).expect("predictions");
        let record = match name.ends_with("parquet") {
            true => {
                let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file);
                reader.and_then(|reader| reader.build()).expect("Parquet").next().expect("rows").expect("sound")
            }
            false => {
                let reader = arrow_ipc::reader::FileReader::try_new(file, None);
                reader.expect("Arrow").next().expect("rows").expect("sound")
            }
        };
        records.push(record);
    }
    let [first, second] = &records[..] else { panic!() };
    assert_eq!(first.columns(), second.columns());
    let header: Vec<String> = first.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut lines = vec![header.join(",")];
    for row in 0..first.num_rows() {
        let text = |column: usize| first.column(column).as_string::<i32>().value(row).to_string();
        let number = |column: usize| first.column(column).as_primitive::<Float64Type>().value(row).to_string();
        lines.push([text(0), number(1), number(2), number(3), text(4)].join(","));
    }
    assert_eq!(lines, text.lines().collect::<Vec<_>>());
    let ended = bench.kinfolk(&["predict", "bakeries.families", "tomorrow.csv", "--out", "tomorrow.xlsx"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("want a file that ends in .csv"), "{}", ended.stderr);
    // A table that breaks off leaves no file behind.
    bench.write("broken.csv", format!("{TOMORROW}B01\n"));
    bench.kinfolk(&["predict", "bakeries.families", "broken.csv", "--out", "broken.parquet"]);
    assert!(!bench.path("broken.parquet").exists());
}

#[test]
fn a_client_without_training_rows_is_left_out() {
    let bench = bakeries();
    let mark = |(row, line): (usize, &str)| match (row, row % 5) {
        (0, _) => format!("{line},part\n"),
        (_, 0) => format!("{line},test\n"),
        _ if line.starts_with("B03") => format!("{line},test\n"),
        _ => format!("{line},train\n"),
    };
    bench.write("parts.csv", BAKERIES.lines().enumerate().map(mark).collect::<String>());
    let ended =
        bench.well(&["fit", "parts.csv", "--client", "bakery", "--target", "sold", "--part", "part", "--quick"]);
    assert!(ended.stdout.contains("left out, without rows for training: B03"), "{}", ended.stdout);
}

#[test]
fn the_same_for_any_number_of_threads() {
    let bench = bakeries();
    let mut models = Vec::new();
    for threads in ["1", "3"] {
        let arguments = [
            "fit",
            "bakeries.csv",
            "--client",
            "bakery",
            "--target",
            "sold",
            "--quick",
            "--threads",
            threads,
            "--out",
            threads,
        ];
        bench.well(&arguments);
        models.push(std::fs::read(bench.path(threads).join("model.json")).expect("a model"));
    }
    assert!(models[0] == models[1], "the same model to the byte");
}

#[test]
fn rows_kept_for_testing_are_scored() {
    let bench = bakeries();
    let ended =
        bench.well(&["fit", "bakeries.csv", "--client", "bakery", "--target", "sold", "--time", "date", "--quick"]);
    assert!(ended.stdout.contains("test rows") && ended.stdout.contains("the mean"), "{}", ended.stdout);
}

#[test]
fn newcomers_with_sales_get_a_model_of_their_own() {
    let bench = bakeries();
    fitted(&bench);
    let ended = bench.well(&["predict", "bakeries.families", "new-bakeries.csv"]);
    assert!(ended.stdout.contains("near family 2"), "{}", ended.stdout);
    assert!(ended.stderr.contains("45 rows of 0 known and 3 new clients"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("intervals cover"), "they were fitted to these very rows: {}", ended.stderr);
    let ended = bench.well(&["predict", "bakeries.families", "bakeries.csv"]);
    assert!(ended.stderr.contains("intervals cover"), "{}", ended.stderr);
}

/// Visitors of shops that buy or do not: in shops of one kind the more the cheaper it is, in the others the dearer. Shops from 30 on are new.
pub fn visitors(shops: std::ops::Range<usize>, classes: &[&str]) -> String {
    let mut text = String::from("shop,price,queue,bought\n");
    // Pseudo-random numbers in [0, 1).
    let mut state = 88_172_645_463_325_252u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for shop in shops {
        for _ in 0..60 {
            let (price, queue) = (4.0 * uniform() - 2.0, uniform());
            let slope = if shop % 3 == 0 { -2.0 } else { 2.0 };
            let odds: Vec<f64> =
                (0..classes.len()).map(|class| (class as f64 * (slope * price + 0.5 - queue)).exp()).collect();
            let mut draw = uniform() * odds.iter().sum::<f64>();
            let class = odds.iter().position(|odds| {
                draw -= odds;
                draw < 0.0
            });
            text.push_str(&format!("S{shop:02},{price:.4},{queue:.4},{}\n", classes[class.unwrap_or(0)]));
        }
    }
    text
}

#[test]
fn classes_are_learned_and_predicted_with_probabilities() {
    for classes in [&["no", "yes"][..], &["nothing", "one", "two"]] {
        let bench = Bench::new();
        bench.write("visits.csv", visitors(0..30, classes));
        bench.write("new.csv", visitors(30..33, classes));
        let ended = bench.well(&["fit", "visits.csv", "--client", "shop", "--target", "bought", "--quick", "--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).expect("one document");
        let sizes: Vec<u64> =
            found["families"].as_array().unwrap().iter().map(|family| family["clients"].as_u64().unwrap()).collect();
        assert_eq!((sizes, found["loss"].as_str()), (vec![20, 10], Some("log loss")), "{}", ended.stdout);
        let errors: Vec<f64> = found["errors"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
        assert!(errors[4] < 0.7 * errors[0] && errors[4] < errors[3], "{errors:?}");
        assert!(found["calibration_error"].as_f64().unwrap() < 0.05);

        let rows = bench.well(&["predict", "visits.families", "visits.csv"]).stdout;
        let header: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
        assert_eq!((header.len(), header[2]), (3 + classes.len(), &*format!("p({})", classes[0])));
        for line in rows.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let chances: Vec<f64> = (2..2 + classes.len()).map(|at| cells[at].parse().unwrap()).collect();
            assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{line}");
            let chosen = classes.iter().position(|class| *class == cells[1]).unwrap();
            assert!(chances.iter().all(|chance| *chance <= chances[chosen]), "{line}");
        }

        let assigned = bench.well(&["assign", "visits.families", "new.csv", "--json"]).stdout;
        let assigned: Value = serde_json::from_str(&assigned).expect("one document");
        let families = [0, 1, 2].map(|place| assigned["clients"][place]["family"].as_u64().unwrap());
        assert_eq!(families, [2, 1, 1], "{assigned}");
        let ended = bench.well(&["predict", "visits.families", "new.csv"]);
        assert!(ended.stderr.contains("3 new clients have a personal model"), "{}", ended.stderr);
        assert!(bench.path("visits.families").join("coefficients.csv").exists());
    }
}

#[test]
fn what_people_get_wrong_is_said() {
    let bench = bakeries();
    fitted(&bench);
    bench.write("no-client.csv", TOMORROW.replace("bakery,", "shop,"));
    bench.write("no-rain.csv", TOMORROW.replace(",rain,", ",rainfall,"));
    bench.write("known.csv", BAKERIES);
    bench.write("broken.csv", "bakery,date\n");
    let fit = ["fit", "bakeries.csv", "--out", "new", "--target", "sold", "--client"];
    for (arguments, wanted) in [
        (&[&fit[..], &["Bakery"]].concat()[..], "did you mean `bakery`?"),
        (&["fit", "bakeries.csv", "--client", "bakery", "--target", "Sold", "--out", "new"], "did you mean `sold`?"),
        (&["fit", "bakeries.csv", "--client", "bakery", "--target", "sold"], "--replace"),
        (
            &["fit", "bakeries.csv", "--client", "bakery", "--target", "sold", "--families", "0", "--out", "new"],
            "whole number from 1",
        ),
        (&["fit", "nothing.csv", "--client", "bakery", "--target", "sold", "--out", "new"], "nothing.csv"),
        (&["predict", "bakeries.families", "no-client.csv"], "no column `bakery`"),
        (&["predict", "bakeries.families", "no-rain.csv"], "no column `rain`"),
        (&["predict", "nowhere", "tomorrow.csv"], "no fitted model"),
        (&["assign", "bakeries.families", "known.csv", "--add", "--out", "more"], "no new client"),
        (&["assign", "bakeries.families", "new-bakeries.csv", "--add"], "--out"),
        (&["assign", "bakeries.families", "new-bakeries.csv", "--add", "--out", "bakeries.families"], "--replace"),
        (&["assign", "bakeries.families", "tomorrow.csv"], "no client has a value"),
        (&["show", "bakeries.families", "--client", "b05"], "did you mean `B05`?"),
        (&["show", "bakeries.families", "--family", "3"], "want 1 or 2"),
        (&["show", "."], "no fitted model"),
    ] {
        let ended = bench.kinfolk(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

#[test]
fn a_changed_model_is_refused() {
    let bench = bakeries();
    fitted(&bench);
    let path = bench.path("bakeries.families").join("model.json");
    let model = std::fs::read_to_string(&path).expect("a model");
    for (changed, wanted) in [
        (model.replacen("\"schema\": 2", "\"schema\": 9", 1), "a newer kinfolk"),
        (model.replacen("\"B01\",", "", 1), "39 names for 40 clients"),
        (model[..model.len() / 2].to_string(), "model.json"),
    ] {
        std::fs::write(&path, changed).expect("written");
        let ended = bench.kinfolk(&["show", "bakeries.families"]);
        assert!(ended.code == Some(2) && ended.stderr.contains(wanted), "{wanted}: {}", ended.stderr);
    }
}
