//! Tables as people bring them to `fit`: each is fitted rightly, or refused by what to do.

use crate::bench::{Bench, Ended};

/// Twelve schools, with noise that nobody needs to draw.
fn rows() -> Vec<[String; 4]> {
    let row = |number: usize| {
        let (school, x) = (number / 12, (number * 37 % 101) as f64 / 25.0 - 2.0);
        let noise = (number * 53 % 97) as f64 / 97.0 - 0.5;
        let y = 2.0 * x + 0.3 * school as f64 + noise;
        [format!("s{school:02}"), format!("{x:.3}"), ["a", "b"][number % 7 % 2].into(), format!("{y:.3}")]
    };
    (0..144).map(row).collect()
}

fn text(header: &str, rows: impl IntoIterator<Item = String>) -> String {
    rows.into_iter().fold(format!("{header}\n"), |text, row| text + &row + "\n")
}

/// The table with one cell of every row changed.
fn with(column: usize, change: impl Fn(usize, &str) -> String) -> String {
    let row = |(number, mut row): (usize, [String; 4])| {
        row[column] = change(number, &row[column]);
        row.join(",")
    };
    text("school,x,kind,y", rows().into_iter().enumerate().map(row))
}

fn fitted(bench: &Bench, name: &str, content: &[u8], more: &[&str]) -> Ended {
    bench.write(name, content);
    let fit = ["fit", name, "--client", "school", "--target", "y", "--quick", "--no-curves", "--replace", "--out", "m"];
    bench.kinfolk(&[&fit[..], more].concat())
}

#[test]
fn tables_that_can_be_read_are_fitted() {
    let bench = Bench::new();
    let usual = with(0, |_, school| school.into());
    let nth = |every: usize, sign: &'static str| {
        move |number: usize, cell: &str| match number % every {
            0 => sign.to_string(),
            _ => cell.to_string(),
        }
    };
    for (what, content, wanted) in [
        ("as it should be", usual.clone(), "Clients differ"),
        ("a sign for a missing number", with(1, nth(9, "n/k")), "16 cells count as missing: `n/k`"),
        ("what a spreadsheet writes", with(1, nth(12, "########")), "12 cells count as missing"),
        ("a fault of a spreadsheet", with(1, nth(12, "#DIV/0!")), "12 cells count as missing"),
        ("semicolons", usual.replace(',', ";"), "Clients differ"),
        ("tabs", usual.replace(',', "\t"), "Clients differ"),
        ("decimal commas", usual.replace(',', ";").replace('.', ","), "a decimal comma in x, y"),
        ("a byte order mark", format!("\u{feff}{usual}"), "Clients differ"),
        ("quoted numbers", with(1, |_, x| format!("\"{x}\"")), "Clients differ"),
        ("percent", with(1, |_, x| format!("{x} %")), "Clients differ"),
        ("currency", with(1, |_, x| format!("${x}")), "Clients differ"),
        ("thousands", with(1, |number, _| format!("\"1,{:03}.5\"", number * 37 % 1000)), "one model for everybody"),
        ("the header twice", format!("{usual}{usual}"), "1 cell counts as missing: `x`"),
        ("row numbers", with(2, |number, _| (number + 1).to_string()), "left out: different in every row"),
        ("numbers as names of clients", with(0, |_, school| school.replace('s', "1")), "Clients differ"),
        (
            "names that are nearly the same",
            with(0, |number, school| match number % 2 {
                0 => school.to_uppercase(),
                _ => school.to_string(),
            }),
            "names differ by case or blanks alone are different ones: `S00` and `s00`",
        ),
        ("names for folders", with(0, |number, _| ["A/B", "A_B", "A B"][number % 3].into()), "one model for everybody"),
        ("one client", with(0, |_, _| "one".into()), "cannot be told"),
        (
            "no column",
            text("school,y", rows().into_iter().map(|row| format!("{},{}", row[0], row[3]))),
            "Clients differ",
        ),
        ("nothing that varies", with(1, |_, _| "7".into()).replace(",b,", ",a,"), "left out: the same in every row"),
        (
            "yes and no in several spellings",
            with(2, |number, _| ["yes", "Yes", "Y", "no", "No", "N"][number % 6].into()),
            "kind  yes-no  2 kinds  one column, however yes and no are spelled",
        ),
        (
            "yes and no as numbers and words",
            with(2, |number, _| ["1", "true", "TRUE", "0", "F", "false"][number % 6].into()),
            "kind  yes-no  2 kinds  one column, however yes and no are spelled",
        ),
        (
            "yes, no and something else",
            with(2, |number, _| ["yes", "Yes", "no", "maybe"][number % 4].into()),
            "spellings of yes or no are told apart, as there are other words",
        ),
        ("a row each", with(0, |number, _| format!("s{number}")), "cannot be told"),
        ("a target that lacks values", with(3, nth(7, "NaN")), "21 rows are left out, without a value in column `y`"),
        ("the target as a feature", with(2, |number, _| rows()[number][3].clone()), "the target by another name?"),
        (
            "a huge number",
            with(1, |number, x| if number == 3 { "1e300".into() } else { x.into() }),
            "client s00 is left out",
        ),
    ] {
        let ended = fitted(&bench, "t.csv", content.as_bytes(), &[]);
        assert_eq!(ended.code, Some(0), "{what}: {}", ended.stderr);
        let said = ended.stdout + &ended.stderr;
        assert!(said.contains(wanted), "{what}: {said}");
    }
    let latin: Vec<u8> =
        usual.replace("s01", "Zurich").bytes().map(|byte| if byte == b'u' { 0xfc } else { byte }).collect();
    assert!(fitted(&bench, "t.csv", &latin, &[]).stdout.contains("read as Windows-1252"));
    let few = text("school,x,kind,y", rows().into_iter().take(60).map(|row| row.join(",")));
    assert!(
        fitted(&bench, "t.csv", few.as_bytes(), &["--families", "2"]).stdout.contains("2 "),
        "five clients, two families"
    );
}

#[test]
fn what_cannot_be_fitted_is_refused_by_what_to_do() {
    let bench = Bench::new();
    let usual = with(0, |_, school| school.into());
    std::fs::create_dir(bench.path("folder.csv")).expect("a folder");
    for (name, content, wanted) in [
        ("t.csv", String::new(), "hint: the file is empty"),
        ("t.csv", "school,x,kind,y\n".into(), "no rows below the header"),
        ("t.csv", usual.replace("kind", "x"), "two columns are called `x`\n  hint: rename one of them"),
        (
            "t.csv",
            usual.replace("school", "shop"),
            "--client: t.csv has no column `school`\n  hint: did you mean `shop`?",
        ),
        ("t.csv", usual.replace(",y\n", ",Y\n"), "--target: t.csv has no column `y`\n  hint: did you mean `Y`?"),
        ("t.csv", usual.replace(',', "|"), "its only column is `school|x|kind|y`; cells are separated by commas"),
        ("t.csv", format!("Our schools\n{usual}"), "its only column is `Our schools`"),
        (
            "t.csv",
            with(0, |number, school| if number == 5 { " ".into() } else { school.into() }),
            "row 7: column `school` has no value",
        ),
        ("t.csv", with(3, |_, _| "5".into()), "column `y` is the same in every training row"),
        (
            "t.csv",
            with(1, |number, x| if number == 3 { "inf".into() } else { x.into() }),
            "is not finite\n  hint: mend it",
        ),
        (
            "t.csv",
            with(1, |number, x| if number % 2 == 0 { format!("w{number}") } else { x.into() }),
            "leave the column out with --drop x",
        ),
        ("t.csv", format!("{usual}s01,1\n"), "row 146: 2 cells, want 4"),
        ("t.csv", "PK\u{3}\u{4}workbook".into(), "save the table as CSV"),
        ("t.xlsx", "PK\u{3}\u{4}workbook".into(), "error: got t.xlsx, want a file that ends in .csv"),
        ("t.zip", "PK\u{3}\u{4}archive".into(), "want a file that ends in .csv"),
        ("t.parquet", usual.clone(), "t.parquet: "),
        ("t.feather", usual.clone(), "t.feather: "),
    ] {
        let ended = fitted(&bench, name, content.as_bytes(), &[]);
        assert_eq!(ended.code, Some(2), "{wanted}: {}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "want {wanted}: {}", ended.stderr);
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, usual.as_bytes()).expect("packed");
    let packed = packed.finish().expect("packed");
    let ended = fitted(&bench, "t.csv.gz", &packed[..packed.len() / 2], &[]);
    assert!(ended.stderr.contains("the file ends too early"), "{}", ended.stderr);
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(usual.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert!(fitted(&bench, "t.csv", &utf16, &[]).stderr.contains("UTF-16"));
    let ended = bench.kinfolk(&["fit", "folder.csv", "--client", "school", "--target", "y", "--out", "m2"]);
    assert!(ended.stderr.contains("folder.csv: a folder, want a file"), "{}", ended.stderr);
    let ended = fitted(&bench, "t.csv", usual.as_bytes(), &["--families", "20"]);
    assert!(ended.stderr.contains("at most the 12 clients"), "{}", ended.stderr);
}

/// What `predict` and `assign` say of a table, with the model of the usual one.
fn used(bench: &Bench, name: &str, content: &[u8]) -> [Ended; 2] {
    bench.write(name, content);
    ["predict", "assign"].map(|verb| bench.kinfolk(&[verb, "m", name]))
}

#[test]
fn tables_that_can_be_read_are_predicted() {
    let bench = Bench::new();
    let usual = with(0, |_, school| school.into());
    assert_eq!(fitted(&bench, "t.csv", usual.as_bytes(), &[]).code, Some(0));
    let [wanted, _] = used(&bench, "t.csv", usual.as_bytes());
    assert_eq!(wanted.code, Some(0), "{}", wanted.stderr);
    let nth = |every: usize, sign: &'static str| {
        move |number: usize, cell: &str| if number.is_multiple_of(every) { sign.to_string() } else { cell.to_string() }
    };
    // The same cells, otherwise written.
    for (what, name, content) in [
        ("semicolons", "t.csv", usual.replace(',', ";")),
        ("tabs", "t.tsv", usual.replace(',', "\t")),
        ("decimal commas", "t.csv", usual.replace(',', ";").replace('.', ",")),
        ("a byte order mark", "t.csv", format!("\u{feff}{usual}")),
        ("quoted numbers", "t.csv", with(1, |_, x| format!("\"{x}\""))),
        ("percent", "t.csv", with(1, |_, x| format!("{x} %"))),
        ("blanks in the header", "t.csv", usual.replacen("school,x", " school, x", 1)),
        ("a text with the ending of a packed one", "t.csv.gz", usual.clone()),
        (
            "a column more",
            "t.csv",
            text("more,school,x,kind,y", rows().into_iter().map(|row| format!("1,{}", row.join(",")))),
        ),
    ] {
        let [predicted, assigned] = used(&bench, name, content.as_bytes());
        assert_eq!(predicted.stdout, wanted.stdout, "{what}: {}", predicted.stderr);
        assert_eq!(assigned.code, Some(0), "{what}: {}", assigned.stderr);
    }
    // What differs is said.
    for (what, content, said) in [
        ("signs for missing numbers", with(1, nth(20, "n/k")), "8 cells count as missing: `n/k`"),
        (
            "a target in words",
            with(3, |_, _| "high".into()),
            "column `y` holds numbers; 144 cells count as missing: `high`",
        ),
        ("no target", text("school,x,kind", rows().into_iter().map(|row| row[..3].join(","))), "144 rows of 12 known"),
        ("new clients", with(0, |_, _| "new".into()), "0 known and 1 new"),
        ("NaN", with(1, nth(9, "NaN")), "144 rows of 12 known"),
        ("no rows", "school,x,kind,y\n".into(), "0 rows of 0 known"),
    ] {
        let [predicted, _] = used(&bench, "t.csv", content.as_bytes());
        assert_eq!(predicted.code, Some(0), "{what}: {}", predicted.stderr);
        assert!(predicted.stderr.contains(said), "{what}: {}", predicted.stderr);
    }
    // Words that training rows did not have.
    let [predicted, _] = used(&bench, "t.csv", with(2, |_, _| "zzz".into()).as_bytes());
    assert_eq!(predicted.stdout.lines().count(), 145, "{}", predicted.stderr);
}

#[test]
fn what_cannot_be_predicted_is_refused_by_what_to_do() {
    let bench = Bench::new();
    let usual = with(0, |_, school| school.into());
    assert_eq!(fitted(&bench, "t.csv", usual.as_bytes(), &[]).code, Some(0));
    let fourth =
        |sign: &'static str| move |number: usize, cell: &str| if number == 3 { sign.into() } else { cell.to_string() };
    for (name, content, wanted) in [
        ("p.csv", String::new(), "hint: the file is empty"),
        ("p.csv", usual.replace("school", "shop"), "p.csv: no column `school`"),
        ("p.csv", usual.replace("school,x", "School,x"), "hint: did you mean `School`?"),
        ("p.csv", usual.replace("kind", "sort"), "no column `kind`\n  hint: the model was fitted with it"),
        ("p.csv", usual.replace(',', "|"), "its only column is `school|x|kind|y`; cells are separated by commas"),
        ("p.csv", usual.replace("kind", "x"), "two columns are called `x`\n  hint: rename one of them"),
        ("p.csv", with(1, |_, _| "big".into()), "column `x` holds words, want numbers\n  hint: mend the column"),
        (
            "p.csv",
            with(1, |number, _| format!("2020-01-{:02}", number % 28 + 1)),
            "column `x` holds words, want numbers",
        ),
        ("p.csv", with(1, fourth("inf")), "p.csv row 5: column `x` is not finite\n  hint: mend it"),
        ("p.csv", with(1, fourth("1e999")), "p.csv row 5: column `x` is not finite"),
        ("p.csv", with(0, fourth(" ")), "p.csv row 5: column `school` has no value\n  hint: fill it in"),
        ("p.csv", format!("{usual}s01,1\n"), "row 146: 2 cells, want 4\n  hint: quote cells"),
        ("p.csv", "PK\u{3}\u{4}workbook".into(), "hint: save the table as CSV"),
        ("p.xlsx", "PK\u{3}\u{4}workbook".into(), "got p.xlsx, want a file that ends in .csv"),
        ("p.parquet", usual.clone(), "p.parquet: "),
        ("p.feather", usual.clone(), "p.feather: "),
    ] {
        for ended in used(&bench, name, content.as_bytes()) {
            assert_eq!(ended.code, Some(2), "{wanted}: {}", ended.stderr);
            assert!(ended.stderr.contains(wanted), "want {wanted}: {}", ended.stderr);
        }
    }
    // Of a new client too large to be squared; of a known one, predicted as it is.
    let huge = with(1, fourth("1e300")).replace("s00", "new");
    for ended in used(&bench, "p.csv", huge.as_bytes()) {
        assert!(ended.code == Some(2) && ended.stderr.contains("hint: a value is too large"), "{}", ended.stderr);
    }
    let [_, assigned] =
        used(&bench, "p.csv", text("school,x,kind", rows().into_iter().map(|row| row[..3].join(","))).as_bytes());
    assert!(assigned.stderr.contains("hint: families are told by it"), "{}", assigned.stderr);

    std::fs::create_dir(bench.path("folder.csv")).expect("a folder");
    std::fs::create_dir(bench.path("none")).expect("a folder");
    let nested = nested_parquet();
    bench.write("nested.parquet", nested);
    bench.write("p.csv", &usual);
    let model = bench.read("m/model.json");
    let schema = model.find("\"schema\": ").expect("its version") + "\"schema\": ".len();
    bench.write("newer/model.json", format!("{}99{}", &model[..schema], &model[schema + 1..]));
    bench.write("cut/model.json", &model[..model.len() / 2]);
    bench.write("text/model.json", "hello");
    bench.write("other/model.json", model.replace("\"equations\": 1", "\"equations\": 7"));
    for (model, table, wanted) in [
        ("m", "folder.csv", "folder.csv: a folder, want a file"),
        ("m", "nowhere.csv", "reading nowhere.csv: No such file"),
        ("m", "nested.parquet", "column `x` holds"),
        ("nowhere", "p.csv", "nowhere: no fitted model"),
        ("none", "p.csv", "none: no fitted model, it has no model.json\n  hint: `kinfolk fit"),
        ("p.csv", "p.csv", "p.csv: no fitted model"),
        ("newer", "p.csv", "hint: a newer kinfolk has written it"),
        ("cut", "p.csv", "hint: the file is damaged"),
        ("text", "p.csv", "hint: the file is damaged"),
        ("other", "p.csv", "not what `fit` has written"),
    ] {
        for verb in ["predict", "assign"] {
            let ended = bench.kinfolk(&[verb, model, table]);
            assert_eq!(ended.code, Some(2), "{verb} {model} {table}: {}", ended.stderr);
            assert!(ended.stderr.contains(wanted), "want {wanted}: {}", ended.stderr);
        }
    }
    for (out, wanted) in [
        ("nowhere/x.csv", "writing nowhere/x.csv: No such file"),
        ("folder.csv", "writing folder.csv"),
        ("x.xls", "--out: got x.xls, want a file that ends in"),
        ("./p.csv", "which is the table itself\n  hint: name another file"),
    ] {
        let ended = bench.kinfolk(&["predict", "m", "p.csv", "--out", out]);
        assert!(ended.code == Some(2) && ended.stderr.contains(wanted), "want {wanted}: {}", ended.stderr);
    }
    assert_eq!(bench.read("p.csv"), usual, "the table is as it was");
    let ended = bench.kinfolk(&["assign", "m", "p.csv", "--add"]);
    assert!(ended.stderr.contains("want also --out with a folder"), "{}", ended.stderr);
}

/// A table whose `x` is a list in every row.
fn nested_parquet() -> Vec<u8> {
    use arrow_array::builder::{Float64Builder, ListBuilder};
    use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
    use std::sync::Arc;
    let mut lists = ListBuilder::new(Float64Builder::new());
    (0..3).for_each(|row| lists.append_value([Some(f64::from(row)), None]));
    let words = |word: &str| Arc::new(StringArray::from(vec![word; 3])) as ArrayRef;
    let targets = Arc::new(Float64Array::from(vec![1.0, 2.0, 4.0])) as ArrayRef;
    let lists = Arc::new(lists.finish()) as ArrayRef;
    let columns = [("school", words("s00")), ("x", lists), ("kind", words("a")), ("y", targets)];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("closed");
    bytes
}
