//! Tables as people have them: each is read rightly, or refused by a message that says what to do.

use super::{file, make};
use crate::data::known::{KnownColumns, KnownRows};
use crate::data::schema::{Coding, Schema, describe};
use crate::data::table::*;
use crate::data::understood::lines;
use crate::families::Role;
use std::fs;
use std::io::Write;
use std::path::MAIN_SEPARATOR;

const USUAL: &str = "client = \"c\"\ntarget = \"y\"\ntest_fraction = 0\n";

/// What a file is made into: its features, rows as they were encoded, the clients' targets, and the remarks.
struct Encoded {
    names: Vec<String>,
    rows: Vec<Vec<f64>>,
    targets: Vec<f64>,
    remarks: Vec<String>,
    schema: Schema,
}

fn schema_of(population: &Population) -> Result<Schema> {
    let described: Vec<_> = population.clients.iter().map(|client| describe(client, true)).collect();
    Schema::fix(
        &described,
        Coding { standardise: false, constant: true, kinds: 3, curves: false, numbers_only: false, means_alone: false },
    )
}

fn read_bytes(name: &str, content: &[u8], text: &str) -> Result<Encoded> {
    let (folder, path) = file(name, "");
    fs::write(&path, content).unwrap();
    let place = format!("{}{MAIN_SEPARATOR}", folder.path().display());
    let read = || {
        let population = make(&path, text)?;
        let schema = schema_of(&population)?;
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        for client in &population.clients {
            let encoded = schema.encode(&client.train)?;
            let Features::F64 { columns, values } = &**encoded.features() else { panic!() };
            rows.extend(values.chunks_exact(*columns).map(<[f64]>::to_vec));
            targets.extend(encoded.values().unwrap_or_default());
        }
        let remarks = population.remarks.iter().map(|remark| remark.replace(&place, "")).collect();
        Ok(Encoded { names: schema.feature_names(), rows, targets, remarks, schema })
    };
    read().map_err(|error: Error| Error::data(error.to_string().replace(&place, "")))
}

fn read(content: &str, text: &str) -> Encoded {
    read_bytes("t.csv", content.as_bytes(), &format!("{USUAL}{text}")).unwrap()
}

fn refused(content: &str, text: &str) -> String {
    match read_bytes("t.csv", content.as_bytes(), &format!("{USUAL}{text}")) {
        Ok(read) => panic!("{:?} {:?}", read.names, read.rows),
        Err(error) => error.to_string(),
    }
}

/// One column `x` of these cells, all of one client, with a target that is no class.
fn column(cells: &[&str]) -> String {
    let rows = cells.iter().enumerate().map(|(row, cell)| format!("a;{row}.25;{cell}\n"));
    format!("c;y;x\n{}", rows.collect::<String>())
}

fn numbers(read: &Encoded) -> Vec<f64> {
    read.rows.iter().map(|row| row[0]).collect()
}

#[test]
fn delimiters_marks_and_encodings() {
    let wanted = vec![1.5, -2.0, 3.25];
    let comma = "c,y,x\na,0.5,1.5\na,1.5,-2\na,2.5,3.25\n";
    let variants: [(&str, Vec<u8>); 9] = [
        ("t.csv", comma.into()),
        ("t.txt", comma.replace(',', "\t").into()),
        ("t.csv", comma.replace(',', ";").into()),
        ("t.csv", comma.replace(',', ";").replace('.', ",").into()),
        ("t.csv", comma.replace(',', "\t").replace('.', ",").into()),
        ("t.tsv", comma.into()),
        ("t.csv", format!("\u{feff}{}", comma.replace('\n', "\r\n")).into()),
        ("t.csv", comma.replace("1.5\n", "\"1.5\"\n").into()),
        ("t.csv", comma.replace("a,", "Z\u{fc}rich,").chars().map(|letter| letter as u8).collect()),
    ];
    for (name, content) in variants {
        let found = read_bytes(name, &content, USUAL).unwrap();
        assert_eq!((numbers(&found), &found.targets[..]), (wanted.clone(), &[0.5, 1.5, 2.5][..]), "{name} {content:?}");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&content).unwrap();
        let packed = read_bytes(&format!("{name}.gz"), &packed.finish().unwrap(), USUAL).unwrap();
        assert_eq!(numbers(&packed), wanted);
    }
    let latin = read_bytes("t.csv", b"c,y,x\nZ\xfcrich,0.5,1\nZ\xfcrich,1.5,2\n", USUAL).unwrap();
    assert_eq!(latin.remarks, ["t.csv row 2: not UTF-8; such cells are read as Windows-1252"]);
    assert_eq!(read(&column(&["1,5", "2"]).replace('.', ","), "").remarks, ["t.csv: a decimal comma in y, x"]);
}

#[test]
fn thousands_are_taken_for_what_they_must_be() {
    assert_eq!(numbers(&read(&column(&["1.234,5", "7", "1.234"]).replace(".25;", ";"), "")), [1234.5, 7.0, 1234.0]);
    assert_eq!(numbers(&read(&column(&["1,234.5", "1,234"]), "")), [1234.5, 1234.0]);
    // The other column has a decimal point, so that a comma can only separate thousands.
    assert_eq!(numbers(&read(&column(&["1,234", "5,678"]), "")), [1234.0, 5678.0]);
    assert_eq!(numbers(&read(&column(&["1 234", "5 678"]), "")), [1234.0, 5678.0]);
    assert_eq!(numbers(&read(&column(&["12 %", "5%"]), "")), [12.0, 5.0]);
}

#[test]
fn a_cell_that_is_no_number_is_missing_and_makes_no_categories() {
    let mut cells: Vec<String> = (0..40).map(|row| format!("{}.5", row * 7 % 11)).collect();
    cells[3] = "n/k".into();
    cells[9] = "?".into();
    cells[12] = String::new();
    let content = column(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        refused(&content, ""),
        "t.csv row 5: column `x` holds `n/k`, others numbers\n  hint: mend it, delete the row, fill in all such cells with \
         data.missing = \"fill\", or leave the column out with data.drop = [\"x\"]"
    );
    let found = read(&content, "missing = \"fill\"");
    assert_eq!(found.names, ["x", "x=(missing)"]);
    assert_eq!(found.remarks, ["t.csv: column `x` holds numbers; 2 cells count as missing: `n/k`, `?`"]);
    let known: Vec<f64> = found.rows.iter().filter(|row| row[1] == 0.0).map(|row| row[0]).collect();
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    assert_eq!((known.len(), found.rows[3][1], found.rows[12][1]), (37, 1.0, 1.0));
    assert!((found.rows[9][0] - mean).abs() < 1e-12);
    assert_eq!(found.schema.roles(), [Role::Linear, Role::Common]);
    assert_eq!(
        lines(&found.schema.understood()),
        ["x  number  3 missing  missing ones are the mean, and a column says where"]
    );
}

#[test]
fn words_have_kinds() {
    let content = column(&["red", "red", "red", "blue", "blue", "", "green", "green", "mauve", "ochre"]);
    let found = read(&content, "missing = \"fill\"");
    // Three kinds are kept, besides the missing one; mauve and ochre share a column.
    assert_eq!(found.names, ["x=(missing)", "x=green", "x=red", "x=(other)"]);
    assert_eq!(found.rows[5], [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(found.rows[3], [0.0; 4], "blue is the base");
    assert_eq!(found.rows[9], [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(
        lines(&found.schema.understood()),
        [
            "x  words  5 kinds  1 missing  the 3 most frequent are told apart, the other 2 are one kind; missing ones are a kind"
        ]
    );
    let found = read(&column(&["yes", "no", "", "yes"]), "missing = \"fill\"");
    assert_eq!(found.names, ["x=(missing)", "x=yes"]);
    let found = read(&column(&["yes", "no", "no", "yes"]), "");
    assert_eq!(lines(&found.schema.understood()), ["x  yes-no  2 kinds  one column"]);
}

#[test]
fn numbers_may_be_names() {
    let content = column(&["101", "7", "101", "7"]);
    assert_eq!(read(&content, "words = [\"x\"]").names, ["x=101"]);
    assert_eq!(read(&content, "").names, ["x"]);
}

#[test]
fn dates_become_parts_that_vary() {
    let days: Vec<String> = (1..=28).map(|day| format!("{day:02}.0{}.2021", 1 + day % 2)).collect();
    let found = read(&column(&days.iter().map(String::as_str).collect::<Vec<_>>()), "");
    let weekdays = ["Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].map(|day| format!("x.weekday={day}"));
    assert_eq!(found.names[..2], ["x.year", "x.month=2"]);
    assert_eq!(found.names[2..], weekdays);
    assert!((found.rows[1][0] - (2021.0 + 1.0 / 365.0)).abs() < 1e-9, "{:?}", found.rows[1]);
    // Weekdays of monthly dates are an accident.
    let months: Vec<String> = (0..30).map(|month| format!("20{}-{:02}-01", 10 + month / 12, month % 12 + 1)).collect();
    let found = read(&column(&months.iter().map(String::as_str).collect::<Vec<_>>()), "");
    assert_eq!((found.names.len(), found.names[1].as_str()), (12, "x.month=2"));
    let found = read(&column(&["2020-05-01 08:30", "2020-05-01 17:00", "2020-05-01 17:30"]), "");
    assert_eq!(found.names, ["x.year", "x.hour=17"]);
}

#[test]
fn ids_and_constants_are_left_out() {
    let mut content = "c,y,row,one,name,x,year\n".to_string();
    for row in 0..60 {
        content += &format!("{},{row}.25,{},7,n{row},{}.5,{}\n", row % 3, row + 1, row * 13 % 17, 1990 + row / 3);
    }
    let found = read(&content, "");
    // Measurements and years differ in every row of a client, too.
    assert_eq!(found.names, ["x", "year"]);
    assert_eq!(
        lines(&found.schema.understood()),
        [
            "row   number  left out: different in every row, like a name or a number of rows",
            "one   number  left out: the same in every row",
            "name  words   left out: different in every row, like a name or a number of rows",
            "x     number  used as it is",
            "year  number  used as it is",
        ]
    );
}

#[test]
fn given_parts_times_and_weights() {
    let content = "c,y,x,part,t,w\na,1.5,1,train,2020-01-05,1\na,2.5,2,Test,2020-01-01,0\na,3.5,4,train,2020-01-09,2.5\n\
                   b,4.5,3,test,2020-01-02,1\nb,5.5,9,train,2020-01-02,1\nb,6.5,9,train,2020-01-04,1\n";
    let build = |text: &str| {
        let (_folder, path) = file("t.csv", content);
        make(&path, &format!("client = \"c\"\ntarget = \"y\"\n{text}")).unwrap().clients
    };
    let values = |clients: &[Client]| -> Vec<(Vec<f64>, Vec<f64>)> {
        let of = |shard: &Shard| shard.values().unwrap().to_vec();
        clients.iter().map(|client| (of(&client.train), of(&client.test))).collect()
    };
    let given = build("part = \"part\"\ndrop = [\"t\"]");
    assert_eq!(values(&given), [(vec![1.5, 3.5], vec![2.5]), (vec![5.5, 6.5], vec![4.5])]);
    // A row of weight 0 is left out; the others' weights are 1 in the mean over training rows.
    let weighted = build("part = \"part\"\ndrop = [\"t\"]\nweight = \"w\"");
    assert_eq!(values(&weighted), [(vec![1.5, 3.5], vec![]), (vec![5.5, 6.5], vec![4.5])]);
    let weights: Vec<f64> = [1.0, 2.5, 1.0, 1.0].iter().map(|weight| weight / 1.375).collect();
    assert_eq!((weighted[0].train.weights(), weighted[1].train.weights()), (Some(&weights[..2]), Some(&weights[2..])));
    assert_eq!(weighted[0].train.pick(&[1]).weights(), Some(&weights[1..2]));
    assert_eq!(weighted[0].train.columns(), 1, "the weight is no feature");
    let timed = build("time = \"t\"\ntest_fraction = 0.4\ndrop = [\"part\"]");
    assert_eq!(values(&timed), [(vec![2.5, 1.5], vec![3.5]), (vec![4.5, 5.5], vec![6.5])]);
    assert_eq!(timed[0].train.columns(), 3, "x, t and w");
    assert_eq!(build("time = \"t\"\ndrop = [\"part\", \"t\"]")[0].train.columns(), 2);
}

#[test]
fn rows_without_a_target_are_left_out_where_cells_may_be_missing() {
    let content = "c,y,x\na,1.5,1\na,,2\na,2.5,3\nb,NA,3\n";
    let found = read(content, "missing = \"fill\"");
    assert_eq!(
        (found.rows.len(), &found.remarks[..]),
        (2, &["2 rows are left out, without a value in column `y`".to_string()][..])
    );
    assert!(refused("c,y,x\na,,1\n", "missing = \"fill\"").contains("no row has a value in column `y`"));
}

#[test]
fn rows_with_missing_values_are_left_out_where_that_is_wanted() {
    let content = "c,y,x,colour,unread\na,1.5,1,red,\na,2.5,,red,\na,3.5,3,,\nb,,3,red,\nb,4.5,4,blue,\n";
    let found = read(content, "missing = \"drop\"\ndrop = [\"unread\"]");
    assert_eq!((found.rows.len(), found.remarks.len()), (2, 2));
    assert!(found.remarks.contains(&"2 rows are left out, with missing values".to_string()), "{:?}", found.remarks);
    assert!(refused("c,y,x\na,1,\n", "missing = \"drop\"").contains("every row has a missing value"));
}

#[test]
fn new_rows_are_encoded_by_a_saved_schema() {
    let content = "c,y,x,colour,day\na,0.5,1,red,2020-01-01\na,1.5,,blue,2020-02-03\nb,2.5,5,red,2020-03-07\n";
    let (_folder, path) = file("t.csv", content);
    let population = make(&path, &format!("{USUAL}missing = \"fill\"")).unwrap();
    let schema = schema_of(&population).unwrap();
    let saved: Schema = serde_json::from_str(&serde_json::to_string(&schema).unwrap()).unwrap();
    assert_eq!(saved, schema);
    assert_eq!(
        schema.feature_names(),
        ["x", "x=(missing)", "colour=blue", "day.year", "day.month=2", "day.month=3"],
        "few days of the month are no weekdays"
    );
    // Other columns, another order, another notation, a new client, a new word, a missing cell.
    let (_folder, path) = file("new.csv", "colour;more;day;x;c\nred;1;03.02.2020;2,5;z\nmauve;2;?;-;a\n");
    let known = KnownColumns { schema: &saved, notation: &population.notation, client: "c", target: "y", weight: None };
    let mut rows = KnownRows::open(Path::new(&path), known).unwrap();
    let batch = rows.next_batch().unwrap().unwrap();
    assert_eq!((&batch.clients[..], &batch.lines[..]), (&["z".to_string(), "a".into()][..], &[2, 3][..]));
    let encoded = batch.encoded(&saved, 0..2).unwrap();
    let Features::F64 { columns: 6, values } = &**encoded.features() else { panic!() };
    let year = 2020.0 + 33.0 / 366.0;
    let mean = schema_mean(&schema, 2);
    // A missing date is as likely of any of the three months.
    let wanted = [2.5, 0.0, 0.0, year, 1.0, 0.0, 3.0, 1.0, 0.0, mean, 1.0 / 3.0, 1.0 / 3.0];
    assert!(values.iter().zip(wanted).all(|(found, want)| (found - want).abs() < 1e-9), "{values:?}");
    assert!(rows.next_batch().unwrap().is_none());
    assert_eq!(rows.remarks().len(), 3, "{:?}", rows.remarks());
    let (_folder, path) = file("new.csv", "colour,c\nred,z\n");
    let text = KnownRows::open(Path::new(&path), known).err().unwrap().to_string();
    assert!(text.contains("no column `x`") && text.contains("no column `day`"), "{text}");
}

#[test]
fn new_rows_are_written_as_those_that_were_fitted() {
    // Each: the table that was fitted, new rows, what they are then, and what is said of it.
    let column = |cells: &[&str]| cells.iter().map(|cell| format!("a;1;{cell}\n")).collect::<String>();
    for (fitted, new, wanted, said) in [
        (column(&["1.234,5", "2"]), column(&["1.234"]), Ok(vec![1234.0]), ""),
        (column(&["1,234.5", "2"]), column(&["1,234"]), Ok(vec![1234.0]), ""),
        (column(&["1,5", "2"]), column(&["1,5"]), Ok(vec![1.5]), ""),
        (column(&["1,5", "2"]), column(&["1.234", "0.5"]), Ok(vec![1.234, 0.5]), "a decimal point in x, unlike"),
        (column(&["1", "2"]), column(&["1,5", "1.234"]), Ok(vec![1.5, 1234.0]), ""),
        (column(&["1", "2"]), column(&["1,234"]), Err("may be thousands or a fraction"), ""),
        (column(&["25/02/2020", "01/02/2020"]), column(&["03/02/2020"]), Ok(vec![2020.0 + 33.0 / 366.0]), ""),
        (column(&["02/25/2020", "01/02/2020"]), column(&["02/03/2020"]), Ok(vec![2020.0 + 33.0 / 366.0]), ""),
        (
            column(&["25/02/2020", "01/02/2020"]),
            column(&["02/03/2020", "01/31/2020"]),
            Ok(vec![2020.0 + 33.0 / 366.0, 2020.0 + 30.0 / 366.0]),
            "the month is first in the dates of x, unlike",
        ),
        (column(&["2020-02-01", "2020-03-01"]), column(&["02/03/2020"]), Err("may begin with the day or"), ""),
    ] {
        let (_folder, path) = file("t.csv", &format!("c;y;x\n{fitted}"));
        let population = make(&path, &format!("{USUAL}task = \"regression\"\nstandardise = false")).unwrap();
        let schema = schema_of(&population).unwrap();
        let (_folder, path) = file("new.csv", &format!("c;y;x\n{new}"));
        let known =
            KnownColumns { schema: &schema, notation: &population.notation, client: "c", target: "y", weight: None };
        let mut rows = match KnownRows::open(Path::new(&path), known) {
            Ok(rows) => rows,
            Err(error) => {
                assert!(error.to_string().contains(wanted.clone().unwrap_err()), "{new}: {error}");
                continue;
            }
        };
        let batch = rows.next_batch().unwrap().unwrap();
        let encoded = batch.encoded(&schema, 0..batch.clients.len()).unwrap();
        let Features::F64 { columns, values } = &**encoded.features() else { panic!() };
        let first: Vec<f64> = values.chunks(*columns).map(|row| row[0]).collect();
        let wanted = wanted.unwrap();
        assert!(first.iter().zip(&wanted).all(|(found, want)| (found - want).abs() < 1e-9), "{new}: {first:?}");
        let remarks = rows.remarks().join("\n");
        assert!(if said.is_empty() { remarks.is_empty() } else { remarks.contains(said) }, "{new}: {remarks}");
    }
}

fn schema_mean(schema: &Schema, place: usize) -> f64 {
    match &schema.features {
        schema::FeaturesSchema::Named(columns) => columns[place].fill,
        schema::FeaturesSchema::Matrix { .. } => panic!(),
    }
}

#[test]
fn wrong_inputs_are_refused_by_what_to_do() {
    let usual = "c,y,z,x\na,1.5,3,1\na,2.5,5,2\n";
    for (content, text, wanted) in [
        (usual.to_string(), "part = \"x\"", "t.csv row 2: column `x` holds `1`, want `train` or `test`"),
        (usual.into(), "part = \"x\"\ntime = \"y\"", "data.part: data.time divides the rows already"),
        (usual.into(), "words = [\"X\"]", "data.words: t.csv has no column `X`\n  hint: did you mean `x`?"),
        (usual.into(), "words = [\"x\"]\ndrop = [\"x\"]", "data.words: column `x` is data.drop already"),
        (usual.into(), "time = \"when\"", "data.time: t.csv has no column `when`"),
        (usual.into(), "kinds = 0", "data.kinds: got 0, want"),
        (usual.into(), "missing = \"mean\"", "data.missing: got \"mean\""),
        (usual.replace("2\n", "-2\n"), "weight = \"x\"", "holds -2, want a weight of at least 0"),
        (usual.replace("2\n", "heavy\n"), "weight = \"x\"", "t.csv row 3: column `x` holds `heavy`, others numbers"),
        (usual.replace("1\n", "soon\n").replace("2\n", "late\n"), "time = \"x\"", "column `x` holds words, want times"),
        (usual.replace("2\n", "\n"), "time = \"x\"\nmissing = \"fill\"", "data.time needs one in every row"),
        (usual.replace("2\n", "\n"), "", "fill in all such cells with data.missing = \"fill\""),
        (usual.replace("x\n", "y\n"), "", "two columns are called `y`"),
        (usual.replace("1.5", "2020-01-01").replace("2.5", "2020-01-02"), "", "column `y` holds dates, want a target"),
        (column(&["1,234", "2,345"]).replace(".25", ""), "", "`1,234` may be thousands or a fraction"),
        (column(&["1,5", "1.5"]), "", "`1.5` has a decimal point and `1,5` a decimal comma"),
        (column(&["01/02/2020", "03/04/2020"]), "", "may begin with the day or with the month"),
        (column(&["7", "7", "7"]), "", "no column varies over the training rows"),
        (column(&["", ""]), "missing = \"fill\"", "no column varies over the training rows"),
        ("c,y,x\na,1.5,1\na,2.5\n".into(), "", "t.csv row 3: 2 cells, want 3"),
        ("c,y,x\na,1.5,1,7\n".into(), "", "the first row of the file names all columns"),
        (
            "Our pupils\nc,y,x\na,1.5,1\n".into(),
            "",
            "hint: its only column is `Our pupils`; cells are separated by commas",
        ),
        ("c,y,x,,\na,1.5,1,,\n".into(), "", "two columns have no name\n  hint: name them in the first row, or delete"),
        ("a,1.5,1\na,2.5,2\n".into(), "", "hint: its columns are a, 1.5, 1"),
        ("PK\u{3}\u{4}workbook".into(), "", "a workbook or an archive, want a text"),
        ("c\0y".into(), "", "no text, want a text"),
        ("c|y|x\na|1|2\n".into(), "", "data.client: t.csv has no column `c`"),
        (String::new(), "", "data.client: t.csv has no column `c`"),
    ] {
        let said = refused(&content, text);
        assert!(said.contains(wanted), "{content:?} {text}:\n{said}\nwant {wanted}");
    }
    let said = read_bytes("t.csv", b"\xff\xfec\0,\0y\0", USUAL).err().unwrap().to_string();
    assert!(said.contains("UTF-16") && said.contains("save the table as CSV"), "{said}");
    let said = read_bytes("t.xlsx", b"PK", USUAL).err().unwrap().to_string();
    assert!(said.contains("save a workbook as CSV"), "{said}");
}
