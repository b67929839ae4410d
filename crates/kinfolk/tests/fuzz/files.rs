//! Files that a user names.

use super::harness::{Inputs, Place, cases, fuzz};
use super::samples;
use kinfolk::data::{self, TableSettings, cifar, idx, plays, points};
use kinfolk::experiment::Experiment;
use kinfolk::fit::{FitSettings, FittedModel, Format, ModelChoice, NETWORK_FILES, SavedNetworks, fit_model};
use kinfolk::modelfile;
use kinfolk::run::{Options, Unwatched};
use kinfolk::settings::Settings;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

#[test]
fn experiment() {
    fuzz(&Inputs::of("experiment", samples::experiments()), cases(2000, 1), |_, bytes| {
        Experiment::parse("spoiled", &String::from_utf8_lossy(bytes), &[]).is_ok()
    });
}

/// Whether clients can be made of a file.
fn population(source: &str, path: &Path, text: &str) -> bool {
    let source = data::source(source).expect("a source");
    let mut given: toml::Table = toml::from_str(text).expect("settings");
    given.insert("path".into(), path.display().to_string().into());
    let mut faults = Vec::new();
    let settings = Settings::check("data", source.settings, given, &mut faults);
    assert!(faults.is_empty(), "{faults:?}");
    (source.build)(&settings, 1).is_ok()
}

#[test]
fn table_csv() {
    let place = Place::new();
    fuzz(&Inputs::of("table_csv", samples::tables()), cases(2000, 1), |_, bytes| {
        population("table", &place.write("t.csv", bytes), "client = \"who\"\ntarget = \"y\"\ngroup = \"town\"")
    });
}

#[test]
fn table_parquet() {
    let place = Place::new();
    fuzz(&Inputs::of("table_parquet", samples::parquet_tables()), cases(2000, 1), |_, bytes| {
        population("table", &place.write("t.parquet", bytes), "client = \"who\"\ntarget = \"y\"")
    });
}

const UNTIDY: &str = "client = \"who\"\ntarget = \"y\"\nmissing = \"fill\"";

#[test]
fn table_untidy() {
    let place = Place::new();
    fuzz(&Inputs::of("table_untidy", samples::untidy_tables()), cases(2000, 1), |_, bytes| {
        population("table", &place.write("t.txt", bytes), &format!("{UNTIDY}\npart = \"part\""))
    });
}

#[test]
fn table_packed() {
    let place = Place::new();
    let pack = |bytes: Vec<u8>| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &bytes).expect("memory");
        packed.finish().expect("memory")
    };
    let packed = samples::untidy_tables().into_iter().map(pack).collect();
    fuzz(&Inputs::of("table_packed", packed), cases(2000, 1), |_, bytes| {
        population("table", &place.write("t.csv.gz", bytes), UNTIDY)
    });
}

#[test]
fn table_arrow() {
    let place = Place::new();
    fuzz(&Inputs::of("table_arrow", samples::arrow_tables()), cases(2000, 1), |_, bytes| {
        population("table", &place.write("t.feather", bytes), &format!("{UNTIDY}\ntime = \"day\""))
    });
}

#[test]
fn points_csv() {
    let place = Place::new();
    let choice = points::Choice { standardise: true, ..points::Choice::default() };
    fuzz(&Inputs::of("points_csv", samples::points()), cases(2000, 1), |_, bytes| {
        points::read(&place.write("p.csv", bytes), &choice).is_ok()
    });
}

#[test]
fn points_npy() {
    let place = Place::new();
    fuzz(&Inputs::of("points_npy", samples::arrays()), cases(2000, 1), |_, bytes| {
        points::read(&place.write("p.npy", bytes), &points::Choice::default()).is_ok()
    });
}

#[test]
fn points_parquet() {
    let place = Place::new();
    let choice = points::Choice { id: Some("colour".into()), ..points::Choice::default() };
    fuzz(&Inputs::of("points_parquet", samples::parquet_tables()), cases(2000, 1), |_, bytes| {
        points::read(&place.write("p.parquet", bytes), &choice).is_ok()
    });
}

#[test]
fn idx_bytes() {
    fuzz(&Inputs::of("idx_bytes", samples::idx(8)), cases(2000, 1), |_, bytes| {
        idx::parse("spoiled", bytes.to_vec(), 2).is_ok()
    });
}

#[test]
fn idx_integers() {
    let place = Place::new();
    fuzz(&Inputs::of("idx_integers", samples::idx(12)), cases(2000, 1), |_, bytes| {
        idx::read_integers(&place.write("labels", bytes), 2).is_ok()
    });
}

#[test]
fn cifar_records() {
    let place = Place::new();
    let whole = samples::cifar();
    for number in 1..=5 {
        place.write(&format!("data_batch_{number}.bin"), &whole[0]);
    }
    let folder = place.write("test_batch.bin", &whole[0]).parent().map(Path::to_path_buf).expect("a folder");
    fuzz(&Inputs::of("cifar_records", whole), cases(1000, 1), |_, bytes| {
        place.write("data_batch_3.bin", bytes);
        cifar::read(&folder).is_ok()
    });
}

#[test]
fn leaf_json() {
    let place = Place::new();
    fuzz(&Inputs::of("leaf_json", samples::leaf()), cases(2000, 1), |_, bytes| {
        population("leaf", &place.write("all.json", bytes), "test_fraction = 0.4\nmin_rows = 1")
    });
}

#[test]
fn shakespeare_text() {
    fuzz(&Inputs::of("shakespeare_text", samples::plays()), cases(2000, 1), |_, bytes| {
        !plays::roles(&String::from_utf8_lossy(bytes)).is_empty()
    });
}

#[test]
fn model_safetensors() {
    let place = Place::new();
    let layout = samples::layout();
    fuzz(&Inputs::of("model_safetensors", samples::models()), cases(2000, 1), |_, bytes| {
        let path = place.write("model.safetensors", bytes);
        modelfile::tensors(&path).is_ok() & modelfile::read(&path, &layout).is_ok()
    });
}

/// A small model of networks: `model.json`, `models.safetensors`, and the table it was fitted to.
fn networks(place: &Place) -> (String, Vec<u8>, PathBuf) {
    let mut text = "shop,x,kind,y\n".to_string();
    for row in 0..48 {
        text += &format!("s{},{},{},{}\n", row % 4, row % 7, ["a", "b"][row % 2], (row % 7) * (row % 5));
    }
    let path = place.write("networks.csv", text.as_bytes());
    let (client, target) = ("shop".to_string(), Some("y".to_string()));
    let table = TableSettings { path: path.display().to_string(), client, target, ..TableSettings::default() };
    let settings = FitSettings { table, model: ModelChoice::Network, quick: true, ..FitSettings::default() };
    let options = Options { threads: 1, ..Options::default() };
    let FittedModel::Networks(saved) = fit_model(settings, &options, &mut Unwatched, &mut |_| {}).expect("a model")
    else {
        panic!("networks")
    };
    let [text, tensors] = ["model.json", "models.safetensors"].map(|name| saved.file(name).expect("a file"));
    (String::from_utf8(text).expect("text"), tensors, path)
}

/// Reads and uses a model, which may be spoiled.
fn use_networks(text: &str, tensors: &[u8], table: &Path) -> bool {
    let Ok(saved) = SavedNetworks::of_parts(text, tensors) else { return false };
    let files: Vec<bool> = NETWORK_FILES.iter().map(|name| saved.file(name).is_ok()).collect();
    let predicted = saved.predict(table, Format::Csv, &mut Vec::new()).is_ok();
    let shown = !saved.show().is_empty() && saved.assign(table).is_ok();
    files.iter().all(|is_well| *is_well) && predicted && shown
}

#[test]
fn networks_json() {
    let place = Place::new();
    let (text, tensors, table) = networks(&place);
    fuzz(&Inputs::of("networks_json", vec![text.into_bytes()]), cases(400, 1), |_, bytes| {
        use_networks(&String::from_utf8_lossy(bytes), &tensors, &table)
    });
}

#[test]
fn networks_safetensors() {
    let place = Place::new();
    let (text, tensors, table) = networks(&place);
    let digest = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let own = digest(&tensors);
    assert!(text.contains(&own));
    fuzz(&Inputs::of("networks_safetensors", vec![tensors]), cases(400, 1), |_, bytes| {
        // As if the digest belonged to them.
        use_networks(&text.replace(&own, &digest(bytes)), bytes, &table)
    });
}
