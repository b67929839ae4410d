//! What can be known without a device: texts of kernels, their compilation where the compiler is found, and errors.

use crate::device::compile;
use crate::gram::Shape;
use crate::program::{Sizes, Stored, Wanted, sizes, suits, text};
use crate::{Cuda, backend};
use cudarc::nvrtc::sys as nvrtc;
use kinfolk::data::{Augment, Form};
use kinfolk::models::architecture::Architecture;
use kinfolk::{DataShape, ErrorKind, Settings, models};

fn architecture(kind: &str, settings: &str, shape: DataShape) -> Option<Architecture> {
    let kind = models::kind(kind).unwrap();
    let settings = Settings::check("model", kind.settings, toml::from_str(settings).unwrap(), &mut Vec::new());
    kind.make(&settings, shape).unwrap().architecture()
}

fn images() -> DataShape {
    let form = Form::Image { channels: 1, height: 28, width: 28, augment: Augment::default() };
    DataShape { columns: 784, classes: 10, form }
}

const FASHION: &str = "filters = [32, 64]\npadding = \"valid\"\nhidden = [512]";

#[test]
fn only_what_kernels_can_do_is_taken() {
    let suits = |kind, settings, shape| architecture(kind, settings, shape).is_some_and(|it| suits(&it));
    let plain = images();
    assert!(suits("cnn", FASHION, plain));
    assert!(suits("mlp", "", plain) && suits("softmax", "precision = \"f32\"", plain));
    assert!(!suits("softmax", "", plain), "in double precision");
    assert!(!suits("cnn", "norm = \"group\"", plain) && !suits("cnn", "dropout = 0.5", plain));
    assert!(!suits("cnn", "pool = 16\npadding = \"same\"", plain));
}

#[test]
fn the_network_of_fashion_mnist_by_hand() {
    let network = architecture("cnn", FASHION, images()).unwrap();
    let Sizes { outputs, places, partials } = sizes(&network, 10);
    assert_eq!(outputs, [784, 0, 4608, 0, 1024, 512, 10]);
    assert_eq!(places, [0, 4608, 0, 1024, 0, 0]);
    // One tile of 26 lines, 26 of 801 lines and 64 columns.
    assert_eq!(partials, [24 * 26 * 32, 0, 801 * 64, 0, 0, 0]);
    let wanted = Wanted { architecture: &network, stored: Stored::Bytes, rows: 10, tf32: false, trains: true };
    let text = text(&wanted);
    let names = |launches: &[(String, [usize; 2], usize)]| -> Vec<String> {
        launches.iter().map(|(name, ..)| name.clone()).collect()
    };
    assert_eq!(names(&text.forward), ["gather_rows", "convolve0", "convolve2", "dense4", "dense5"]);
    let backward = [
        "judge_rows",
        "dense_down5",
        "dense_gradient5",
        "dense_down4",
        "dense_gradient4",
        "convolve_down2",
        "convolve_gradient2",
        "settle2",
        "convolve_gradient0",
        "settle0",
    ];
    assert_eq!(names(&text.backward), backward);
    assert_eq!(text.forward[1].1, [90, 1]);
}

/// Compiles kernels where the compiler is found (it needs no device), and says where it is not.
#[test]
fn kernels_compile() {
    // SAFETY: only looks whether the library can be loaded.
    if !unsafe { nvrtc::is_culib_present() } {
        println!("libnvrtc.so was not found: kernels were not compiled");
        return;
    }
    let numbers = DataShape::numbers(13, 0);
    let cases = [
        (architecture("cnn", FASHION, images()), Stored::Bytes),
        (architecture("cnn", "filters = [3]\nkernel = 3\npool = 3\npooling = \"mean\"", images()), Stored::Numbers),
        (architecture("mlp", "hidden = [7]", numbers), Stored::Numbers),
        (architecture("logistic", "precision = \"f32\"", DataShape::numbers(9, 2)), Stored::Numbers),
    ];
    for (architecture, stored) in cases {
        let architecture = architecture.unwrap();
        for trains in [false, true] {
            let wanted = Wanted { architecture: &architecture, stored, rows: 20, tf32: trains, trains };
            compile(&text(&wanted).source, "sm_90").unwrap();
        }
    }
    let network = architecture("mlp", "hidden = [200]", images()).unwrap();
    for rows in [50, 200] {
        compile(&Shape::of(&network, rows).unwrap().text(network.width), "sm_90").unwrap();
    }
}

#[test]
fn networks_with_one_hidden_layer_train_in_the_space_of_the_rows() {
    let network = architecture("mlp", "hidden = [200]", images()).unwrap();
    let shape = Shape::of(&network, 50).unwrap();
    assert_eq!(shape, Shape { rows: 50, columns: 784, hidden: 200, outputs: 10 });
    // Of a client: rows twice, products of four models, changes and hidden units, X·Xᵀ, and 2210 parameters.
    assert_eq!(shape.bytes(1, 4), 4 * (2 * 50 * 784 + 6 * 50 * 200 + 2500 + 2210));
    assert!(shape.fits(4800, 4) && !shape.fits(48_000, 4));
    assert_eq!(Shape::of(&network, 785), None, "more rows than columns");
    let two = architecture("mlp", "hidden = [200, 200]", images()).unwrap();
    assert_eq!(Shape::of(&two, 50), None);
    assert_eq!(Shape::of(&architecture("mlp", "hidden = [7]", images()).unwrap(), 50), None);
}

#[test]
fn without_a_device_it_is_said_what_was_found() {
    let Err(error) = Cuda::open(false, |_| ()) else { return };
    assert_eq!(error.kind(), ErrorKind::Settings);
    assert!(error.to_string().starts_with("device: \"cuda\" wants an NVIDIA device with its driver, found"), "{error}");
    assert!(backend("cuda", "f32", |_| ()).is_err());
    assert!(backend("auto", "f32", |_| ()).is_ok() && backend("cpu", "f32", |_| ()).is_ok());
    let refused = |device, precision| backend(device, precision, |_| ()).err().unwrap().to_string();
    assert_eq!(refused("tpu", "f32"), "device: got \"tpu\", want \"cpu\", \"cuda\" or \"auto\"");
    assert_eq!(refused("cpu", "f16"), "precision: got \"f16\", want \"f32\" or \"tf32\"");
}
