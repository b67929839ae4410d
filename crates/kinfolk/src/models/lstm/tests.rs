//! The whole network: against PyTorch, against finite differences, and in the hands of its worker.

use super::*;
use crate::data::{Client, DataShape, Form, Targets};
use crate::models::trainer::NetworkModel;
use crate::models::trainer::testing::assert_differences;
use crate::models::{MODELS, Model, Precision, Seat};
use crate::rng::Key;
use crate::settings::Settings;
use crate::training::{Amount, Course, Optimiser, Plan, Sample, Terms};
use std::sync::OnceLock;

/// Symbols of some rows and the classes that follow.
struct Text {
    x: Vec<u8>,
    classes: Vec<u32>,
}

impl Text {
    fn random(symbols: usize, rows: usize, length: usize, classes: usize) -> Self {
        let mut rng = Key::new(3).word("text").rng();
        let x = (0..rows * length).map(|_| rng.random_range(0..symbols as u8)).collect();
        Self { x, classes: (0..rows).map(|_| rng.random_range(0..classes as u32)).collect() }
    }

    fn rows(&self) -> usize {
        self.classes.len()
    }

    fn numbers<T: Real>(&self) -> Vec<T> {
        self.x.iter().map(|&symbol| T::of(f64::from(symbol))).collect()
    }

    fn client(&self) -> Client {
        let features = Features::Symbols { columns: self.x.len() / self.rows(), values: self.x.clone() };
        let train = Shard::new(features, Targets::Classes(self.classes.clone())).unwrap();
        Client { id: "poet".into(), test: train.clone(), train, group: None, truth: None }
    }
}

fn model(network: Recurrent, length: usize, precision: Precision) -> NetworkModel<Recurrent> {
    let form = Form::Text { symbols: network.symbols };
    let wanted = DataShape { columns: length, classes: network.outputs, form };
    NetworkModel::new(network, wanted, precision)
}

fn beginning(network: &Recurrent) -> Vec<f64> {
    network.initialise(&mut Key::new(5).word("begin").rng())
}

/// Scores in a pass that remembers, or in one that does not.
fn scores<T: Real>(network: &Recurrent, params: &[T], text: &Text, pass: Pass) -> Vec<T> {
    let mut out = vec![T::ZERO; text.rows() * network.outputs];
    network.forward(params, &text.numbers(), text.rows(), pass, &mut Memory::default(), &mut out);
    out
}

/// The gradient of the mean loss, and that loss.
fn gradient(model: &NetworkModel<Recurrent>, params: &[f64], text: &Text) -> (Vec<f64>, f64) {
    let client = text.client();
    let seat = Seat { client: &client, prepared: &OnceLock::new(), may_prepare: false, secret: None };
    let mut gradient = vec![f64::NAN; params.len()];
    let loss = Model::worker(model, &[params]).gradient(0, &seat, &Sample::FULL, &mut gradient);
    (gradient, loss)
}

fn assert_close(found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() < tolerance, "{i}: {found} instead of {wanted}");
    }
}

/// What torch 2.15 says in double precision of nn.Embedding(4, 3), nn.LSTM(3, 2, 2) and nn.Linear(2, 3) whose i-th
/// parameter, in our order, is ((7·i mod 11) − 5)/8.
#[test]
fn scores_and_gradient_are_pytorchs() {
    let model = model(Recurrent::new(4, 3, 2, 2, 3), 4, Precision::F64);
    let params: Vec<f64> = (0..model.layout().len()).map(|i| ((i * 7 % 11) as f64 - 5.0) / 8.0).collect();
    let text = Text { x: vec![0, 1, 2, 3, 3, 3, 0, 2], classes: vec![2, 0] };
    let wanted = [
        0.085_596_268_806_2,
        -0.028_762_359_221_2,
        0.571_377_750_157,
        0.082_332_272_847_8,
        -0.024_702_629_930_4,
        0.570_867_526_926,
    ];
    assert_close(&scores(&model.network, &params, &text, Pass::Train(None)), &wanted, 1e-12);
    let (gradient, loss) = gradient(&model, &params, &text);
    assert!((loss - 1.016_393_134_573_183_6).abs() < 1e-14);
    #[rustfmt::skip]
    let wanted = [
        -0.004_070_968_6, 0.008_404_044_6, 0.000_113_413_2, 0.000_344_006_3, -0.000_828_826_4,
        -0.000_077_390_5, -0.002_055_839_4, 0.005_647_783_3, 0.000_605_822_1, -0.002_219_606_8,
        0.007_551_861_9, -0.001_483_079_1, -0.000_336_779_7, 0.000_255_304_6, -0.000_562_322_3,
        -0.001_754_413_9, 0.000_291_131_2, 0.003_869_395_3, 0.000_075_705_8, 0.000_082_193_6,
        -0.000_251_166_5, 0.000_594_953_0, -0.000_372_305_2, 0.001_588_732_4, 0.000_538_246_0,
        0.000_320_107_4, -0.001_395_587_0, -0.000_872_084_7, 0.001_458_113_7, -0.014_513_923_9,
        0.000_493_288_2, 0.000_107_524_9, -0.000_456_390_3, -0.002_129_802_8, 0.000_261_542_8,
        0.004_576_643_1, 0.000_138_233_6, -0.000_335_407_9, -0.000_429_241_2, 0.001_141_837_1,
        0.000_080_076_8, -0.000_105_673_0, -0.000_238_725_7, 0.000_848_014_9, 0.000_384_528_0,
        -0.000_524_380_6, 0.001_846_838_5, -0.006_248_586_0, 0.000_161_239_9, -0.000_136_438_9,
        -0.000_598_062_6, 0.001_445_562_3, 0.001_635_253_7, -0.007_156_528_3, 0.000_666_720_2,
        -0.003_922_075_1, 0.003_431_388_7, 0.031_944_075_4, 0.001_127_830_3, -0.008_630_200_6,
        0.001_635_253_7, -0.007_156_528_3, 0.000_666_720_2, -0.003_922_075_1, 0.003_431_388_7,
        0.031_944_075_4, 0.001_127_830_3, -0.008_630_200_6, 0.002_342_167_5, -0.005_525_734_2,
        0.000_689_797_0, -0.002_211_389_0, 0.002_122_887_1, -0.004_538_978_3, 0.000_357_418_2,
        -0.001_483_965_3, -0.007_916_229_0, 0.019_569_684_3, 0.000_535_807_1, -0.001_772_165_3,
        0.003_123_946_8, -0.007_809_069_5, 0.001_143_408_3, -0.004_418_551_1, -0.006_226_839_0,
        0.003_230_733_7, -0.002_270_688_3, 0.001_036_687_6, -0.006_031_804_0, 0.003_073_421_3,
        -0.001_554_675_5, 0.000_705_364_5, 0.020_887_615_3, -0.010_880_587_2, -0.001_826_036_8,
        0.000_833_212_8, -0.010_805_974_3, 0.005_240_807_4, -0.004_649_334_6, 0.002_179_642_6,
        0.027_176_659_5, 0.009_830_938_1, 0.022_788_645_9, 0.005_515_454_9, -0.095_437_804_4,
        0.007_697_211_5, 0.036_505_098_2, 0.016_421_535_6, 0.027_176_659_5, 0.009_830_938_1,
        0.022_788_645_9, 0.005_515_454_9, -0.095_437_804_4, 0.007_697_211_5, 0.036_505_098_2,
        0.016_421_535_6, 0.073_408_178_4, -0.033_518_199_8, -0.084_385_225_2, 0.038_782_714_5,
        0.010_977_046_8, -0.005_264_514_7, -0.216_142_420_7, 0.254_112_436_7, -0.037_970_016_0,
    ];
    assert_close(&gradient, &wanted, 1e-10);
}

#[test]
fn gradients_are_finite_differences() {
    for (layers, rows, length) in [(1, 2, 5), (2, 3, 7), (3, 1, 1), (2, 2, 70)] {
        let model = model(Recurrent::new(5, 3, 4, layers, 4), length, Precision::F64);
        let params = beginning(&model.network);
        let text = Text::random(5, rows, length, 4);
        let (found, _) = gradient(&model, &params, &text);
        assert_differences(&params, &found, |moved| gradient(&model, moved, &text).1);
    }
}

/// One unit that listens to the one symbol alone, for two time steps.
#[test]
fn a_unit_by_hand() {
    let network = Recurrent::new(1, 1, 1, 1, 2);
    // Embedding; weight_ih, weight_hh, bias_ih, bias_hh of i, f, g, o; the output's weight and bias.
    let params =
        [2.0, 0.5, -0.5, 0.25, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 3.0, -1.0, 0.1, 0.2];
    let text = Text { x: vec![0, 0], classes: vec![0] };
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (i, f, g, o) = (logistic(2.0), logistic(-1.0), 0.5f64.tanh(), logistic(2.0));
    let cell = f * (i * g) + i * g;
    let output = o * cell.tanh();
    let found = scores(&network, &params, &text, Pass::Score);
    assert_close(&found, &[3.0 * output + 0.1, 0.2 - output], 1e-14);
}

#[test]
fn remembering_changes_no_score() {
    let network = Recurrent::new(6, 4, 5, 2, 3);
    let params = beginning(&network);
    // More time steps than a turn takes, and no multiple of it; more rows than a turn takes; one row.
    for (rows, length) in [(40, 11), (200, 4), (1, 300)] {
        let text = Text::random(6, rows, length, 3);
        let found = scores(&network, &params, &text, Pass::Score);
        assert_eq!(found, scores(&network, &params, &text, Pass::Train(None)));
    }
}

#[test]
fn a_batch_is_its_rows_one_by_one() {
    let model = model(Recurrent::new(6, 4, 5, 2, 3), 30, Precision::F64);
    let params = beginning(&model.network);
    let text = Text::random(6, 13, 30, 3);
    let (all, loss) = gradient(&model, &params, &text);
    let whole = scores(&model.network, &params, &text, Pass::Score);
    let (mut sum, mut losses) = (vec![0.0; params.len()], 0.0);
    for (row, x) in text.x.chunks_exact(30).enumerate() {
        let one = Text { x: x.to_vec(), classes: vec![text.classes[row]] };
        assert_close(&scores(&model.network, &params, &one, Pass::Score), &whole[row * 3..][..3], 1e-14);
        let (slope, loss) = gradient(&model, &params, &one);
        add_scaled(&mut sum, 1.0 / 13.0, &slope);
        losses += loss / 13.0;
    }
    assert_close(&all, &sum, 1e-14);
    assert!((loss - losses).abs() < 1e-14);
}

#[test]
fn single_precision_is_close_to_double() {
    let sizes = || Recurrent::new(20, 8, 24, 2, 20);
    let (single, double) = (model(sizes(), 40, Precision::F32), model(sizes(), 40, Precision::F64));
    let mut params = beginning(&double.network);
    Precision::F32.round(&mut params);
    let text = Text::random(20, 10, 40, 20);
    let ((found, loss), (wanted, right)) = (gradient(&single, &params, &text), gradient(&double, &params, &text));
    assert!((loss - right).abs() < 1e-6);
    let largest = wanted.iter().fold(0.0f64, |largest, slope| largest.max(slope.abs()));
    assert_close(&found, &wanted, 1e-6 * largest);
}

fn plan(steps: u32, step: f64, momentum: f64) -> Plan {
    Plan {
        sample: Sample::FULL,
        amount: Amount::Steps(steps),
        step,
        optimiser: Optimiser::Descent { momentum, weight_decay: 0.0 },
        terms: Terms::default(),
        course: Course::PLAIN,
    }
}

/// A plain step moves weights while their gradient is summed up; any other forms the gradient first.
#[test]
fn a_plain_step_goes_down_the_gradient() {
    let model = model(Recurrent::new(6, 4, 5, 2, 3), 30, Precision::F64);
    let params = beginning(&model.network);
    let text = Text::random(6, 9, 30, 3);
    let (slope, _) = gradient(&model, &params, &text);
    let mut wanted = params.clone();
    add_scaled(&mut wanted, -0.5, &slope);
    let client = text.client();
    let seat = Seat { client: &client, prepared: &OnceLock::new(), may_prepare: false, secret: None };
    let mut found = vec![0.0; params.len()];
    Model::worker(&model, &[&params]).train(0, &seat, &plan(1, 0.5, 0.0), &mut found);
    assert_close(&found, &wanted, 1e-14);
}

/// In "abcabdabcabd…" the last symbols "ab" do not tell what comes next; the one before them does.
#[test]
fn training_learns_a_repeated_text() {
    let text: Vec<u8> = [0, 1, 2, 0, 1, 3].repeat(6);
    let windows = text.windows(6).take(12);
    let text = Text {
        x: windows.clone().flat_map(|window| window[..5].to_vec()).collect(),
        classes: windows.map(|window| u32::from(window[5])).collect(),
    };
    let model = model(Recurrent::new(4, 3, 12, 2, 4), 5, Precision::F32);
    let params = beginning(&model.network);
    let client = text.client();
    let seat = Seat { client: &client, prepared: &OnceLock::new(), may_prepare: false, secret: None };
    let mut trained = vec![0.0; params.len()];
    let mut worker = Model::worker(&model, &[&params]);
    let before = worker.train(0, &seat, &plan(300, 0.5, 0.9), &mut trained);
    let after = worker.load(&trained);
    let score = worker.score(after, &client.test);
    assert!((1.2..1.6).contains(&before), "{before}");
    assert!(score.loss / 12.0 < 0.05 && score.hits == Some(12), "{score:?}");
}

#[test]
fn symbols_out_of_range_are_refused() {
    let model = model(Recurrent::new(4, 3, 2, 1, 3), 3, Precision::F32);
    let text = |x: Vec<u8>| Text { x, classes: vec![0, 1] }.client();
    assert!(model.check(&text(vec![0, 1, 2, 3, 3, 3])).is_ok());
    let error = model.check(&text(vec![0, 1, 2, 3, 4, 3])).unwrap_err().to_string();
    let wanted = "client poet: training rows have symbol 4 (row 1, place 1, counted from 0), want 0 to 3";
    assert!(error.contains(wanted), "{error}");
    let numbers = Features::F64 { columns: 3, values: vec![0.0; 6] };
    let train = Shard::new(numbers, Targets::Classes(vec![0, 1])).unwrap();
    let error = model.check(&Client { train, ..text(vec![0; 6]) }).unwrap_err().to_string();
    assert!(error.contains("training rows are no texts"), "{error}");
}

#[test]
fn tensors_and_beginnings_are_pytorchs() {
    let kind = MODELS.iter().find(|kind| kind.name == "lstm").unwrap();
    let mut faults = Vec::new();
    let settings = Settings::check("model", kind.settings, toml::Table::new(), &mut faults);
    let shape = DataShape { columns: 80, classes: 80, form: Form::Text { symbols: 90 } };
    let model = kind.make(&settings, shape).unwrap();
    let names: Vec<&str> = model.layout().tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let wanted = "embedding.weight lstm.weight_ih_l0 lstm.weight_hh_l0 lstm.bias_ih_l0 lstm.bias_hh_l0 \
                  lstm.weight_ih_l1 lstm.weight_hh_l1 lstm.bias_ih_l1 lstm.bias_hh_l1 output.weight output.bias";
    assert_eq!(names.join(" "), wanted);
    // 90·8 + 1024·(8 + 256 + 2) + 1024·(256 + 256 + 2) + 80·257
    assert_eq!(model.layout().len(), 720 + 272_384 + 526_336 + 20_560);
    let begin = model.initialise(&mut Key::new(0).rng()).unwrap();
    let (embedding, rest) = begin.split_at(720);
    assert!(rest.iter().all(|value| value.abs() <= 1.0 / 16.0));
    let square = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
    assert!((square(embedding) - 1.0).abs() < 0.2 && (square(rest) * 768.0 - 1.0).abs() < 0.01);
    let numbers = DataShape { form: Form::Numbers, ..shape };
    let error = kind.make(&settings, numbers).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("lstm reads texts"), "{error}");
}
