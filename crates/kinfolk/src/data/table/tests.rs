mod as_people_have_it;

use super::*;
use crate::data::schema::Coding;
use crate::settings::Declared;
use std::fs;
use std::path::MAIN_SEPARATOR;
use tempfile::TempDir;

const SCHOOLS: &str = "school,sector,score,sex,ses\n\
    a,Public,1.5,f,1\nb,Catholic,2.5,m,2\na,Public,3.5,f,3\na,Public,4.5,m,4\nb,Catholic,5.5,f,5\na,Public,6.5,m,6\n";

fn file(name: &str, content: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn make(path: &str, text: &str) -> Result<Population> {
    let given = toml::from_str(&format!("path = '{path}'\n{text}")).unwrap();
    TableSettings::from_table("data", given)?.build(2)
}

fn fault(content: &str, text: &str) -> String {
    let (folder, path) = file("t.csv", content);
    let text = make(&path, text).unwrap_err().to_string();
    text.replace(&format!("{}{MAIN_SEPARATOR}", folder.path().display()), "")
}

const USUAL: &str = "client = \"school\"\ntarget = \"score\"";

#[test]
fn rows_go_to_their_clients() {
    let (_folder, path) = file("t.csv", SCHOOLS);
    let text = format!("{USUAL}\ngroup = \"sector\"\ntest_fraction = 0.25");
    let population = make(&path, &text).unwrap();
    let clients = &population.clients;
    assert_eq!(clients.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(clients.iter().map(|c| (c.train.len(), c.test.len())).collect::<Vec<_>>(), [(3, 1), (1, 1)]);
    assert_eq!(clients[1].group.as_deref(), Some("Catholic"));
    assert_eq!(population.shape, DataShape::numbers(2, 0));
    let mut values = [clients[0].train.values().unwrap(), clients[0].test.values().unwrap()].concat();
    values.sort_by(f64::total_cmp);
    assert_eq!(values, [1.5, 3.5, 4.5, 6.5]);
    // A row stays together: ses is score - 0.5.
    let Features::Columns(columns) = &**clients[0].train.features() else { panic!() };
    assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["sex", "ses"]);
    let Cells::Numbers(ses) = &columns[1].values else { panic!() };
    let Targets::Values(scores) = &**clients[0].train.targets() else { panic!() };
    assert!(ses.iter().zip(scores).all(|(ses, score)| ses + 0.5 == *score));
    let again = make(&path, &text).unwrap();
    assert_eq!(again.clients[0].test.values(), clients[0].test.values());
}

#[test]
fn one_row_is_kept_for_training_and_no_fraction_means_no_test_rows() {
    let content = "c,y,x\na,1.5,1\nb,1.5,1\nb,2.5,1\n";
    let (_folder, path) = file("t.csv", content);
    let sizes = |text: &str| {
        let clients = make(&path, &format!("client = \"c\"\ntarget = \"y\"\n{text}")).unwrap().clients;
        clients.iter().map(|client| (client.train.len(), client.test.len())).collect::<Vec<_>>()
    };
    assert_eq!(sizes("test_fraction = 0.9"), [(1, 0), (1, 1)]);
    assert_eq!(sizes(""), [(1, 0), (1, 1)]);
    assert_eq!(sizes("test_fraction = 0"), [(1, 0), (2, 0)]);
}

#[test]
fn truth_is_numbered_and_unseen_clients_are_set_apart() {
    let mut content = "id,planted,y,x\n".to_string();
    for row in 0..40 {
        let client = row % 10;
        content += &format!("{client},{},{row}.5,1\n", if client < 5 { 10 } else { 9 });
    }
    let (_folder, path) = file("t.csv", &content);
    let text = "client = \"id\"\ntarget = \"y\"\ntruth = \"planted\"\nunseen_clients = 0.3";
    let population = make(&path, text).unwrap();
    assert_eq!((population.clients.len(), population.unseen.len()), (7, 3));
    assert_eq!(population.true_clusters, Some(2));
    for client in population.clients.iter().chain(&population.unseen) {
        let low = client.id.parse::<usize>().unwrap() < 5;
        assert_eq!(client.truth, Some(usize::from(low)));
    }
}

#[test]
fn the_task_follows_the_target() {
    assert!(look_like_classes(&[0.0, 1.0, -0.0, 1.0, 1.0, 0.0]));
    assert!(!look_like_classes(&[1.0, 2.0, 3.0, 4.0]));
    assert!(!look_like_classes(&[0.5, 0.5, 0.5, 0.5]));
    assert!(!look_like_classes(&(0..100).map(|i| f64::from(i % 21)).collect::<Vec<_>>()));
    let content = "c,y,x\na,1,1\na,0,1\na,1.0,1\na,0,1\na,1,1\na,0,1\n";
    let (_folder, path) = file("t.csv", content);
    let classes = |task: &str| {
        let text = format!("client = \"c\"\ntarget = \"y\"\ntask = \"{task}\"");
        make(&path, &text).unwrap().shape.classes
    };
    assert_eq!(["auto", "classification", "regression"].map(classes), [2, 2, 0]);
    assert_eq!(
        fault("c,y,x\na,1,1\na,high,1\n", "client = \"c\"\ntarget = \"y\"\ntask = \"regression\""),
        "t.csv row 3: column `y` is `high`, want a number\n  hint: task = \"classification\" takes words"
    );
}

#[test]
fn faults_name_file_row_and_column() {
    let first = |content: &str, text: &str| fault(content, text).lines().next().unwrap().to_string();
    let usual = "client = \"c\"\ntarget = \"y\"";
    for missing in ["", "NA", "NaN", "null"] {
        let content = format!("c,y,x\na,1,2\na,2,{missing}\n");
        assert_eq!(first(&content, usual), "t.csv row 3: column `x` has no value");
    }
    assert_eq!(first("c,y,x\na,1,inf\n", usual), "t.csv row 2: column `x` is not finite");
    assert_eq!(first("c,y,x\na,1\n", usual), "t.csv row 2: 2 cells, want 3");
    assert_eq!(first("c,y,y\na,1,1\n", usual), "t.csv: two columns are called `y`");
    assert_eq!(first("c,y\na,1\n", usual), "t.csv: no column is left as a feature");
    assert_eq!(first("c,y,x\n", usual), "t.csv: no rows below the header");
    assert_eq!(
        first("c,y,x,g\na,1,1,p\na,1,1,q\n", &format!("{usual}\ngroup = \"g\"")),
        "t.csv row 3: client a has `q` in column `g`, but `p` in row 2"
    );
    // Lines count as they do in an editor: quoted breaks, empty lines, and those that end the Windows way.
    for content in ["c,y,x\n\"a\nb\",1,2\na,2,\n", "c,y,x\n\na,1,2\na,2,\n", "c,y,x\r\na,1,2\r\na,1,2\r\na,2,\r\n"] {
        assert_eq!(first(content, usual), "t.csv row 4: column `x` has no value");
        assert_eq!(first(&content.replace("2,", "2,inf"), usual), "t.csv row 4: column `x` is not finite");
        assert_eq!(first(&content.replace("a,2,", "a,2"), usual), "t.csv row 4: 2 cells, want 3");
    }
    assert_eq!(
        fault("c,y,x\na,1,2\n,1,2\n", usual),
        "t.csv row 3: column `c` has no value\n  hint: fill it in or delete the row"
    );
    assert!(make("nowhere.csv", usual).unwrap_err().to_string().starts_with("reading nowhere.csv: "));
    assert!(make("table.xls", usual).unwrap_err().to_string().contains("want a file that ends in .csv"));
}

#[test]
fn faults_of_the_settings_come_together() {
    assert_eq!(
        fault(SCHOOLS, "client = \"shcool\"\ntarget = \"score\"\ngroup = \"score\"\ndrop = [\"zzzzzzzzzz\"]"),
        "3 faults\n- data.client: t.csv has no column `shcool`\n  hint: did you mean `school`?\n\
         - data.target: column `score` is data.group already\n\
         - data.drop: t.csv has no column `zzzzzzzzzz`\n  hint: its columns are school, sector, score, sex, ses"
    );
    assert_eq!(
        fault(SCHOOLS, &format!("{USUAL}\nunseen_clients = 1")),
        "data.unseen_clients: got 1, want a number from 0 to below 1"
    );
}

#[test]
fn rows_may_be_features_only() {
    let (_folder, path) = file("t.csv", SCHOOLS);
    let population = make(&path, "client = \"school\"\ndrop = [\"sector\", \"sex\"]").unwrap();
    assert_eq!(population.shape, DataShape::numbers(2, 0));
    let clients = &population.clients;
    assert!(clients.iter().all(|client| **client.train.targets() == Targets::None));
    let descriptions: Vec<_> = clients.iter().map(|client| schema::describe(client, true)).collect();
    let coding = Coding {
        standardise: false,
        constant: true,
        kinds: Coding::KINDS,
        curves: false,
        numbers_only: false,
        means_alone: false,
    };
    let agreed = schema::Schema::fix(&descriptions, coding).unwrap();
    assert_eq!(agreed.target, schema::TargetSchema::None);
    assert_eq!(agreed.feature_names(), ["score", "ses"]);
    let encoded = agreed.encode(&clients[1].train).unwrap();
    assert_eq!((encoded.len(), encoded.columns(), &**encoded.targets()), (1, 2, &Targets::None));
    assert_eq!(
        fault(SCHOOLS, "client = \"school\"\ntask = \"regression\""),
        "data.task: the table has no target\n  hint: set data.target"
    );
}

#[test]
fn rows_know_their_lines_and_some_clients_are_spoiled() {
    let (_folder, path) = file("t.csv", SCHOOLS);
    let population = make(&path, &format!("{USUAL}\ntest_fraction = 0")).unwrap();
    let lines: Vec<_> = population.lines.iter().map(|lines| lines.train.as_slice()).collect();
    assert_eq!(lines, [&[2, 4, 5, 7][..], &[3, 6]]);
    let (_odd, odd) = file("t.csv", &SCHOOLS.replace('\n', "\r\n").replace("b,", "\r\nb,"));
    let odd = make(&odd, &format!("{USUAL}\ntest_fraction = 0")).unwrap();
    assert_eq!(odd.lines[0].train, [2, 5, 6, 9], "an empty line above every row of b");
    assert_eq!(odd.lines[1].train, [4, 8]);
    assert!(population.outliers.is_empty());
    let numbers = format!("{USUAL}\ndrop = [\"sex\", \"sector\"]\noutliers = 0.5");
    let spoiled = make(&path, &numbers).unwrap();
    assert_eq!(spoiled.outliers.iter().filter(|outlier| **outlier).count(), 1);
    assert!(fault(SCHOOLS, &format!("{USUAL}\noutliers = 0.5")).contains("column `sector` holds words"));
    assert!(
        fault(SCHOOLS, &format!("{USUAL}\noutliers = 1"))
            .contains("data.outliers: got 1, want a number from 0 to below 1")
    );
}

#[test]
fn small_clients_are_named_or_dropped() {
    let text = format!("{USUAL}\nmin_rows = 3");
    assert_eq!(
        fault(SCHOOLS, &text),
        "t.csv: clients with fewer than 3 rows: b (2)\n  hint: set data.small = \"drop\" to leave them out, or a \
         smaller data.min_rows"
    );
    let (_folder, path) = file("t.csv", SCHOOLS);
    let population = make(&path, &format!("{text}\nsmall = \"drop\"")).unwrap();
    assert_eq!(population.clients.len(), 1);
    let text = format!("{USUAL}\nmin_rows = 9\nsmall = \"drop\"");
    assert_eq!(fault(SCHOOLS, &text), "data.min_rows: none of the 2 clients has 9 rows");
}

#[test]
fn a_byte_order_mark_and_tabs_are_understood() {
    let (_folder, path) = file("t.tsv", &format!("\u{feff}{}", SCHOOLS.replace(',', "\t")));
    assert_eq!(make(&path, USUAL).unwrap().clients.len(), 2);
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::*;
    use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;
    use rand::RngExt;
    use std::fs::File;

    #[test]
    fn malformed_parquet_files_are_faults_of_the_data_and_no_panics() {
        let scores: Vec<Option<f64>> = (0..40).map(|row| (row % 7 > 0).then(|| f64::from(row) * 0.5)).collect();
        let (_folder, path) = parquet_file(&scores);
        let sound = fs::read(&path).unwrap();
        let mut rng = Key::new(5).word("malformed").rng();
        for _ in 0..600 {
            let mut bytes = sound.clone();
            for _ in 0..rng.random_range(1..4) {
                let place = rng.random_range(0..bytes.len());
                bytes[place] = if rng.random() { rng.random() } else { bytes[place] ^ (1 << rng.random_range(0..8)) };
            }
            fs::write(&path, bytes).unwrap();
            if let Err(error) = make(&path, USUAL) {
                assert!(error.kind().is_input(), "{error}");
            }
        }
    }

    fn parquet_file(scores: &[Option<f64>]) -> (TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let message = "message t { required int64 school; required binary sex (UTF8); optional double score; \
            required int32 day (DATE); }";
        let schema = Arc::new(parse_message_type(message).unwrap());
        let file = File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let count = scores.len();
        let mut index = 0;
        while let Some(mut column) = group.next_column().unwrap() {
            match index {
                0 => {
                    let ids: Vec<i64> = (0..count as i64).map(|row| row % 2 + 1).collect();
                    column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
                }
                1 => {
                    let words: Vec<ByteArray> = (0..count).map(|row| ["f", "m"][row % 2].into()).collect();
                    column.typed::<ByteArrayType>().write_batch(&words, None, None).unwrap();
                }
                2 => {
                    let levels: Vec<i16> = scores.iter().map(|score| i16::from(score.is_some())).collect();
                    let values: Vec<f64> = scores.iter().flatten().copied().collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&levels), None).unwrap();
                }
                _ => {
                    let days = vec![18000; count];
                    column.typed::<Int32Type>().write_batch(&days, None, None).unwrap();
                }
            }
            column.close().unwrap();
            index += 1;
        }
        group.close().unwrap();
        writer.close().unwrap();
        let path = path.display().to_string();
        (folder, path)
    }

    #[test]
    fn parquet_files_are_read_with_their_types() {
        let (_folder, path) = parquet_file(&[Some(0.5), Some(1.5), Some(2.5), Some(3.5)]);
        let population = make(&path, &format!("{USUAL}\ndrop = [\"day\"]\ntest_fraction = 0")).unwrap();
        assert_eq!(population.clients.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(population.clients[1].train.values(), Some(&[1.5, 3.5][..]));
        let dated = make(&path, USUAL).unwrap();
        let Features::Columns(columns) = &**dated.clients[0].train.features() else { panic!() };
        assert_eq!(columns[1].values, Cells::Dates(vec![18000.0 * 86_400.0; 4]));
        let (_folder, path) = parquet_file(&[Some(0.5), None]);
        let text = make(&path, &format!("{USUAL}\ndrop = [\"day\"]")).unwrap_err().to_string();
        assert!(text.contains("t.parquet row 2: column `score` has no value"), "{text}");
    }

    #[test]
    fn arrow_files_are_read_with_their_types() {
        use arrow_array::types::Int32Type;
        use arrow_array::{
            ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Int64Array, RecordBatch, StringArray,
        };
        use arrow_array::{TimestampMillisecondArray, UInt8Array};
        use arrow_ipc::CompressionType;
        use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
        let colours: DictionaryArray<Int32Type> = [Some("red"), None, Some("blue"), Some("red")].into_iter().collect();
        let long = i64::MAX - 1;
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("school", Arc::new(Int64Array::from(vec![long, long + 1, long, long]))),
            (
                "score",
                Arc::new(Decimal128Array::from(vec![150, 250, 350, 450]).with_precision_and_scale(5, 2).unwrap()),
            ),
            ("colour", Arc::new(colours)),
            ("late", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
            ("age", Arc::new(UInt8Array::from(vec![Some(7), None, Some(9), Some(8)]))),
            ("when", Arc::new(TimestampMillisecondArray::from(vec![Some(1500), Some(0), None, Some(500)]))),
            ("code", Arc::new(StringArray::from(vec!["01", "2", "", "2"]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let (_folder, path) = file("t.feather", "");
            let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
            let mut writer =
                FileWriter::try_new_with_options(File::create(&path).unwrap(), &rows.schema(), options).unwrap();
            writer.write(&rows).unwrap();
            writer.finish().unwrap();
            let text = make(&path, USUAL).unwrap_err().to_string();
            assert!(text.contains("t.feather row 2: column `colour` has no value"), "{text}");
            let population = make(&path, &format!("{USUAL}\ntest_fraction = 0\nmissing = \"fill\"")).unwrap();
            let ids: Vec<&str> = population.clients.iter().map(|client| client.id.as_str()).collect();
            assert_eq!(ids, ["9223372036854775806", "9223372036854775807"]);
            assert_eq!(population.clients[0].train.values(), Some(&[1.5, 3.5, 4.5][..]));
            let own = population.clients[0].train.pick(&[0, 1, 2]);
            let Features::Columns(columns) = &**own.features() else { panic!() };
            let words = |list: [&str; 3]| Cells::Words(list.map(str::to_string).to_vec());
            assert_eq!(columns[0].values, words(["red", "blue", "red"]));
            assert_eq!(columns[1].values, words(["true", "", "true"]));
            assert_eq!(columns[2].values, Cells::Numbers(vec![7.0, 9.0, 8.0]));
            let Cells::Dates(times) = &columns[3].values else { panic!() };
            assert!(times[0] == 1.5 && times[1].is_nan() && times[2] == 0.5, "{times:?}");
            assert_eq!(columns[4].values, words(["01", "", "2"]), "texts are no numbers");
        }
    }
}
