//! Small valid files of every kind that is read.

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// Experiments that name most settings there are.
pub fn experiments() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for preset in kinfolk::presets::PRESETS {
        all.push(kinfolk::presets::read(preset.name).expect("a preset").1.into_bytes());
    }
    all.push(TABLE.as_bytes().to_vec());
    all
}

const TABLE: &str = r#"
name = "wards"
seed = 3
repeat = 2
evaluate_every = 5
assign_on = "test"
metric = "nll"
save_models = "none"
[data]
source = "table"
path = "wards.csv"
client = "ward"
target = "ill"
group = "town"
drop = ["day", "hour"]
task = "classification"
standardise = true
test_fraction = 0.25
min_rows = 2
small = "drop"
unseen_clients = 0.1
[model]
kind = "softmax"
intercept = false
precision = "f32"
[faults]
silent = 0.1
late = 0.1
[[method]]
name = "ifca"
clusters = 3
rounds = 20
local_steps = 2
step = "auto"
batch = 8
momentum = 0.9
participation = 0.5
start = "farthest"
[[method]]
name = "sr-fca"
label = "second"
trim = 0.1
[[method]]
name = "fedavg"
optimiser = "adam"
weight_decay = 1e-4
"#;

/// A table of clients.
pub fn tables() -> Vec<Vec<u8>> {
    let mut csv = "who,town,x,colour,y\n".to_string();
    for row in 0..24 {
        let (client, colour) = (row % 4, ["red", "green", "blue"][row % 3]);
        csv += &format!("c{client},t{},{}.5,{colour},{}\n", client % 2, row * 3 % 7, row % 5);
    }
    let quoted = csv.replace("red", "\"red, or so\"").replace("c1,", "\"c \"\"1\"\"\",");
    let foreign = csv.replace(',', ";").replace(".5", ",5").replace("green", "gr\u{fc}n");
    let latin = foreign.chars().map(|letter| letter as u8).collect();
    vec![csv.clone().into_bytes(), quoted.into_bytes(), csv.replace('\n', "\r\n").into_bytes(), latin]
}

/// Tables with dates, missing cells and cells of another kind.
pub fn untidy_tables() -> Vec<Vec<u8>> {
    let mut csv = "who\ty\tday\tx\tcolour\tpart\n".to_string();
    for row in 0..24 {
        let (client, colour) = (row % 4, ["red", "", "blue"][row % 3]);
        let x = ["1.234,5", "?", "7", "1 000"][row % 4];
        let part = if row % 5 == 0 { "test" } else { "train" };
        csv += &format!(
            "c{client}\t{row},25\t{}/0{}/2020 1:0{} PM\t{x}\t{colour}\t{part}\n",
            row + 1,
            1 + row % 9,
            row % 6
        );
    }
    vec![csv.clone().into_bytes(), csv.replace('/', ".").into_bytes()]
}

/// Arrow files: plain and compressed, with a dictionary.
pub fn arrow_tables() -> Vec<Vec<u8>> {
    use arrow_ipc::CompressionType;
    [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)].map(arrow_table).to_vec()
}

fn arrow_table(compression: Option<arrow_ipc::CompressionType>) -> Vec<u8> {
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, TimestampMillisecondArray};
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let colours: DictionaryArray<Int32Type> = (0..24).map(|row| ["red", "green"][row % 2]).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("who", Arc::new((0..24).map(|row| row % 4).collect::<Int64Array>())),
        ("x", Arc::new((0..24).map(|row| (row % 7 > 0).then_some(f64::from(row))).collect::<Float64Array>())),
        ("y", Arc::new((0..24).map(|row| Some(f64::from(row * 7 % 5))).collect::<Float64Array>())),
        ("day", Arc::new((0..24).map(|row| Some(row * 86_400_000)).collect::<TimestampMillisecondArray>())),
        ("colour", Arc::new(colours)),
    ];
    let rows = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let options = IpcWriteOptions::default().try_with_compression(compression).expect("a compression");
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut bytes, &rows.schema(), options).expect("a writer");
    writer.write(&rows).expect("rows");
    writer.finish().expect("a file");
    drop(writer);
    bytes
}

/// Points, with and without a header.
pub fn points() -> Vec<Vec<u8>> {
    let rows: Vec<String> = (0..20).map(|row| format!("{},{}.25,-{}e-1", row, row * 7 % 11, row * 5 % 13)).collect();
    vec![rows.join("\n").into_bytes(), format!("a,b,c\n{}\n", rows.join("\n")).into_bytes()]
}

/// The same as parquet: plain and compressed.
pub fn parquet_tables() -> Vec<Vec<u8>> {
    use parquet::basic::{Compression, ZstdLevel};
    let zstd = Compression::ZSTD(ZstdLevel::default());
    [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd].map(parquet_table).to_vec()
}

fn parquet_table(compression: parquet::basic::Compression) -> Vec<u8> {
    let message = "message rows { required int64 who; required double x; optional double y;
        required binary colour (UTF8); }";
    let schema = Arc::new(parse_message_type(message).expect("a schema"));
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut place = 0;
    while let Some(mut column) = group.next_column().expect("a column") {
        let levels = [1i16; 24];
        match place {
            0 => drop(column.typed::<Int64Type>().write_batch(
                &(0..24).map(|row| row % 4).collect::<Vec<_>>(),
                None,
                None,
            )),
            3 => {
                let words: Vec<ByteArray> = (0..24).map(|row| ["red", "green"][row % 2].into()).collect();
                drop(column.typed::<ByteArrayType>().write_batch(&words, None, None));
            }
            _ => {
                let numbers: Vec<f64> = (0..24).map(|row| f64::from(row * 7 % 5)).collect();
                let levels = (place == 2).then_some(&levels[..]);
                drop(column.typed::<DoubleType>().write_batch(&numbers, levels, None));
            }
        }
        column.close().expect("a column");
        place += 1;
    }
    group.close().expect("a group");
    writer.close().expect("a file");
    bytes
}

/// Arrays of numpy.
pub fn arrays() -> Vec<Vec<u8>> {
    let array = |descr: &str, order: &str, shape: &str, values: Vec<u8>| {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        header += &" ".repeat(63 - (header.len() + 10) % 64);
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(values);
        bytes
    };
    let doubles = (0..12).flat_map(|value| (f64::from(value) * 0.5).to_le_bytes()).collect();
    let singles = (0..12).flat_map(|value| (value as f32).to_be_bytes()).collect();
    let whole = (0..6i32).flat_map(i32::to_le_bytes).collect();
    vec![
        array("<f8", "False", "(4, 3)", doubles),
        array(">f4", "True", "(6, 2)", singles),
        array("<i4", "False", "(6,)", whole),
    ]
}

/// Arrays in the format of MNIST, plain and packed.
pub fn idx(kind: u8) -> Vec<Vec<u8>> {
    use std::io::Write;
    let mut plain = vec![0, 0, kind, 2, 0, 0, 0, 3, 0, 0, 0, 4];
    plain.extend((0..if kind == 8 { 12 } else { 48 }).map(|value| value % 10));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&plain).expect("memory");
    vec![plain, encoder.finish().expect("memory")]
}

/// One of the four files of MNIST with six digits in it: images and labels to train on, images and labels to test with.
pub fn mnist(place: usize) -> Vec<u8> {
    let images = place.is_multiple_of(2);
    let mut bytes = vec![0, 0, 8, if images { 3 } else { 1 }, 0, 0, 0, 12];
    if images {
        bytes.extend([0, 0, 0, 28, 0, 0, 0, 28]);
    }
    bytes.extend((0..12 * if images { 784 } else { 1 }).map(|value| (value % 10) as u8));
    bytes
}

/// Two images of CIFAR-10.
pub fn cifar() -> Vec<Vec<u8>> {
    let image = |label: u8| std::iter::once(label).chain((0..3072).map(|place| (place % 251) as u8));
    vec![image(3).chain(image(9)).collect()]
}

/// Files of LEAF: numbers and texts.
pub fn leaf() -> Vec<Vec<u8>> {
    let numbers = r#"{"users": ["ann", "bob"], "num_samples": [3, 2], "user_data": {
        "ann": {"x": [[0.5, 1, 0, 0.25], [1, 0, 0, 1], [0, 0, 1, 1]], "y": [0, 1, 2]},
        "bob": {"x": [[0, 0.5, 0.5, 0], [1, 1, 1, 1]], "y": [2, 0]}}}"#;
    let text = "the quality of mercy is not strained it droppeth as the gentle rain from heaven ";
    let texts = format!(
        r#"{{"users": ["ann"], "num_samples": [2], "user_data": {{"ann": {{"x": ["{text}", "{text}"], "y": ["a", "t"]}}}}}}"#
    );
    vec![numbers.into(), texts.into_bytes()]
}

/// The plain text of a play.
pub fn plays() -> Vec<Vec<u8>> {
    let scene = "SCENE I. Elsinore.\n\n[_Enter Hamlet and the Ghost._]\n\nHAMLET.\nWhither wilt thou lead me? Speak.\n\n\
                 GHOST.\nMark me.\n\nHAMLET.\nI will.\n\n";
    let whole = format!(
        "*** START OF A PLAY ***\r\n\r\nDramatis Person\u{e6}\r\n\r\nHAMLET, Prince of Denmark\r\nGHOST of his father\r\n\r\n\
         ACT I\r\n\r\n{}*** END OF A PLAY ***\r\n",
        scene.repeat(2)
    );
    vec![format!("ACT I\n\n{scene}").into_bytes(), whole.into_bytes()]
}

/// A model as it is written.
pub fn models() -> Vec<Vec<u8>> {
    use kinfolk::models::Precision;
    let layout = layout();
    let params: Vec<f64> = (0..layout.len()).map(|place| place as f64 - 2.5).collect();
    let about = [("label", "ifca".to_string())];
    [Precision::F32, Precision::F64]
        .map(|precision| kinfolk::modelfile::bytes(&params, &layout, precision, &about).expect("a model"))
        .to_vec()
}

/// The layout of that model.
pub fn layout() -> kinfolk::models::Layout {
    use kinfolk::models::{Layout, TensorPlace};
    let weight = TensorPlace { name: "layer0.weight".into(), shape: vec![2, 3], offset: 0 };
    let bias = TensorPlace { name: "layer0.bias".into(), shape: vec![2], offset: 6 };
    Layout { tensors: vec![weight, bias] }
}
